#include "serving/scheduler/scheduler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace trireme {
namespace {

// Number of tokens, from result.sampled[first], that belong to one sequence: accepted drafts + 1.
size_t chosen_of(const SchedulerOutput& plan, const SequenceStep& step, const StepOutput& result,
                 size_t first) {
  const size_t first_draft =
      static_cast<size_t>(step.first_token + step.tokens - step.draft_tokens);
  size_t count = 1;
  while (std::cmp_less(count, step.draft_tokens + 1) &&
         result.sampled.at(first + count - 1).id == plan.tokens[first_draft + count - 1])
    ++count;
  TRIREME_CHECK(first + count <= result.sampled.size(), result.sampled.size(),
                " sampled tokens, expected more for this plan");
  return count;
}

// Timing entry of a step that only decoded; nullopt: it did something else, too.
std::optional<DecodeTiming> decoding_of(const SchedulerOutput& plan, const StepOutput& result) {
  DecodeTiming out;
  for (const SequenceStep& step : plan.sequences) {
    if (!step.samples || step.tokens != step.draft_tokens + 1) return {};
    out.draft_tokens += step.draft_tokens;
  }
  out.sequences = std::ssize(plan.sequences);
  out.tokens = std::ssize(result.sampled);
  return out;
}

}  // namespace

Scheduler::Scheduler(const BatchingConfig& config, KvBlockPool& pool,
                     std::unique_ptr<Drafter> drafter)
    : config_(config),
      pool_(pool),
      blocks_(pool, config.windows, config.max_model_len, config.max_step_tokens),
      drafter_(std::move(drafter)) {
  counts_.speculates = config.speculation.tokens > 0;
  if (drafter_ == nullptr) drafter_ = std::make_unique<TextDrafter>(config.speculation);
  TRIREME_CHECK(config.max_sequences > 0 && config.max_step_tokens >= config.max_sequences,
                "max_sequences is ", config.max_sequences, " and max_step_tokens ",
                config.max_step_tokens, ", expected max_step_tokens >= max_sequences >= 1");
  TRIREME_CHECK(config.max_model_len > 1 && blocks_.max_blocks() <= pool.blocks(),
                "max_model_len is ", config.max_model_len,
                ", expected at least 2 and at most what fits into ", pool.blocks(), " blocks of ",
                pool.block_tokens());
  for (int64_t slot = config.max_sequences; slot-- > 0;)
    free_slots_.push_back(static_cast<int32_t>(slot));
}

const SchedulerCounts& Scheduler::counts() const {
  counts_.running = std::ssize(running_);
  counts_.waiting = std::ssize(waiting_);
  return counts_;
}

void Scheduler::add(std::shared_ptr<Sequence> sequence) {
  Sequence& s = *sequence;
  TRIREME_CHECK(s.state == Sequence::State::kNew && s.prompt_tokens > 0 &&
                    s.prompt_tokens < config_.max_model_len + (s.is_whole_prompt() ? 1 : 0) &&
                    (s.max_tokens > 0) != s.embeds,
                "a prompt of ", s.prompt_tokens, " tokens, ", s.max_tokens,
                " to generate, does not fit into ", config_.max_model_len, " tokens");
  s.tables.resize(static_cast<size_t>(blocks_.groups()));
  s.arrival = ++arrivals_;
  s.state = Sequence::State::kWaiting;
  waiting_.emplace(order(s), std::move(sequence));
}

void Scheduler::cancel(Sequence& sequence) {
  if (sequence.state == Sequence::State::kRunning) {
    leave(sequence);
    running_.erase(order(sequence));
  } else if (sequence.state == Sequence::State::kWaiting) {
    waiting_.erase(order(sequence));
  }
  sequence.state = Sequence::State::kEnded;
}

void Scheduler::forget_ended() {
  std::erase_if(held_, [](const Progress& progress) {
    return progress.sequence->state == Sequence::State::kEnded;
  });
}

SchedulerOutput Scheduler::next() {
  SchedulerOutput plan;
  plan.number = plans_ + 1;
  under_way_.emplace_back().number = plan.number;
  preempted_ = waits_for_masks_ = false;
  int64_t budget = config_.max_step_tokens;
  give_turns();
  propose_drafts();
  plan_decoding(plan, budget);
  plan_prompts(plan, budget);
  // Blocks freed by a preemption are for running sequences.
  if (!preempted_) plan_waiting(plan, budget);
  if (plan.empty())
    under_way_.pop_back();
  else
    ++plans_;
  return plan;
}

void Scheduler::give_turns() {
  std::vector<Sequence*> decoding;
  for (const auto& [place, sequence] : running_)
    if (decodes(*sequence) && has_mask(*sequence)) decoding.push_back(sequence.get());
  turns_.begin(decoding);
}

// True if the sequence decodes in the plan being made.
bool Scheduler::is_due(Sequence& s) { return decodes(s) && has_mask(s) && !turns_.waits(s); }

void Scheduler::propose_drafts() {
  drafts_.clear();
  draft_requests_.clear();
  const SpeculationConfig& how = config_.speculation;
  if (how.tokens == 0) return;
  const auto decode = std::ranges::count_if(
      running_, [this](const auto& placed) { return decodes(*placed.second); });
  if (decode == 0) return;
  counts_.speculates =
      std::ssize(running_) <= how.max_running_sequences && switch_.should_draft(decode);
  under_way_.back().speculates = counts_.speculates;
  if (!counts_.speculates) return;
  // Budget for drafts: the tokens that are left once every running sequence has one.
  int64_t budget = config_.max_step_tokens - std::ssize(running_);
  for (const auto& [place, sequence] : running_) {
    const Sequence& s = *sequence;
    if (!is_due(*sequence)) continue;
    // One token of that room is sampled after the last draft token.
    const int64_t room = std::min(s.max_tokens - s.generated(), config_.max_model_len - s.length());
    const int64_t count = std::min({s.draft_allowance.allowed(how), budget, room - 1});
    if (count <= 0) continue;
    draft_requests_.push_back({&s, count});
    budget -= count;
  }
  if (draft_requests_.empty()) return;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::vector<int32_t>> drafts = drafter_->propose(draft_requests_);
  for (size_t i = 0; i < draft_requests_.size(); ++i) {
    Draft& of = drafts_[draft_requests_[i].sequence];
    of.ids = std::move(drafts[i]);
    if (RuleReader* rule = draft_requests_[i].sequence->reader.get(); rule != nullptr)
      of.ids.resize(rule->look_ahead(of.ids, of.masks));
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  counts_.draft_seconds += taken.count();
}

// Also gives prompts the blocks of their next part: they drop as many, but those that others share
// do not become free.
void Scheduler::plan_decoding(SchedulerOutput& plan, int64_t& budget) {
  // The last sequence in order is preempted: it comes after all that are already planned.
  for (auto at = running_.begin(); at != running_.end();) {
    const std::shared_ptr<Sequence> sequence = at->second;
    const bool due = is_due(*sequence);
    while ((due || has_prompt_left(*sequence)) && !blocks_.give(*sequence, sequence->length())) {
      const std::shared_ptr<Sequence> last = running_.rbegin()->second;
      preempt(*last);
      if (last == sequence) return;
    }
    if (due) {
      Draft draft;
      if (const auto of = drafts_.find(sequence.get()); of != drafts_.end())
        draft = std::move(of->second);
      if (!blocks_.give(*sequence, sequence->length() + std::ssize(draft.ids))) draft = {};
      append(plan, sequence, 1, draft);
      budget -= 1 + std::ssize(draft.ids);
    }
    at = running_.upper_bound(order(*sequence));
  }
}

void Scheduler::plan_prompts(SchedulerOutput& plan, int64_t& budget) {
  for (const auto& [place, sequence] : running_) {
    if (budget == 0) return;
    if (!has_prompt_left(*sequence)) continue;
    const int64_t left = sequence->length() - sequence->computed;
    const int64_t tokens = prompt_part(*sequence, std::min(left, budget));
    append(plan, sequence, tokens, {});  // plan_decoding() gave it blocks
    budget -= tokens;
  }
}

// Number of prompt tokens to compute in this step: fewer with prompt log-probabilities, which are
// slow.
int64_t Scheduler::prompt_part(const Sequence& s, int64_t tokens) {
  if (s.sampling_params->prompt_logprobs < 0) return tokens;
  return turns_.take_prompt_rows(s, tokens);
}

void Scheduler::plan_waiting(SchedulerOutput& plan, int64_t& budget) {
  size_t pending = 0;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    // Only sequences that may start soon have their first mask made.
    if (budget == 0 || free_slots_.size() <= pending) return;
    const std::shared_ptr<Sequence> sequence = at->second;
    ++at;
    // A preempted sequence may still get the token that it would sample again.
    if (sequence->in_flight > 0 || waits_for_sibling(*sequence)) continue;
    if (!has_mask(*sequence)) {
      ++pending;
      const RuleReader::State now = sequence->reader->state();
      const bool over = now == RuleReader::State::kEnded || now == RuleReader::State::kRefused;
      if (!sequence->unsettled && over) held_.push_back({.sequence = sequence});
      continue;
    }
    if (!turns_.take(*sequence)) continue;
    if (!may_start(*sequence)) return;
    start(plan, sequence);
    const int64_t left = sequence->length() - sequence->computed;
    const int64_t tokens = prompt_part(*sequence, std::min(left, budget));
    append(plan, sequence, tokens, {});
    budget -= tokens;
  }
}

// True if the sequence's rule lets it sample now; else notes that a mask is awaited.
bool Scheduler::has_mask(Sequence& s) {
  if (!s.reader || (!s.unsettled && s.reader->state() == RuleReader::State::kOpen)) return true;
  waits_for_masks_ = true;
  return false;
}

std::vector<Progress> Scheduler::settle() {
  std::vector<Progress> out;
  std::erase_if(held_, [&](Progress& progress) {
    Sequence& s = *progress.sequence;
    if (s.state == Sequence::State::kEnded) return true;  // cancelled since
    if (s.reader->state() == RuleReader::State::kPending) return false;
    s.unsettled = false;
    conclude(progress);
    out.push_back(std::move(progress));
    return true;
  });
  return out;
}

// False once the first sibling has ended, or its prompt is in the prefix cache, if there is one,
// and its last prompt log-probabilities are in flight: their result precedes this sequence's.
bool Scheduler::waits_for_sibling(const Sequence& s) const {
  const Sequence* first = s.sibling.get();
  if (first == nullptr || first->state == Sequence::State::kEnded) return false;
  if (first->sampling_params->prompt_logprobs >= 0 && first->scored + 1 < s.prompt_tokens)
    return true;
  return config_.prefix_caching && first->published < (s.prompt_tokens - 1) / pool_.block_tokens();
}

bool Scheduler::may_start(Sequence& s) {
  // A sequence refused before is not checked again until more blocks are free.
  if (refused_ == s.arrival && pool_.free() <= refused_free_) return false;
  refused_ = s.arrival;
  refused_free_ = pool_.free();
  s.prefix = pool_.root(concat(s.adapter, ":", s.salt));
  if (config_.prefix_caching) {
    // The cache holds neither the logits after the last token nor prompt log-probabilities.
    const bool asks = s.sampling_params->prompt_logprobs >= 0 && s.scored + 1 < s.prompt_tokens;
    blocks_.find_prefix(s, asks ? s.scored : s.length() - 1);
  }
  // One block for each running sequence and group.
  const int64_t room = std::ssize(running_) * blocks_.groups();
  if (blocks_.missing(s, s.length()) + room <= pool_.free() && blocks_.give(s, s.length())) {
    refused_ = 0;
    return true;
  }
  blocks_.release(s);
  return false;
}

void Scheduler::start(SchedulerOutput& plan, const std::shared_ptr<Sequence>& sequence) {
  Sequence& s = *sequence;
  if (s.starts == 0) {
    s.begun = std::chrono::steady_clock::now();
    s.cached_prompt = s.computed;
    counts_.prefix_queries += s.prompt_tokens;
    counts_.prefix_hits += s.cached_prompt;
  }
  waiting_.erase(order(s));
  running_.emplace(order(s), sequence);
  s.state = Sequence::State::kRunning;
  s.sibling.reset();
  s.slot = free_slots_.back();
  free_slots_.pop_back();
  ++s.starts;
  SlotStart& entry = plan.starts.emplace_back();
  entry.slot = s.slot;
  entry.prompt_tokens = s.prompt_tokens;
  entry.generated = s.generated();
  entry.draw = s.draw;
  entry.adapter = s.adapter;
  entry.sampling_params = s.sampling_params;
  if (s.sampling_params->needs_history()) entry.history = s.tokens;
}

void Scheduler::preempt(Sequence& s) {
  const auto at = running_.find(order(s));
  leave(s);
  s.state = Sequence::State::kWaiting;
  waiting_.emplace(at->first, at->second);
  running_.erase(at);
  ++counts_.preemptions;
  preempted_ = true;
}

void Scheduler::append(SchedulerOutput& plan, const std::shared_ptr<Sequence>& sequence,
                       int64_t tokens, const Draft& draft) {
  Sequence& s = *sequence;
  SequenceStep step;
  step.slot = s.slot;
  step.first_token = static_cast<int32_t>(plan.tokens.size());
  step.tokens = static_cast<int32_t>(tokens + std::ssize(draft.ids));
  step.draft_tokens = static_cast<int32_t>(draft.ids.size());
  step.past = static_cast<int32_t>(s.computed);
  const bool last = s.computed + tokens == s.length();
  step.samples = last && !s.embeds;
  step.embeds = last && s.embeds;
  ask(step, s);
  if (step.samples && s.reader) {
    const std::span<const uint32_t> mask = s.reader->mask();
    step.mask = static_cast<int32_t>(plan.masks.size() / mask.size());
    plan.masks.insert(plan.masks.end(), mask.begin(), mask.end());
    plan.masks.insert(plan.masks.end(), draft.masks.begin(), draft.masks.end());
  }
  const auto from = s.tokens.begin() + s.computed;
  plan.tokens.insert(plan.tokens.end(), from, from + tokens);
  plan.tokens.insert(plan.tokens.end(), draft.ids.begin(), draft.ids.end());
  blocks_.append(plan, s);
  plan.sequences.push_back(step);
  s.computed += tokens;
  ++s.in_flight;
  under_way_.back().members.push_back({sequence, s.starts});
}

void Scheduler::ask(SequenceStep& step, Sequence& s) const {
  if (s.sampling_params->prompt_logprobs < 0) return;
  const int64_t begin = std::max<int64_t>(step.past, s.scored);
  const int64_t end =
      std::min<int64_t>(step.past + step.tokens - step.draft_tokens, s.prompt_tokens - 1);
  if (begin >= end) return;
  step.first_scored = static_cast<int32_t>(begin - step.past);
  step.scored = static_cast<int32_t>(end - begin);
  step.following = s.tokens[static_cast<size_t>(end)];
  s.scored = end;
}

Scheduler::UnderWay Scheduler::take_under_way(uint64_t number) {
  TRIREME_CHECK(!under_way_.empty() && under_way_.front().number == number, "step ", number,
                " ended, expected the oldest step in flight");
  UnderWay step = std::move(under_way_.front());
  under_way_.pop_front();
  for (const UnderWay::Member& member : step.members) --member.sequence->in_flight;
  return step;
}

std::vector<std::shared_ptr<Sequence>> Scheduler::failed(const SchedulerOutput& plan) {
  ++counts_.failed_steps;
  std::vector<std::shared_ptr<Sequence>> out;
  for (UnderWay::Member& member : take_under_way(plan.number).members) {
    if (member.sequence->state == Sequence::State::kEnded) continue;
    cancel(*member.sequence);
    out.push_back(std::move(member.sequence));
  }
  return out;
}

std::vector<Progress> Scheduler::done(const SchedulerOutput& plan, StepOutput result) {
  TRIREME_CHECK(result.number == plan.number, "result of step ", result.number,
                ", expected that of step ", plan.number);
  const UnderWay step = take_under_way(plan.number);
  note_seconds(plan, step, result);
  decoded_ = decoding_of(plan, result);
  if (decoded_) decoded_->speculates = step.speculates;
  std::vector<Progress> out;
  size_t chosen = 0, prompts = 0, embedded = 0;
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const SequenceStep& part = plan.sequences[i];
    const auto& [sequence, starts] = step.members[i];
    Progress progress{.sequence = sequence};
    if (part.scored > 0) progress.prompt = std::move(result.prompt.at(prompts++));
    const size_t first = chosen;
    if (part.samples) chosen += chosen_of(plan, part, result, chosen);
    if (part.embeds) progress.embedding = std::move(result.embeddings.at(embedded++));
    if (sequence->state == Sequence::State::kEnded) continue;  // cancelled since
    advance(progress, part, starts, std::span(result.sampled).subspan(first, chosen - first));
    const bool held = !progress.finish && sequence->unsettled;
    // Prompt log-probabilities do not wait for the mask: siblings may get tokens before it.
    if (held && !progress.prompt.empty())
      out.push_back({.sequence = sequence, .prompt = std::exchange(progress.prompt, {})});
    if (held)
      held_.push_back(std::move(progress));
    else if (progress.has_results())
      out.push_back(std::move(progress));
  }
  return out;
}

// Records the sampling times of each sequence and of the step.
void Scheduler::note_seconds(const SchedulerOutput& plan, const UnderWay& step,
                             const StepOutput& result) {
  sampling_timing_ = {.sampling = result.total_sampling_seconds,
                      .sequences = std::ssize(plan.sequences),
                      .decodes = true};
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    const SequenceStep& part = plan.sequences[i];
    if (part.tokens != part.draft_tokens + 1) sampling_timing_.decodes = false;
    if (result.sampling_seconds.empty()) continue;
    const double seconds = static_cast<double>(result.sampling_seconds[i]);
    sampling_timing_.sequence_sum += seconds;
    Sequence& s = *step.members[i].sequence;
    if (part.scored > 0) s.score_seconds = seconds / static_cast<double>(part.scored);
    if (part.scored > 0 || !part.samples) continue;
    s.sampling_seconds = seconds / static_cast<double>(part.draft_tokens + 1);
    turns_.measured_token(s, s.sampling_seconds);
  }
}

// Applies one step's result to a sequence. chosen: its sampled tokens; starts: Sequence::starts
// when the step was planned.
void Scheduler::advance(Progress& progress, const SequenceStep& part, uint64_t starts,
                        std::span<OutputToken> chosen) {
  Sequence& s = *progress.sequence;
  // Keys that are not finite must not be shared through the prefix cache.
  const bool finite = chosen.empty() || chosen.front().id != kNotFinite;
  const bool cached = s.state == Sequence::State::kRunning && s.starts == starts;
  if (finite && cached && config_.prefix_caching)
    blocks_.publish(s, part.past + part.tokens - part.draft_tokens);
  if (part.samples) verify(progress, part, chosen, cached);
  if (part.embeds) {
    progress.finish = FinishReason::kStop;
    cancel(s);
  }
}

void Scheduler::report_step_seconds(double seconds) {
  sampling_timing_.step = seconds;
  turns_.measured(sampling_timing_);
  sampling_timing_ = {};
  if (!decoded_ || config_.speculation.tokens == 0) return;
  decoded_->seconds = seconds;
  switch_.measured(*decoded_);
  decoded_.reset();
  counts_.speculation_changes = switch_.changes();
  counts_.speculation_gain = switch_.gain();
}

// Accepts sampled tokens, of which all but the last were drafts. cached: their keys are in the
// sequence's current blocks.
void Scheduler::verify(Progress& progress, const SequenceStep& step, std::span<OutputToken> chosen,
                       bool cached) {
  Sequence& s = *progress.sequence;
  const int64_t accepted = std::ssize(chosen) - 1;
  if (step.draft_tokens > 0) {
    ++counts_.drafts;
    counts_.draft_tokens += step.draft_tokens;
    counts_.accepted_tokens += accepted;
    s.draft_allowance.verified(step.draft_tokens, accepted, config_.speculation);
  } else {
    s.draft_allowance.without();
  }
  if (cached) s.computed += accepted;
  for (OutputToken& token : chosen) {
    accept(progress, std::move(token));
    if (progress.finish) return;
  }
  if (s.reader) read(progress);
}

void Scheduler::accept(Progress& progress, OutputToken token) {
  Sequence& s = *progress.sequence;
  if (token.id >= 0) s.tokens.push_back(token.id);
  progress.finish = token.id < 0 ? FinishReason::kError : finish_of(s);
  progress.tokens.push_back(std::move(token));
  if (progress.finish) cancel(s);
}

// Advances the rule by the step's tokens; look_ahead() has checked all but the last.
void Scheduler::read(Progress& progress) {
  std::vector<int32_t> ids;
  ids.reserve(progress.tokens.size());
  for (const OutputToken& token : progress.tokens) ids.push_back(token.id);
  Sequence& s = *progress.sequence;
  // State read once: the mask may become ready at any time, and both branches must agree.
  s.unsettled = s.reader->accept(ids) == RuleReader::State::kPending;
  if (!s.unsettled) conclude(progress);
}

// Ends the sequence if its rule allows no further token.
void Scheduler::conclude(Progress& progress) {
  Sequence& s = *progress.sequence;
  const RuleReader::State state = s.reader->state();
  if (state == RuleReader::State::kOpen) return;
  progress.lacks_memory = state == RuleReader::State::kRefused;
  const bool whole = !progress.lacks_memory && s.reader->is_whole();
  progress.nothing_left = whole && s.generated() < s.sampling_params->min_tokens;
  progress.finish = progress.lacks_memory || progress.nothing_left ? FinishReason::kError
                    : whole                                        ? FinishReason::kWhole
                                                                   : FinishReason::kLength;
  cancel(s);
}

std::optional<FinishReason> Scheduler::finish_of(const Sequence& s) const {
  if (s.generated() >= s.sampling_params->min_tokens &&
      std::ranges::find(s.sampling_params->stop_token_ids, s.tokens.back()) !=
          s.sampling_params->stop_token_ids.end())
    return FinishReason::kStop;
  if (s.generated() >= s.max_tokens || s.length() >= config_.max_model_len)
    return FinishReason::kLength;
  return {};
}

void Scheduler::leave(Sequence& s) {
  blocks_.release(s);
  drafter_->forget(s);
  free_slots_.push_back(s.slot);
  s.slot = -1;
}

}  // namespace trireme
