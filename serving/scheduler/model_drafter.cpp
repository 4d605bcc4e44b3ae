#include "serving/scheduler/model_drafter.h"

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/tensor.h"

namespace trireme {
namespace {

// Drafts need no log-probabilities.
std::shared_ptr<const SamplingParams> without_logprobs(
    const std::shared_ptr<const SamplingParams>& params) {
  if (params->top_logprobs < 0 && params->prompt_logprobs < 0) return params;
  auto plain = std::make_shared<SamplingParams>(*params);
  plain->top_logprobs = plain->prompt_logprobs = -1;
  return plain;
}

}  // namespace

ModelDrafter::ModelDrafter(std::unique_ptr<StepExecutor> executor, const DraftLimits& limits)
    : executor_(std::move(executor)),
      limits_(limits),
      pool_(limits.blocks, limits.block_tokens, 0) {  // no secret: nothing is published
  TRIREME_CHECK(limits.sequences > 0 && limits.step_tokens >= limits.sequences, "sequences is ",
                limits.sequences, " and step_tokens ", limits.step_tokens,
                ", expected step_tokens >= sequences >= 1");
  for (int64_t slot = limits.sequences; slot-- > 0;)
    free_slots_.push_back(static_cast<int32_t>(slot));
}

void ModelDrafter::forget(const Sequence& sequence) {
  const auto at = drafts_.find(&sequence);
  if (at == drafts_.end()) return;
  for (const int32_t block : at->second.blocks) pool_.release(block);
  free_slots_.push_back(at->second.slot);
  drafts_.erase(at);
}

// Draft of a sequence, trimmed to the cached tokens that were accepted. nullptr: no slot is free.
ModelDrafter::Draft* ModelDrafter::draft_of(const Sequence& s) {
  const auto found = drafts_.find(&s);
  if (found == drafts_.end()) {
    if (free_slots_.empty()) return nullptr;
    Draft& draft = drafts_[&s];
    draft.slot = free_slots_.back();
    free_slots_.pop_back();
    draft.sampling_params = without_logprobs(s.sampling_params);
    return &draft;
  }
  Draft& draft = found->second;
  int64_t same = draft.length;
  for (const int32_t id : draft.drafted) {
    if (same >= s.length() || s.tokens[static_cast<size_t>(same)] != id) break;
    ++same;
  }
  draft.drafted.clear();
  // The last token is computed in any case: the next one is sampled from its logits.
  draft.computed = std::min({draft.computed, same, s.length() - 1});
  return &draft;
}

bool ModelDrafter::give_blocks(Draft& draft, int64_t tokens) {
  const int64_t more = ceil_div(tokens, limits_.block_tokens) - std::ssize(draft.blocks);
  if (more > pool_.free()) return false;
  for (int64_t n = 0; n < more; ++n) draft.blocks.push_back(pool_.take());
  return true;
}

std::vector<ModelDrafter::Line> ModelDrafter::lines_of(std::span<const DraftRequest> requests) {
  std::vector<Line> lines;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Sequence& s = *requests[i].sequence;
    // The last draft token is sampled, but not computed.
    int64_t count = std::min(requests[i].count, limits_.length - s.length() + 1);
    if (count <= 0) {
      forget(s);
      continue;
    }
    Draft* draft = draft_of(s);
    if (draft == nullptr) continue;
    if (!give_blocks(*draft, s.length() + count - 1)) {
      if (!give_blocks(*draft, s.length())) continue;
      count = 1;
    }
    draft->length = s.length();
    lines.push_back({i, draft, s.length() - draft->computed, count});
  }
  std::ranges::stable_sort(lines, {}, &Line::left);
  return lines;
}

// Penalties need the sequence's tokens again: the executor's history ends with the last draft.
void ModelDrafter::start(SchedulerOutput& plan, Draft& draft, const Sequence& s) const {
  const bool needs_history = draft.sampling_params->needs_history();
  if (draft.started && !needs_history) return;
  draft.started = true;
  draft.known_blocks = 0;
  SlotStart& entry = plan.starts.emplace_back();
  entry.slot = draft.slot;
  entry.prompt_tokens = s.prompt_tokens;
  entry.generated = s.generated();
  entry.draw = s.draw;
  entry.sampling_params = draft.sampling_params;
  if (needs_history) entry.history = s.tokens;
}

void ModelDrafter::append(SchedulerOutput& plan, Draft& draft, std::span<const int32_t> tokens,
                          bool samples) {
  SequenceStep step;
  step.slot = draft.slot;
  step.first_token = static_cast<int32_t>(plan.tokens.size());
  step.tokens = static_cast<int32_t>(tokens.size());
  step.past = static_cast<int32_t>(draft.computed);
  step.samples = samples;
  plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
  plan.tables.push_back(
      {.kept_blocks = static_cast<int32_t>(draft.known_blocks),
       .first_block = static_cast<int32_t>(plan.blocks.size()),
       .blocks = static_cast<int32_t>(std::ssize(draft.blocks) - draft.known_blocks)});
  plan.blocks.insert(plan.blocks.end(), draft.blocks.begin() + draft.known_blocks,
                     draft.blocks.end());
  plan.sequences.push_back(step);
  draft.computed += std::ssize(tokens);
  draft.known_blocks = std::ssize(draft.blocks);
}

void ModelDrafter::run(SchedulerOutput& plan, std::vector<Line>& lines,
                       std::vector<std::vector<int32_t>>& drafts) {
  plan.number = ++plans_;
  const StepOutput result = executor_->execute(plan);
  TRIREME_CHECK(result.sampled.size() == lines.size(), result.sampled.size(),
                " sampled tokens, expected one for each of ", lines.size(), " drafts");
  size_t n = 0;
  std::erase_if(lines, [&](const Line& line) {
    const int32_t id = result.sampled[n++].id;
    if (id < 0) return true;  // logits not finite: ends this draft only
    std::vector<int32_t>& of = drafts[line.request];
    of.push_back(id);
    return std::ssize(of) >= line.count ||
           std::ranges::find(line.draft->sampling_params->stop_token_ids, id) !=
               line.draft->sampling_params->stop_token_ids.end();
  });
}

std::vector<std::vector<int32_t>> ModelDrafter::propose(std::span<const DraftRequest> requests) {
  std::vector<std::vector<int32_t>> drafts(requests.size());
  SchedulerOutput first;
  std::vector<Line> whole;
  int64_t budget = limits_.step_tokens;
  for (const Line& line : lines_of(requests)) {
    const int64_t tokens = std::min(line.left, budget);
    if (tokens == 0) break;
    budget -= tokens;
    const Sequence& s = *requests[line.request].sequence;
    start(first, *line.draft, s);
    const auto from = static_cast<size_t>(line.draft->computed);
    append(first, *line.draft, std::span(s.tokens).subspan(from, static_cast<size_t>(tokens)),
           tokens == line.left);
    if (tokens == line.left) whole.push_back(line);
  }
  if (!first.empty()) run(first, whole, drafts);
  while (!whole.empty()) {
    SchedulerOutput plan;
    for (const Line& line : whole) {
      const int32_t last = drafts[line.request].back();
      line.draft->drafted.push_back(last);
      append(plan, *line.draft, {&last, 1}, true);
    }
    run(plan, whole, drafts);
  }
  return drafts;
}

}  // namespace trireme
