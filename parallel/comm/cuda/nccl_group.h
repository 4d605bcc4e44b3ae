// NCCL communicators of one rank and the thread that monitors them. For CUDA sources only.
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

// One NCCL communicator. Calls hold the mutex, so that no other thread ends it meanwhile.
struct NcclComm {
  ncclComm_t raw = nullptr;  // null: ended
  std::string name;          // group or path, for messages
  std::mutex mutex;
};

// Monitor thread of a rank's NCCL communicators. Reports NCCL errors, and work without progress for
// comm.timeout, as losses. Aborts the communicators when a rank is lost, so that no device work
// waits forever. The watchdog of the process, if any, then ends the rank
// (parallel/comm/liveness/watchdog.h).
class NcclWatch {
 public:
  NcclWatch(const Context& gpu, RankState& rank_state);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  void add(std::shared_ptr<NcclComm> comm);
  void remove(const std::shared_ptr<NcclComm>& comm);
  // Records the latest queued work: an event that outlives its Work, and a description.
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
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool stop_ = false;
  std::vector<std::shared_ptr<NcclComm>> comms_;
  Queued latest_;
  Queued watched_;  // used by the thread only
  std::thread thread_;
};

// Waits until NCCL's thread has processed the communicator's last call (not until the device has
// run it). That thread connects the ranks when a communicator is made and at the first operation of
// each kind; afterwards it only queues a kernel. Throws if a rank is lost, if NCCL reports an
// error, and after comm.timeout.
void wait_until_issued(const NcclComm& comm, RankState& rank_state, const OpInfo& op);

// Makes an NCCL communicator over `ranks` (group ranks, including this one), numbered by their
// position there. All of the ranks call it together; the NCCL id is sent over the host's transport.
// max_blocks: CUDA blocks that its kernels may occupy; 0: NCCL's choice.
std::shared_ptr<NcclComm> make_nccl_comm(const std::shared_ptr<GroupState>& group,
                                         const std::vector<int>& ranks, const std::string& name,
                                         int max_blocks);

// Aborts this rank's communicator without the others.
void abort_nccl_comm(NcclComm& comm) noexcept;
// Ends a communicator together with its other ranks, once none has work left in it. If a rank is
// lost, or the others do not end it within 5 seconds, aborts it without them.
void end_nccl_comm(NcclComm& comm, RankState& rank_state) noexcept;

}  // namespace trireme::cuda
