#include "parallel/comm/cuda/nccl_group.h"

#include <algorithm>

#include "engine/core/thread_name.h"
#include "parallel/comm/collectives/operation.h"

namespace trireme::cuda {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(100);
// Seconds before queued work is checked for progress.
constexpr double kPatient = 5;

// Polls, since GCC 14 has no std::timed_mutex under ThreadSanitizer.
bool locked_before(std::chrono::steady_clock::time_point deadline, std::mutex& mutex) {
  while (!mutex.try_lock()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace

NcclWatch::NcclWatch(const Context& gpu, RankState& rank_state)
    : gpu_(gpu), rank_state_(rank_state), thread_([this] { loop(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatch::add(std::shared_ptr<NcclComm> comm) {
  const std::lock_guard lock(mutex_);
  comms_.push_back(std::move(comm));
}

void NcclWatch::remove(const std::shared_ptr<NcclComm>& comm) {
  const std::lock_guard lock(mutex_);
  std::erase(comms_, comm);
}

void NcclWatch::queued(std::shared_ptr<Event> event, const OpInfo& op) {
  const std::lock_guard lock(mutex_);
  latest_ = {std::move(event), op.kind, *op.group, op.rank, op.size, op.bytes, Clock::now()};
}

std::vector<std::shared_ptr<NcclComm>> NcclWatch::comms() {
  const std::lock_guard lock(mutex_);
  return comms_;
}

void NcclWatch::abort_all() noexcept {
  const auto deadline = Clock::now() + std::chrono::seconds(2);
  std::vector<std::shared_ptr<NcclComm>> held;
  for (std::shared_ptr<NcclComm>& comm : comms())
    // No NCCL call blocks, so a thread that holds one for long sees the loss itself and ends it.
    if (locked_before(deadline, comm->mutex)) held.push_back(std::move(comm));
  // Aborts all before waiting for any: freeing one may wait for another's kernel.
  const NcclLibrary& nccl = nccl_library();
  (void)nccl.GroupStart();
  for (const std::shared_ptr<NcclComm>& comm : held) abort_nccl_comm(*comm);
  (void)nccl.GroupEnd();
  for (const std::shared_ptr<NcclComm>& comm : held) comm->mutex.unlock();
}

void NcclWatch::loop() {
  name_thread("nccl-watch");
  try {
    use_device(gpu_);
  } catch (const std::exception& error) {
    return report(error.what());
  }
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [this] { return stop_; })) {
    lock.unlock();
    try {
      if (!rank_state_.liveness.lost()) look_at_errors();
      if (!rank_state_.liveness.lost()) look_at_progress();
    } catch (const std::exception& error) {
      report(error.what());
    }
    if (rank_state_.liveness.lost()) return abort_all();
    lock.lock();
  }
}

void NcclWatch::report(const std::string& what) {
  rank_state_.liveness.report_lost(concat("rank ", rank_state_.transport->rank(), ": ", what));
  rank_state_.transport->broadcast_loss();
}

void NcclWatch::look_at_errors() {
  const NcclLibrary& nccl = nccl_library();
  for (const std::shared_ptr<NcclComm>& comm : comms()) {
    const std::unique_lock held(comm->mutex, std::try_to_lock);
    if (!held || comm->raw == nullptr) continue;
    ncclResult_t error = ncclSuccess;
    const ncclResult_t asked = nccl.CommGetAsyncError(comm->raw, &error);
    if (asked != ncclSuccess) error = asked;
    if (error == ncclSuccess || error == ncclInProgress) continue;
    return report(concat("NCCL reports for ", comm->name, ": ", nccl.GetErrorString(error), " (",
                         nccl.GetLastError(comm->raw), ")"));
  }
}

// NCCL's streams advance together in the long run, so one event represents all work before it.
void NcclWatch::look_at_progress() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (!watched_.event) {
    watched_ = latest_;
    watched_.since = now;
    return;
  }
  const double waited = std::chrono::duration<double>(now - watched_.since).count();
  if (rank_state_.liveness.held()) watched_.since = now;
  if (waited < std::min(kPatient, rank_state_.options.timeout_s)) return;
  if (done(*watched_.event)) {
    watched_ = {};
  } else if (waited > rank_state_.options.timeout_s) {
    const OpInfo op{watched_.kind, &watched_.group, watched_.rank,
                    watched_.size, watched_.bytes,  false};
    report(concat(op, " has not completed on the device after ", static_cast<int64_t>(waited),
                  " s (comm.timeout)"));
  }
}

std::shared_ptr<NcclComm> make_nccl_comm(const std::shared_ptr<GroupState>& group,
                                         const std::vector<int>& ranks, const std::string& name,
                                         int max_blocks) {
  const NcclLibrary& nccl = nccl_library();
  const int self = static_cast<int>(std::ranges::find(ranks, group->rank) - ranks.begin());
  TRIREME_CHECK(self < std::ssize(ranks), name, " does not contain rank ", group->rank);
  ncclUniqueId id{};
  if (self == 0) check_nccl(nccl.GetUniqueId(&id), name);
  group->rank_state->worker.run([&] {
    Operation op(*group, CommKind::kControl, sizeof id);
    --group->sequence;  // not every rank of the group takes part
    const int tag = op.collective_tag();
    const auto others = std::span(ranks).subspan(1);
    const RecvPart from_first{ranks[0], tag, &id, sizeof id};
    if (self != 0) return op.exchange({}, {&from_first, 1});
    for (const int to : others) {
      const SendPart part{to, tag, &id, sizeof id};
      op.exchange({&part, 1}, {});
    }
  });
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (max_blocks > 0) config.maxCTAs = max_blocks;
  auto comm = std::make_shared<NcclComm>();
  comm->name = name;
  const OpInfo op{CommKind::kControl, &group->name, group->rank, group->size(), sizeof id, false};
  try {
    check_nccl(
        nccl.CommInitRankConfig(&comm->raw, static_cast<int>(ranks.size()), id, self, &config),
        concat("making the communicator of ", name));
    wait_until_issued(*comm, *group->rank_state, op);
  } catch (...) {
    abort_nccl_comm(*comm);
    throw;
  }
  return comm;
}

namespace {

// Operation that the watchdog names while the host waits for NCCL.
class Entered {
 public:
  Entered(Liveness& liveness, const OpInfo& op)
      : liveness_(liveness), outer_(liveness.enter(&op)) {}
  ~Entered() { liveness_.enter(outer_); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Liveness& liveness_;
  const OpInfo* outer_;
};

}  // namespace

void wait_until_issued(const NcclComm& comm, RankState& rank_state, const OpInfo& op) {
  const NcclLibrary& nccl = nccl_library();
  ncclResult_t state = ncclSuccess;
  const auto in_progress = [&] {
    check_nccl(nccl.CommGetAsyncError(comm.raw, &state), comm.name);
    return state == ncclInProgress;
  };
  if (in_progress()) {
    const Entered entered(rank_state.liveness, op);
    for (Patience patience(rank_state.liveness, op); in_progress();) patience.step(-1);
  }
  check_nccl(state, comm.name);
}

namespace {

// True if all queued work completes and the ranks finalize together within 5 seconds.
bool finalize(const NcclComm& comm) {
  const NcclLibrary& nccl = nccl_library();
  const ncclResult_t begun = nccl.CommFinalize(comm.raw);
  if (begun != ncclSuccess && begun != ncclInProgress) return false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  ncclResult_t state = ncclInProgress;
  while (nccl.CommGetAsyncError(comm.raw, &state) == ncclSuccess && state == ncclInProgress) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return state == ncclSuccess;
}

}  // namespace

// Errors are ignored: the reason for the abort is known already.
void abort_nccl_comm(NcclComm& comm) noexcept {
  if (comm.raw != nullptr) (void)nccl_library().CommAbort(std::exchange(comm.raw, nullptr));
}

void end_nccl_comm(NcclComm& comm, RankState& rank_state) noexcept {
  if (comm.raw == nullptr) return;
  // A lost rank is known already, and one that is only slow to end is not reported from here.
  if (rank_state.liveness.lost() || !finalize(comm)) return abort_nccl_comm(comm);
  (void)nccl_library().CommDestroy(std::exchange(comm.raw, nullptr));
}

}  // namespace trireme::cuda
