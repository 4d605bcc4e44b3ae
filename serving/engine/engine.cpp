#include "serving/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <random>

#include "engine/core/error.h"
#include "engine/core/out_of_memory.h"
#include "engine/core/thread_name.h"

namespace trireme {
namespace {

// Work on masks per step, in nodes of the vocabulary's trie: about half a millisecond. Bounds how
// long masks delay other sequences.
constexpr int64_t kMaskWorkOfAStep = int64_t{1} << 16;

bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const OutOfMemory*>(&error) != nullptr;
}

Failure failure_of(const Progress& progress) {
  if (progress.lacks_memory) return {kNoGrammarMemory, FailureCause::kNoRuleMemory};
  const bool forbidden = !progress.tokens.empty() && progress.tokens.back().id == kNothingLeft;
  if (progress.nothing_left || forbidden) return {kAllForbidden, FailureCause::kAllForbidden};
  return {"the model's output is not finite"};
}

Failure stopping() { return {kEngineStops, FailureCause::kStopping}; }
Failure weights_change() { return {kWeightsChange, FailureCause::kWeightsChange}; }

uint64_t random_secret() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

double seconds_since(std::chrono::steady_clock::time_point& last) {
  const auto now = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(now - std::exchange(last, now)).count();
}

}  // namespace

Engine::Engine(std::unique_ptr<StepExecutor> executor, const BatchingConfig& config, int64_t blocks,
               int64_t block_tokens, StepListener on_step, std::unique_ptr<Drafter> drafter)
    : executor_(std::move(executor)),
      pool_(blocks, block_tokens, random_secret()),
      scheduler_(config, pool_, std::move(drafter)),
      on_step_(std::move(on_step)),
      pace_(std::make_shared<MaskPace>([this] {
        {
          const std::lock_guard lock(mutex_);
          masks_came_ = true;
        }
        wake_.notify_one();
      })) {
  publish_counts();
  thread_ = std::thread([this] { loop(); });
}

Engine::~Engine() {
  stop();
  pace_->close();
}

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

SequenceId Engine::add(SequenceRequest request, SequenceListener listener,
                       const std::shared_ptr<WeightsHold>& hold) {
  const SequenceId id = next_id_++;
  std::vector<Incoming> incoming(1);
  request.pace = pace_;
  incoming[0].hold = attach_hold(hold);
  incoming[0].sequence = std::make_shared<Sequence>(std::move(request));
  incoming[0].id = id;
  incoming[0].listener = std::move(listener);
  hand_in(std::move(incoming));
  return id;
}

std::vector<SequenceId> Engine::add_siblings(
    const SequenceRequest& request, size_t n,
    const std::function<SequenceListener(size_t)>& listener_of,
    const std::shared_ptr<WeightsHold>& hold) {
  std::vector<Incoming> incoming(n);
  std::vector<SequenceId> ids;
  std::shared_ptr<const SamplingParams> of_others = request.sampling_params;
  if (n > 1 && request.sampling_params->prompt_logprobs >= 0) {
    auto params = std::make_shared<SamplingParams>(*request.sampling_params);
    params->prompt_logprobs = -1;
    of_others = std::move(params);
  }
  for (size_t i = 0; i < n; ++i) {
    SequenceRequest one = request;
    one.draw += i;
    one.pace = pace_;
    if (i > 0) {
      one.sibling = incoming[0].sequence;
      one.sampling_params = of_others;
    }
    incoming[i].sequence = std::make_shared<Sequence>(std::move(one));
    incoming[i].listener = listener_of(i);
    incoming[i].hold = attach_hold(hold);
    ids.push_back(incoming[i].id = next_id_++);
  }
  hand_in(std::move(incoming));
  return ids;
}

// Makes the end of the hold queue its release, after its sequences.
const WeightsHold* Engine::attach_hold(const std::shared_ptr<WeightsHold>& hold) {
  if (hold == nullptr) return nullptr;
  hold->on_end(this, [this, ended = hold.get()] {
    std::vector<Incoming> incoming(1);
    incoming[0].hold = ended;
    hand_in(std::move(incoming));
  });
  return hold.get();
}

void Engine::register_hold(const std::shared_ptr<WeightsHold>& hold) {
  std::vector<Incoming> incoming(1);
  incoming[0].hold = attach_hold(hold);
  incoming[0].registers_hold = true;
  hand_in(std::move(incoming));
}

void Engine::cancel(SequenceId id) {
  std::vector<Incoming> incoming(1);
  incoming[0].id = id;
  hand_in(std::move(incoming));
}

void Engine::forget_prefixes() {
  between_steps([this] { pool_.forget_all(); });
}

void Engine::between_steps(const std::function<void()>& work) {
  std::promise<void> done;
  std::vector<Incoming> incoming(1);
  incoming[0].work = [&] {
    try {
      work();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  };
  hand_in(std::move(incoming));
  done.get_future().get();
}

std::future<void> Engine::change_weights(Handover how, std::function<void()> change) {
  const auto done = std::make_shared<std::promise<void>>();
  std::future<void> changed = done->get_future();
  hand_in_work([this, how, change = std::move(change), done] {
    const Failure failed = failure();
    if (failed.empty())
      change_ = {how, change, done};
    else
      done->set_exception(std::make_exception_ptr(Error(failed.why)));
  });
  return changed;
}

EngineCounts Engine::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

Failure Engine::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Engine::hand_in_work(std::function<void()> work) {
  std::vector<Incoming> incoming(1);
  incoming[0].work = std::move(work);
  hand_in(std::move(incoming));
}

void Engine::interrupt(const std::string& why) {
  const Failure lost{why, FailureCause::kLostRanks};
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = lost;
  }
  hand_in_work([this, lost] {
    if (!is_stopped()) end_all(lost);  // once stopped, another thread runs this
  });
}

bool Engine::is_stopped() const {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

void Engine::resume() {
  hand_in_work([this] {
    if (is_stopped()) return;  // then another thread runs this
    pool_.forget_all();
    const std::lock_guard lock(mutex_);
    if (!stopped_) failure_ = {};
  });
}

void Engine::hand_in(std::vector<Incoming> incoming) {
  std::vector<Incoming> late;
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_)
      for (Incoming& one : incoming) incoming_.push_back(std::move(one));
    else
      late.swap(incoming);
  }
  wake_.notify_one();
  if (!late.empty()) refuse(late, failure());
}

void Engine::loop() {
  name_thread("engine");
  while (take_incoming()) {
    change_if_due();
    if (!failure().empty() || scheduler_.idle()) continue;
    run_step();
    change_if_due();  // it may have waited for sequences that ended with this step
  }
  std::vector<Incoming> incoming;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (failure_.empty()) failure_ = stopping();
    incoming.swap(incoming_);
  }
  end_all(stopping());
  refuse(incoming, stopping());
}

bool Engine::take_incoming() {
  std::vector<Incoming> incoming;
  {
    std::unique_lock lock(mutex_);
    const bool rests = scheduler_.idle() || !failure_.empty();
    if (rests || stalled_)
      wake_.wait(lock, [&] { return stop_ || !incoming_.empty() || (masks_came_ && !rests); });
    if (stop_) return false;
    stalled_ = masks_came_ = false;
    incoming.swap(incoming_);
  }
  for (Incoming& one : incoming) accept(one);
  if (!incoming.empty()) publish_counts();
  return true;
}

void Engine::accept(Incoming& one) {
  if (one.work) {
    publish_counts();
    return one.work();
  }
  if (one.is_released()) return release(one.hold);
  if (one.registers_hold) return change_ ? held_.push_back(std::move(one)) : start(one);
  if (one.sequence == nullptr) return take_back(one.id);
  const auto hold = holds_.find(one.hold);
  Failure failed = failure();
  if (failed.empty() && hold != holds_.end() && hold->second) failed = weights_change();
  if (!failed.empty()) {
    scheduler_.cancel(*one.sequence);  // no sibling waits for it
    return one.listener({.finish = FinishReason::kError, .error = failed, .may_retry = true});
  }
  // Sequences of a registered hold still start: the change waits for them.
  if (change_ && hold == holds_.end())
    held_.push_back(std::move(one));
  else
    start(one);
}

void Engine::release(const WeightsHold* hold) {
  holds_.erase(hold);
  for (Incoming& one : held_)
    if (one.hold == hold) one.hold = nullptr;
}

void Engine::take_back(SequenceId id) {
  std::erase_if(held_, [&](const Incoming& one) {
    if (one.sequence == nullptr || one.id != id) return false;
    scheduler_.cancel(*one.sequence);  // its siblings no longer wait for it
    return true;
  });
  const auto at = running_.find(id);
  if (at == running_.end()) return;
  scheduler_.cancel(*at->second.sequence);
  scheduler_.forget_ended();
  ids_.erase(at->second.sequence.get());
  running_.erase(at);
}

void Engine::start(Incoming& one) {
  try {
    if (one.hold != nullptr) holds_.try_emplace(one.hold, false);
    if (one.registers_hold) return;
    scheduler_.add(one.sequence);
    adapters_ = std::max(adapters_, one.sequence->adapter + 1);
    ids_.emplace(one.sequence.get(), one.id);
    running_.emplace(one.id, Running{one.sequence, one.listener});
  } catch (const std::exception& e) {
    if (one.sequence == nullptr) return;
    scheduler_.cancel(*one.sequence);
    ids_.erase(one.sequence.get());
    const bool no_memory = is_out_of_memory(e);
    one.listener({.finish = FinishReason::kError,
                  .error = no_memory ? Failure{kNoMemory} : failure_of(e),
                  .may_retry = no_memory});
  }
}

void Engine::change_if_due() {
  const bool free = scheduler_.idle() && holds_.empty();
  if (!change_ || (change_->how == Handover::kWait && !free)) return;
  const Change change = std::move(*change_);
  change_.reset();
  if (change.how == Handover::kAbort) {
    for (auto& [hold, is_over] : holds_) is_over = true;
    end_sequences(weights_change());
  }
  std::exception_ptr refused;
  try {
    change.run();
    if (change.how != Handover::kBeside) pool_.forget_all();
  } catch (const InputError&) {
    refused = std::current_exception();
  } catch (const std::exception& e) {
    end_all(failure_of(e));
    return change.done->set_exception(std::current_exception());
  }
  std::vector<Incoming> held = std::exchange(held_, {});
  for (Incoming& one : held) start(one);
  publish_counts();
  if (refused)
    change.done->set_exception(refused);
  else
    change.done->set_value();
}

void Engine::run_step() {
  try {
    step();
  } catch (const std::bad_alloc&) {
    end_sequences({kNoMemory});
  } catch (const std::exception& e) {
    end_all(failure_of(e));
  }
}

// Reports the progress of sequences that waited for masks; false: none.
bool Engine::settle() {
  std::vector<Progress> all = scheduler_.settle();
  if (all.empty()) return false;
  publish_counts();
  for (Progress& progress : all) report_progress(progress);
  return true;
}

void Engine::step() {
  const auto begin = std::chrono::steady_clock::now();
  auto last = begin;
  StepReport report;
  const double drafted = scheduler_.counts().draft_seconds;
  pace_->left = kMaskWorkOfAStep;
  if (settle() && scheduler_.idle()) return;
  const SchedulerOutput plan = scheduler_.next();
  if (plan.empty() && scheduler_.waits_for_masks()) {
    stalled_ = !settle();
    return publish_counts();
  }
  TRIREME_CHECK(!plan.empty(), "scheduler returned an empty plan with sequences pending");
  report.tokens = std::ssize(plan.tokens);
  report.sequences = std::ssize(plan.sequences);
  for (const SequenceStep& s : plan.sequences) {
    report.cached_tokens += s.past + s.tokens;
    report.keys += int64_t{s.tokens} * s.past + int64_t{s.tokens} * (s.tokens + 1) / 2;
  }
  report.draft_seconds = scheduler_.counts().draft_seconds - drafted;
  report.plan_seconds = seconds_since(last) - report.draft_seconds;
  StepOutput result;
  try {
    result = executor_->execute(plan);
    failures_ = 0;
  } catch (const std::exception& e) {
    const bool counts = !is_out_of_memory(e);
    if (!executor_->survives_failures() || (counts && ++failures_ >= kMaxFailures))
      return end_all(failure_of(e));
    Failure failure = failure_of(e);
    if (!counts) failure = {concat(kNoMemory, ": ", e.what())};
    return fail_step(plan, failure, !counts);
  }
  report.report_seconds = executor_->plan_send_seconds();
  report.execute_seconds = seconds_since(last) - report.report_seconds;
  std::vector<Progress> all = scheduler_.done(plan, std::move(result));
  publish_counts();  // before the events: a client may read the counts right after its last one
  for (Progress& progress : all) report_progress(progress);
  report.first_tokens = std::exchange(first_tokens_, 0);
  report.report_seconds += seconds_since(last);
  scheduler_.report_step_seconds(std::chrono::duration<double>(last - begin).count());
  publish_counts();
  if (on_step_) on_step_(report);
}

void Engine::fail_step(const SchedulerOutput& plan, const Failure& failure, bool may_retry) {
  for (const std::shared_ptr<Sequence>& sequence : scheduler_.failed(plan)) {
    const auto id = ids_.find(sequence.get());
    if (id == ids_.end()) continue;
    const auto at = running_.find(id->second);
    const SequenceListener listener = std::move(at->second.listener);
    running_.erase(at);
    ids_.erase(id);
    listener({.begun = sequence->begun,
              .finish = FinishReason::kError,
              .error = failure,
              .may_retry = may_retry});
  }
  publish_counts();
}

void Engine::report_progress(Progress& progress) {
  const int64_t tokens = std::ssize(progress.tokens);
  if (tokens > 0 && progress.sequence->generated() <= tokens) ++first_tokens_;
  const auto id = ids_.find(progress.sequence.get());
  if (id == ids_.end()) return;
  const auto at = running_.find(id->second);
  SequenceEvent event{.prompt = std::move(progress.prompt),
                      .embedding = std::move(progress.embedding),
                      .cached_prompt = progress.sequence->cached_prompt,
                      .begun = progress.sequence->begun,
                      .finish = progress.finish};
  if (progress.finish == FinishReason::kError) event.error = failure_of(progress);
  event.may_retry = progress.lacks_memory;
  event.tokens = std::move(progress.tokens);
  if (!event.tokens.empty() && event.tokens.back().id < 0) event.tokens.pop_back();
  if (!progress.finish) return at->second.listener(std::move(event));
  const SequenceListener listener = std::move(at->second.listener);
  running_.erase(at);
  ids_.erase(id);
  listener(std::move(event));
}

void Engine::end_sequences(const Failure& failure) {
  const auto running = std::exchange(running_, {});
  ids_.clear();
  for (const auto& [id, one] : running) scheduler_.cancel(*one.sequence);
  scheduler_.forget_ended();
  scheduler_.forget_steps();
  publish_counts();
  for (const auto& [id, one] : running)
    one.listener({.begun = one.sequence->begun,
                  .finish = FinishReason::kError,
                  .error = failure,
                  .may_retry = true});
}

void Engine::end_all(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = failure;
  }
  end_sequences(failure);
  // Some sequences of a response may have ended here: the rest could run on other weights, so it is
  // refused.
  for (auto& [hold, is_over] : holds_) is_over = true;
  std::vector<Incoming> held = std::exchange(held_, {});
  for (const Incoming& one : held)
    if (one.registers_hold && one.hold != nullptr) holds_.insert_or_assign(one.hold, true);
  refuse(held, failure);
  if (const std::optional<Change> change = std::exchange(change_, {}))
    change->done->set_exception(std::make_exception_ptr(Error(failure.why)));
}

void Engine::refuse(std::vector<Incoming>& incoming, const Failure& failure) {
  for (Incoming& one : incoming) {
    if (one.work)
      one.work();
    else if (one.listener)
      one.listener({.finish = FinishReason::kError, .error = failure, .may_retry = true});
  }
}

void Engine::find_adapters(EngineCounts& counts) const {
  std::vector<bool> running(static_cast<size_t>(adapters_)), waiting(running);
  for (const auto& [id, one] : running_) {
    const Sequence& s = *one.sequence;
    if (s.adapter < 0) continue;
    const auto adapter = static_cast<size_t>(s.adapter);
    if (s.state == Sequence::State::kRunning) running[adapter] = true;
    if (s.state == Sequence::State::kWaiting) waiting[adapter] = true;
  }
  for (int32_t adapter = 0; adapter < adapters_; ++adapter) {
    if (running[static_cast<size_t>(adapter)]) counts.running_adapters.push_back(adapter);
    if (waiting[static_cast<size_t>(adapter)]) counts.waiting_adapters.push_back(adapter);
  }
}

void Engine::publish_counts() {
  EngineCounts counts{scheduler_.counts(), pool_.used(), pool_.blocks()};
  counts.scheduler.waiting +=
      std::ranges::count_if(held_, [](const Incoming& one) { return one.sequence != nullptr; });
  if (adapters_ > 0) find_adapters(counts);
  const std::lock_guard lock(mutex_);
  counts_ = std::move(counts);
}

}  // namespace trireme
