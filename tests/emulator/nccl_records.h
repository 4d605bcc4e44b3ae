// Operations recorded by the NCCL stand-in (tests/emulator/nccl.cpp), and its differences from
// NCCL.
//
// Ranks are threads of this process, with a device each. An operation is work on its stream: it
// ends when the ranks concerned have reached it. Nothing is buffered, so that a wrong order of
// sends and receives waits forever, as it may with NCCL. The operations of one group call progress
// together. Sums are computed in the order of the host's ring, so that results can be compared bit
// by bit with those of ranks on the CPU.
//
// Non-blocking communicators are in progress (ncclCommGetAsyncError) for some polls: until all
// ranks have joined, after their first operation, and when they are finalized. Using one meanwhile,
// and destroying one that was not finalized, are errors.
//
// The communicator gets an asynchronous error where ranks disagree (operation, count, type,
// reduction, root), where a message has another size than its receiver expects, and where a group
// call is open when the communicator ends. Its work then ends without results, and ncclGetLastError
// returns the cause.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

struct NcclRecord {
  int rank = 0;    // in the communicator
  int device = 0;  // of that rank
  int ranks = 0;   // size of the communicator
  int comm = 0;    // its number, in the order of creation of the ids
  std::string op;  // "AllReduce", "Send"...
  int64_t count = 0;
  int type = 0;       // ncclDataType_t
  int reduction = 0;  // ncclRedOp_t
  int peer = -1;      // peer, or root
  const void* stream = nullptr;
  int group = 0;  // number of the rank's group call; operations of a group share it
};

// Records since the last reset, ordered within each thread; the order between threads is undefined.
std::vector<NcclRecord> nccl_records();
int nccl_open_comms();  // created, and neither destroyed nor aborted
void reset_nccl();      // records only
// Makes the creation of a communicator of several ranks fail on this device from now on; -1: on
// every device.
void fail_nccl_init(int device);

}  // namespace emulator
