// NCCL communicators of one rank and the thread that looks after them. For CUDA sources only.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "parallel/comm/cuda/nccl_library.h"
#include "parallel/comm/rank_state.h"

namespace trireme::cuda {

// One communicator. Its calls are made under the mutex, so that it is not ended meanwhile.
struct NcclComm {
  ncclComm_t raw = nullptr;  // null: ended
  std::string name;          // group, or path, for messages
  std::mutex mutex;
};

// Ends the communicators of a rank when a rank is lost or NCCL reports an error, so that nothing on
// the device waits for ever, and reports the latter, and work that makes no progress for
// comm.timeout. The watchdog of the process, where there is one, does the rest
// (parallel/comm/liveness/watchdog.h).
class NcclWatch {
 public:
  NcclWatch(const Context& gpu, RankState& rank_state);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(std::shared_ptr<NcclComm> comm);
  void remove(const std::shared_ptr<NcclComm>& comm);
  // The latest work: an event that outlives its Work, and what it is.
  void queued(std::shared_ptr<Event> event, const OpInfo& op);
  void abort_all() noexcept;  // any thread

 private:
  using Clock = std::chrono::steady_clock;
  struct Queued {
    std::shared_ptr<Event> event;
    CommKind kind = CommKind::kControl;
    std::string group;
    int rank = 0, size = 1;
    int64_t bytes = 0;
    Clock::time_point since;
  };
  void loop();
  void report(const std::string& what);  // ends the run
  void look_at_errors();
  void look_at_progress();
  std::vector<std::shared_ptr<NcclComm>> comms();

  const Context& gpu_;
  RankState& rank_state_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<std::shared_ptr<NcclComm>> comms_;
  Queued latest_;
  Queued watched_;  // of the thread
  std::thread thread_;
};

// Waits on the host until the last call of a communicator is through. NCCL connects ranks when a
// communicator is made and with the first operation of a kind, and hands every call to a thread of
// its own, which for later ones queues a kernel and no more. Ends with an error when a rank is
// lost, when NCCL reports one, and after comm.timeout.
void settle(const NcclComm& comm, RankState& rank_state, const OpInfo& op);

// Makes a communicator of NCCL over `ranks` (group ranks, this one among them), in which this rank
// has the place it has there. The ranks call it at the same time; the id travels over the host's
// transport. most_blocks: of the device that its work may occupy; 0: as NCCL thinks best.
std::shared_ptr<NcclComm> make_nccl_comm(const std::shared_ptr<GroupState>& group,
                                         const std::vector<int>& ranks, const std::string& name,
                                         int most_blocks);

// Ends it alone.
void abort_nccl_comm(NcclComm& comm) noexcept;
// Ends it with all ranks of it, which then have no work for it any more; alone where a rank is
// lost.
void end_nccl_comm(NcclComm& comm, RankState& rank_state) noexcept;

}  // namespace trireme::cuda
