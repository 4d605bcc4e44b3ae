#include "serving/distributed/rank_supervisor.h"

#include <poll.h>

#include <algorithm>
#include <csignal>

#include "engine/core/thread_name.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kSupervisorLook{50};
constexpr milliseconds kReadyLook{120'000};
constexpr milliseconds kEnding{5000};
constexpr milliseconds kLastWords{3000};  // ranks that fail to load report why, one after the other
constexpr milliseconds kFirstPause{100}, kLongestPause{30'000};
constexpr int64_t kMaxOutput = int64_t{256} << 20;
// A loading rank may wait for the machine's disks and processors. On this machine a process that is
// stopped or has ended is detected at once, and one that only waits for a processor is not lost.
constexpr SilenceLimits kLoading{.silent = milliseconds(30'000)}, kServingHere = kLoading,
                                                                  kServingElsewhere{};

[[noreturn]] void fail_lost(const std::string& why) { throw Error(why, ExitCode::kLostRank); }

}  // namespace

RankSupervisor::RankSupervisor(RankGroupConfig config)
    : config_(std::move(config)),
      name_(config_.position.groups > 1 ? concat("replica ", config_.position.number, ": ") : ""),
      thread_([this] { loop(); }) {}

RankSupervisor::~RankSupervisor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

RankReady RankSupervisor::wait_until_ready() {
  for (;;)
    if (const std::optional<RankReady> ready = wait_until_ready(kReadyLook)) return *ready;
}

std::optional<RankReady> RankSupervisor::wait_until_ready(milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto known = [&] { return first_.has_value() || failed_ != ExitCode::kDone; };
  if (!changed_.wait_for(lock, limit, known)) return {};
  if (first_) return first_;
  if (said_by_rank_ && failed_ == ExitCode::kBadInput) throw ReportedError(concat(name_, why_));
  throw Error(concat(name_, why_), failed_);
}

void RankSupervisor::listen(Listener listener) {
  const std::lock_guard lock(listening_);
  listener_ = std::move(listener);
}

RankGroupCounts RankSupervisor::counts() const {
  const std::lock_guard lock(mutex_);
  return {group_ != nullptr, starts_};
}

// --- engine's thread ---

StepOutput RankSupervisor::execute(const SchedulerOutput& plan) {
  const std::shared_ptr<Group> group = begin_step(plan);
  try {
    const auto begin = Clock::now();
    const std::vector<std::byte> bytes = encode_plan(plan);
    for (const auto& channel : group->channels)
      channel->send(MessageKind::kPlan, plan.number, bytes);
    plan_send_seconds_ = std::chrono::duration<double>(Clock::now() - begin).count();
    return decode_output(wait_for_output(*group), plan, group->ready.bounds.ids);
  } catch (const std::exception& error) {
    // Any error: ranks that have begun a step without the others are unusable, so the group
    // restarts.
    log_warning(name_, "step ", plan.number, " failed: ", error.what());
    for (const auto& channel : group->channels) channel->shut_down();
    fail_lost(kRanksLost);
  }
}

std::shared_ptr<RankSupervisor::Group> RankSupervisor::begin_step(const SchedulerOutput& plan) {
  const std::lock_guard lock(mutex_);
  if (group_ == nullptr) fail_lost(kRanksLost);
  outcome_.reset();
  step_ = {plan.number, std::ssize(plan.tokens), Clock::now()};
  return group_;
}

std::vector<std::byte> RankSupervisor::wait_for_output(const Group& group) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return outcome_.has_value() || group_.get() != &group; });
  if (!outcome_) fail_lost(why_);
  const Step step = std::exchange(step_, {});
  if (step.number != 0)
    deadline_.report_step_seconds(step.tokens, Clock::now() - step.began);  // not lost since
  std::vector<std::byte> output = std::move(*outcome_);
  outcome_.reset();
  return output;
}

// --- weights ---

// On any error the ranks of a group no longer agree on the weights, so the group restarts.
void RankSupervisor::ask_all(const Group& group, MessageKind kind,
                             std::span<const std::byte> payload) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    change_.responses = 0;
    change_.refusal.clear();
    number = change_.number;
  }
  try {
    for (const auto& channel : group.channels) channel->send(kind, number, payload);
  } catch (const std::exception& error) {
    log_warning(name_, "cannot send the weight change to all ranks: ", error.what());
    for (const auto& channel : group.channels) channel->shut_down();
    fail_lost(kRanksLost);
  }
}

std::string RankSupervisor::wait_for_responses(const std::shared_ptr<Group>& group) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return change_.responses == group->channels.size() || group_ != group; });
  if (change_.responses < group->channels.size()) fail_lost(kRanksLost);
  return change_.refusal;
}

void RankSupervisor::stage(const StageRequest& request) {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    if (group_ == nullptr) fail_lost(kRanksLost);
    group = group_;
    change_ = {.group = group, .number = change_.number + 1, .refusal = {}};
  }
  ask_all(*group, MessageKind::kStage, encode_stage(request));
  if (const std::string why = wait_for_responses(group); !why.empty()) throw InputError(why);
  const std::lock_guard lock(mutex_);
  change_.staged = true;
}

void RankSupervisor::commit(const StageRequest& request) {
  std::shared_ptr<Group> outdated;
  {
    const std::lock_guard lock(mutex_);
    if (request.slot < 0)
      config_.task.model = request.path;
    else
      config_.task.adapters.at(static_cast<size_t>(request.slot)) = request.path;
    ++task_;
    if (group_ != change_.group || !change_.staged) outdated = group_;
  }
  if (outdated == nullptr) return;
  log_warning(name_,
              "restarting the ranks: their weights differ from those staged on the other replicas");
  for (const auto& channel : outdated->channels) channel->shut_down();
}

void RankSupervisor::use() {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    if (group_ == nullptr) fail_lost(kRanksLost);
    if (group_ != change_.group) return;  // the restarted ranks have loaded the current weights
    group = group_;
  }
  ask_all(*group, MessageKind::kUse);
  wait_for_responses(group);
}

void RankSupervisor::drop() {
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(mutex_);
    group = std::exchange(change_.group, nullptr);
    if (group == nullptr || group_ != group) return;
  }
  ask_all(*group, MessageKind::kDrop);
}

void RankSupervisor::forget_adapter(int32_t slot) {
  const std::lock_guard lock(mutex_);
  config_.task.adapters.at(static_cast<size_t>(slot)).clear();
}

// --- supervisor's thread ---

bool RankSupervisor::stopping() const {
  const std::lock_guard lock(mutex_);
  return stop_;
}

bool RankSupervisor::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [&] { return stop_; });
}

void RankSupervisor::loop() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  name_thread("ranks", static_cast<size_t>(config_.position.number));
  milliseconds next = kFirstPause;
  for (;;) {
    const std::string why = run_group();
    if (stopping()) return;
    {
      const std::lock_guard lock(mutex_);
      if (!first_) return;
      // The group has worked: the failure may not recur, so the next pause is short.
      if (outcomes_ > 0) next = kFirstPause;
      outcomes_ = 0;
    }
    log_warning(name_, "ranks lost: ", why, "; restarting them");
    if (!pause(next)) return;
    next = std::min(2 * next, kLongestPause);
  }
}

std::string RankSupervisor::run_group() {
  const auto group = std::make_shared<Group>();
  std::string why;
  ExitCode code = ExitCode::kLostRank;
  try {
    {
      const bool here = config_.launcher != RankLauncher::kSrun && config_.address.empty();
      ControlListener listener =
          here ? ControlListener::on_this_machine() : ControlListener::on_address(config_.address);
      group->on_this_machine = here;
      // Rank 0 has inherited the ranks' rendezvous port (RankCommand::port) and closes it after the
      // rendezvous. The commands are destroyed at once, so that it does not stay open here.
      group->processes = std::make_unique<RankProcesses>(
          rank_commands(config_.launcher, config_.ranks, config_.command, listener.address().line(),
                        config_.position));
      accept_ranks(*group, listener);
    }
    watch(group);
    let_end(*group);
    return {};
  } catch (const Error& error) {
    why = error.what();
    code = error.code();
  } catch (const std::exception& error) {  // usually std::bad_alloc
    why = error.what();
  }
  say_lost(why);
  if (group->processes != nullptr) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      first = !first_;
    }
    if (first) group->processes->wait(kLastWords);
    const int own = group->processes->exit_code();
    if (own > 0 && own <= static_cast<int>(ExitCode::kLostRank)) code = static_cast<ExitCode>(own);
    group->processes->kill();
  }
  {
    const std::lock_guard lock(mutex_);
    failed_ = code;
    said_by_rank_ = group->processes != nullptr;
  }
  changed_.notify_all();
  return why;
}

void RankSupervisor::accept_ranks(Group& group, ControlListener& listener) {
  RankTask task;
  {
    const std::lock_guard lock(mutex_);
    ++starts_;
    task = config_.task;
    // Keeps the size of the first start. Sized again, the cache would be smaller: the draft model's
    // cache has since taken GPU memory.
    if (first_) task.blocks = first_->bounds.blocks;
    group.task = task_;
  }
  group.channels.resize(static_cast<size_t>(config_.ranks));
  group.pids.resize(group.channels.size());
  group.computed.resize(group.channels.size());
  const auto end = Clock::now() + config_.rendezvous;
  for (int missing = config_.ranks; missing > 0 && !stopping();) {
    if (const std::string ended = group.processes->ended(); !ended.empty()) fail_lost(ended);
    if (Clock::now() > end)
      fail_lost(concat(missing, " of ", config_.ranks, " ranks have not connected"));
    const auto peer = listener.accept(kSupervisorLook);
    if (peer == nullptr || peer->rank < 0 || peer->rank >= config_.ranks) continue;
    const auto rank = static_cast<size_t>(peer->rank);
    if (group.channels[rank] != nullptr) continue;
    group.channels[rank] = std::move(peer->channel);
    group.pids[rank] = peer->process;
    send_task(*group.channels[rank], task);
    --missing;
  }
}

void RankSupervisor::watch(const std::shared_ptr<Group>& group) {
  RankWatch watch(group->pids, group->on_this_machine, kLoading, Clock::now());
  bool loading = true;
  std::vector<pollfd> ready;
  for (const auto& channel : group->channels)
    ready.push_back({channel == nullptr ? -1 : channel->fd(), POLLIN, 0});
  auto looked = Clock::now();
  while (!stopping()) {
    ::poll(ready.data(), ready.size(), static_cast<int>(kSupervisorLook.count()));
    for (size_t rank = 0; rank < ready.size(); ++rank) {
      if (ready[rank].revents == 0) continue;
      watch.received(rank);
      while (std::optional<Message> message = group->channels[rank]->poll())
        take(*group, rank, std::move(*message));
    }
    if (loading && group->loaded == group->channels.size()) {
      loading = false;
      watch = RankWatch(group->pids, group->on_this_machine,
                        group->on_this_machine ? kServingHere : kServingElsewhere, Clock::now());
      say_ready(group);
    }
    if (Clock::now() - looked < kSupervisorLook) continue;
    looked = Clock::now();
    if (const std::string ended = group->processes->ended(); !ended.empty()) fail_lost(ended);
    if (const std::string lost = watch.look(looked); !lost.empty()) fail_lost(lost);
    check_step(*group);
  }
}

void RankSupervisor::take(Group& group, size_t rank, Message message) {
  ControlChannel& channel = *group.channels[rank];
  switch (static_cast<MessageKind>(message.kind)) {
    case MessageKind::kBeat: group.computed[rank] = message.number; return;
    case MessageKind::kReady:
      if (rank == 0) group.ready = decode_ready(message.payload);
      ++group.loaded;
      return channel.accept_payloads(kMaxOutput);
    case MessageKind::kOutput: {
      const std::lock_guard lock(mutex_);
      if (message.number != step_.number)
        throw BadMessage(concat(channel.peer(), " sent the result of step ", message.number,
                                ", expected that of step ", step_.number));
      outcome_ = std::move(message.payload);
      ++outcomes_;
      return changed_.notify_all();
    }
    case MessageKind::kStaged:
    case MessageKind::kUsed: {
      const std::lock_guard lock(mutex_);
      if (message.number != change_.number || change_.group.get() != &group)
        throw BadMessage(
            concat(channel.peer(), " reported on a weight change that is not in progress"));
      ++change_.responses;
      if (change_.refusal.empty())
        change_.refusal.assign(reinterpret_cast<const char*>(message.payload.data()),
                               message.payload.size());
      return changed_.notify_all();
    }
    case MessageKind::kFailed:
      fail_lost(concat(channel.peer(), ": ",
                       std::string_view(reinterpret_cast<const char*>(message.payload.data()),
                                        message.payload.size())));
    default:
      throw BadMessage(
          concat(channel.peer(), " sent an unexpected message of kind ", message.kind));
  }
}

void RankSupervisor::say_ready(const std::shared_ptr<Group>& group) {
  {
    const std::lock_guard lock(mutex_);
    const RankReady& now = group->ready;
    if (first_ &&
        (now.bounds.blocks < first_->bounds.blocks || now.bounds.length < first_->bounds.length))
      fail_lost(concat("the KV cache has ", now.bounds.blocks, " blocks for sequences of up to ",
                       now.bounds.length, " tokens, expected at least ", first_->bounds.blocks,
                       " blocks and ", first_->bounds.length, " tokens, as at the first start"));
    if (group->task != task_) fail_lost("the served weights changed while the ranks loaded");
    if (!first_) first_ = now;
    group_ = group;
    why_.clear();
    step_ = {};
    deadline_ = StepDeadline(config_.min_step);
  }
  changed_.notify_all();
  log_info(name_, config_.ranks,
           config_.ranks == 1 ? " rank is ready: " : " ranks are ready: ", group->ready.device);
  const std::lock_guard lock(listening_);
  if (listener_) listener_({});
}

void RankSupervisor::say_lost(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (group_ != nullptr)
      for (const auto& channel : group_->channels) channel->shut_down();
    group_.reset();
    why_ = why;
    step_ = {};  // else the next group would exceed its time limit while it loads
  }
  changed_.notify_all();
  const std::lock_guard lock(listening_);
  if (listener_) listener_(why);
}

void RankSupervisor::check_step(const Group& group) const {
  const std::lock_guard lock(mutex_);
  if (step_.number == 0 || outcome_) return;
  const std::chrono::duration<double> taken = Clock::now() - step_.began;
  if (taken <= deadline_.allowed(step_.tokens)) return;
  std::string who;
  for (size_t rank = 0; rank < group.computed.size(); ++rank)
    if (group.computed[rank] != step_.number) who += concat(who.empty() ? "" : ", ", rank);
  fail_lost(concat("step ", step_.number, " exceeded its time limit: no result from rank ", who,
                   " after ", taken.count(), " s"));
}

void RankSupervisor::let_end(Group& group) {
  {
    const std::lock_guard lock(mutex_);
    group_.reset();
    why_ = "the ranks are shutting down";
  }
  changed_.notify_all();
  bool notified = true;
  for (const auto& channel : group.channels) {
    try {
      notified = notified && channel != nullptr;
      if (channel != nullptr) channel->send(MessageKind::kEnd, 0);
    } catch (const Error&) {  // it has ended already
    }
  }
  if (notified) group.processes->wait(kEnding);
  group.processes->kill();
}

}  // namespace trireme
