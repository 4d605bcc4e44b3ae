// What the stand-in for NCCL (tests/emulator/nccl.cpp) was asked to do, and how it differs from
// NCCL.
//
// Ranks are threads of this process, a device each. An operation is work on its stream: it ends
// when the ranks it concerns have come there, and nothing is buffered, so that a wrong order of
// sends and receives waits for ever, as it may with NCCL. Operations of one group call move on
// together. Sums are made in the order of the host's ring, so results can be compared bit by bit
// with those of ranks on the CPU.
// Communicators that do not block are in progress (ncclCommGetAsyncError) for some looks: until all
// ranks are there when they are made, after their first operation, and when they are finalised. To
// use one meanwhile, and to destroy one that was not finalised, is an error.
// Where ranks do not agree (operation, count, type, reduction, root), a message has another size
// than its receiver expects, or a group call is open when a communicator ends, the communicator
// gets an asynchronous error: its work ends without results, and text() of ncclGetLastError says
// what was wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

struct NcclRecord {
  int rank = 0;    // of the communicator
  int device = 0;  // of that rank
  int ranks = 0;   // of the communicator
  int comm = 0;    // its number, in the order in which ids were made
  std::string op;  // "AllReduce", "Send"...
  int64_t count = 0;
  int type = 0;       // ncclDataType_t
  int reduction = 0;  // ncclRedOp_t
  int peer = -1;      // or root
  const void* stream = nullptr;
  int group = 0;  // group call of the rank; operations of one number were given together
};

// Since the last reset, in the order of each thread; that of different threads is not meaningful.
std::vector<NcclRecord> nccl_records();
int nccl_open_comms();  // made and neither destroyed nor aborted
void reset_nccl();      // records only
// From now on a communicator cannot be made on this device, if it is one of several ranks; -1:
// everywhere.
void fail_nccl_init(int device);

}  // namespace emulator
