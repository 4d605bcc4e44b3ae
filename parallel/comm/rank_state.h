// State shared by the communicators of one rank: transport, liveness, worker, coordinates, scratch.
#pragma once

#include <array>

#include "engine/core/memory.h"
#include "parallel/comm/comm_worker.h"
#include "parallel/comm/device/device_collectives.h"
#include "parallel/comm/launcher_environment.h"
#include "parallel/comm/liveness/watchdog.h"
#include "parallel/comm/transport/transport.h"

namespace trireme {

// Location of a rank.
struct RankCoordinates {
  int host = 0;       // index of the machine, whose cores its ranks share
  int local = 0;      // index among the ranks of that machine
  int container = 0;  // index of the part of a machine whose ranks see each other's processes
  int node = 0;       // index of the (virtual) node, a part of a container
  bool shares_memory = false;  // the ranks of this container can map each other's memory
};

struct RankState {
  RankState(std::unique_ptr<Transport> link, const CommOptions& comm)
      : transport(std::move(link)), options(comm), liveness(comm.timeout_s) {
    liveness.background = [this] { return transport->progress(liveness); };
    worker.set_liveness(liveness);
  }

  std::unique_ptr<Transport> transport;
  CommOptions options;
  Liveness liveness;
  std::vector<RankCoordinates> coordinates;  // by world rank
  int host_ranks = 0;                        // ranks on this rank's machine
  MachineRanks machine_ranks;                // other groups on the same machine
  int board_ranks = 1;                       // on this rank's liveness board, itself included
  bool same_cores = true;       // ranks of the machine may use the same cores: not divided yet
  bool oversubscribed = false;  // some machine of the run has more ranks than cores
  int next_context = 1;         // 0 is the world's
  std::mutex traffic_mutex;
  Traffic traffic;                            // of all groups of this rank
  std::unique_ptr<Watchdog> watchdog;         // of ranks that are processes
  std::unique_ptr<DeviceCollectives> device;  // while one is attached
  std::string device_note;                    // why the device backend is slower than requested
  CommWorker worker;                          // last: its operations use all of the above

  void count(CommKind kind, const Traffic::Counter& moved);  // adds to `traffic`
  // Scratch memory for the operation in progress, contents undefined. `which`: 0 or 1. A request
  // for more bytes than before invalidates the pointer returned before.
  std::byte* scratch(size_t which, int64_t bytes);

 private:
  std::array<Buffer, 2> scratch_;
};

// Connects this rank: compares build, wire format and options (all but the timeout) with all ranks,
// determines which ranks share a machine, sets up the liveness board (Liveness::join) and starts
// the watchdog, which announces a loss. Throws InputError naming the first rank that differs, or if
// ranks_per_node is negative or window_bytes below 64.
std::shared_ptr<RankState> connect_rank(std::unique_ptr<Transport> transport,
                                        const CommOptions& options, const std::string& build_id,
                                        const Announce& announce = {});

// Build id of the running executable: the linker's; without one, the file size as text.
std::string executable_build_id();

}  // namespace trireme
