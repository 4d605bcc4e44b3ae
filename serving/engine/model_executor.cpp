#include "serving/engine/model_executor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>

#include "engine/core/parallel_for.h"
#include "engine/ops/gemm/gemm.h"
#include "parallel/device.h"
#include "parallel/pipeline/make_schedule.h"
#include "transformer/pass/mode_scope.h"

namespace trireme {
namespace {

constexpr int64_t kMaxLogitRows = 256;  // on the host at a time
constexpr size_t kMaxPlans = 512;
using Clock = std::chrono::steady_clock;

constexpr size_t kRowNumbers = 5;  // of a row in share_outcomes(), without its top entries
constexpr int32_t kNotChosen = kNothingLeft - 1;  // row after a rejected draft token

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int stages_of(const Groups* groups) { return groups == nullptr ? 1 : groups->pp->size(); }

int64_t choices_of(const Model& model, int64_t asked) {
  const int64_t choices = asked > 0 ? asked : model.config().vocab_size;
  TRIREME_CHECK(choices <= model.config().vocab_size, choices,
                " ids to sample from, expected at most ", model.config().vocab_size);
  return choices;
}

}  // namespace

ModelExecutor::ModelExecutor(const Model& model, ParameterStore& params, Ctx& ctx,
                             const Groups* groups, const ExecutorConfig& config)
    : ctx_(ctx),
      groups_(groups),
      model_(model),
      limits_(config.limits),
      params_dtype_(params.dtype()),
      sampler_(limits_.sequences, choices_of(model, config.vocab_size)),
      builder_(limits_, config.adapters),
      stage_(
          model, params, ctx, groups, limits_, stages_of(groups),
          std::max(limits_.sequences, std::min(limits_.tokens, kMaxLogitRows)),
          [this](int m, int64_t first, std::span<const float> logits) {
            read_logits(m, first, logits);
          },
          sampler_.choices(),
          [this](int m, int64_t first, std::span<const int32_t> ids,
                 std::span<const double> logprobs) { read_tokens(m, first, ids, logprobs); }),
      rows_(static_cast<size_t>(stages_of(groups))) {
  ctx_.gemm->batch_invariant = limits_.deterministic;
}

StepOutput ModelExecutor::execute(const SchedulerOutput& plan) {
  plan_ = &plan;
  total_sampling_seconds_ = 0;
  for (const SlotStart& start : plan.starts) sampler_.start(start);
  builder_.take(plan);
  write_batches(plan);
  const ModeScope mode(ctx_, Mode::kInfer);
  try {
    run();
    stage_.end();
  } catch (...) {
    stage_.abandon();
    throw;
  }
  // After the loss of a rank, a GPU computes on with undefined data in place of that rank's.
  if (groups_ != nullptr && ctx_.gpu != nullptr) groups_->world.check_alive();
  if (ctx_.gpu != nullptr) log_notes(*ctx_.gpu);
  share_outcomes();
  share_embeddings();
  return collect(plan);
}

void ModelExecutor::write_batches(const SchedulerOutput& plan) {
  const auto sequences = std::ssize(plan.sequences);
  micro_batches_ = static_cast<int>(std::min<int64_t>(stages_of(groups_), sequences));
  const int64_t padding = padding_of(plan);
  for (int m = 0; m < micro_batches_; ++m)
    builder_.write(ctx_, stage_.batch(m), plan, static_cast<size_t>(sequences * m / micro_batches_),
                   static_cast<size_t>(sequences * (m + 1) / micro_batches_), padding,
                   rows_[static_cast<size_t>(m)], samples_there() ? &sampler_ : nullptr);
}

// With several ranks one of them samples on its host; the kernel takes float32 only.
bool ModelExecutor::samples_there() const {
  return ctx_.gpu != nullptr && alone() && params_dtype_ != DType::kF64;
}

bool ModelExecutor::alone() const {
  return groups_ == nullptr || groups_->layout.tp.size * groups_->layout.pp.size == 1;
}

// Pads to a small set of batch sizes to record: 1, 2, 4, 8, then multiples of 8.
int64_t ModelExecutor::padding_of(const SchedulerOutput& plan) const {
  const auto sequences = std::ssize(plan.sequences);
  if (!can_record() || std::ssize(plan.tokens) != sequences) return 0;
  int64_t padded = 1;
  while (padded < sequences) padded += std::min<int64_t>(padded, 8);
  return std::min(padded, limits_.sequences) - sequences;
}

// Not with experts (the host reads their token counts), other ranks (the host takes part in their
// communication) or an observer (which runs on the host).
bool ModelExecutor::can_record() const {
  return ctx_.gpu != nullptr && !ctx_.gpu->synchronous && alone() && !ctx_.observer &&
         model_.config().moe.experts == 0;
}

void ModelExecutor::run() {
  PassShape shape;
  for (int m = 0; m < micro_batches_; ++m) {
    const StepBatch& batch = stage_.batch(m);
    const Tokens& tokens = batch.tokens();
    const ConstTensor& chunks = tokens.chunks.cu_q;
    shape.emplace_back(tokens.count, tokens.cached.context_lens.size(0),
                       chunks.present() ? chunks.size(0) : 0, batch.row_count(),
                       batch.embedded_count(), tokens.cached.new_sequences, batch.samples());
  }
  const ArenaPlan& plan = plan_for(shape);
  const Tokens& tokens = stage_.batch(0).tokens();
  const bool one_token_each = tokens.count == tokens.cached.context_lens.size(0);
  if (!can_record() || !one_token_each || stage_.batch(0).rows().present())
    return run_planned(plan);
  // The first pass runs directly, so that libraries choose their kernels; the second is recorded;
  // later ones are replayed. A replay takes the host as long for a hundred layers as for two.
  if (std::exchange(library_moves_, ctx_.gpu->library_moves) != ctx_.gpu->library_moves)
    graphs_.clear();
  const auto [at, first] = graphs_.try_emplace(
      {tokens.count, stage_.batch(0).max_context_len(), stage_.batch(0).samples()});
  if (first) return run_planned(plan);
  if (!at->second.present()) at->second = cuda::capture(*ctx_.gpu, [&] { run_planned(plan); });
  cuda::replay(*ctx_.gpu, at->second);
  stage_.replayed();
}

const ArenaPlan& ModelExecutor::plan_for(const PassShape& shape) {
  if (plans_.size() >= kMaxPlans && !plans_.contains(shape)) plans_.clear();
  const auto [at, fresh] = plans_.try_emplace(shape);
  if (!fresh) return at->second;
  try {
    at->second = planned_pass();
    if (at->second.capacity > reserved_) {
      ctx_.arena.reserve(at->second.capacity);
      reserved_ = at->second.capacity;
      graphs_.clear();  // they have the old addresses
    }
  } catch (...) {
    plans_.erase(at);
    throw;
  }
  return at->second;
}

ArenaPlan ModelExecutor::planned_pass() {
  ctx_.arena.begin_planning();
  try {
    pass();
    return ctx_.arena.end_planning();
  } catch (...) {
    ctx_.arena.abandon_step();
    throw;
  }
}

namespace {

// Divides `tokens` over `parts` sequences of at most `length`: evenly, or one token each and the
// rest in the first.
std::vector<int64_t> shares_of(int64_t tokens, int64_t parts, int64_t length, bool alike) {
  std::vector<int64_t> out;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t even = tokens / parts + (i < tokens % parts ? 1 : 0);
    const int64_t share = alike ? even : i == 0 ? tokens - parts + 1 : 1;
    out.push_back(std::min(share, length));
  }
  return out;
}

}  // namespace

// Plans steps with the maximum of tokens and logit rows: of new prompts, and of the ends of the
// longest sequences, whose attention needs the most partial results. Each is planned with the
// tokens divided evenly over all sequences, with one long sequence and single tokens of the others,
// and with one sequence alone, which is not divided into micro-batches. Where attention has chunks,
// also of sequences whose new tokens begin at the end of one, and so are in the most chunks.
int64_t ModelExecutor::largest_step_bytes() {
  const int64_t sequences = std::min(limits_.sequences, limits_.tokens);
  const ModeScope mode(ctx_, Mode::kInfer);
  int64_t largest = 0;
  std::vector<PlannedPast> pasts = {PlannedPast::kNone, PlannedPast::kLongest};
  if (model_.config().attention_chunk > 0) pasts.push_back(PlannedPast::kChunkEnd);
  for (const PlannedPast past : pasts)
    for (const auto& [parts, alike] :
         {std::pair{sequences, true}, std::pair{sequences, false}, std::pair{int64_t{1}, true}})
      largest = std::max(
          largest, planned_bytes(shares_of(limits_.tokens, parts, limits_.length, alike), past));
  return largest;
}

// Tokens before the new ones of a sequence in a planned step.
int64_t ModelExecutor::planned_past(int64_t new_tokens, PlannedPast past) const {
  const int64_t longest = limits_.length - new_tokens;
  if (past != PlannedPast::kChunkEnd) return past == PlannedPast::kNone ? 0 : longest;
  const int64_t chunk = model_.config().attention_chunk, edge = (longest + 1) / chunk * chunk;
  return edge > 0 ? edge - 1 : longest;
}

// Tables for `tokens` tokens after `past` others, all of the first block.
std::vector<BlockTable> ModelExecutor::planned_tables(int64_t past, int64_t tokens) const {
  std::vector<BlockTable> tables;
  for (const int64_t window : limits_.windows) {
    BlockTable& table = tables.emplace_back();
    table.first = dropped_blocks(past, window, limits_.block_tokens);
    table.blocks.resize(
        static_cast<size_t>(ceil_div(past + tokens, limits_.block_tokens) - table.first));
  }
  return tables;
}

// Activation bytes of a step with shares[i] tokens of sequence i.
int64_t ModelExecutor::planned_bytes(const std::vector<int64_t>& shares, PlannedPast past) {
  const std::vector<int32_t> ids(static_cast<size_t>(limits_.length));
  const int64_t sequences = std::ssize(shares);
  std::vector<std::vector<BlockTable>> tables;  // of each sequence
  for (const int64_t share : shares)
    tables.push_back(planned_tables(planned_past(share, past), share));
  micro_batches_ = static_cast<int>(std::min<int64_t>(stages_of(groups_), sequences));
  for (int m = 0; m < micro_batches_; ++m) {
    std::vector<StepBatch::Part> parts;
    int64_t tokens = 0;
    for (int64_t i = sequences * m / micro_batches_; i < sequences * (m + 1) / micro_batches_;
         ++i) {
      const int64_t share = shares[static_cast<size_t>(i)];
      parts.push_back({.ids = std::span(ids).first(static_cast<size_t>(share)),
                       .past = planned_past(share, past),
                       .tables = tables[static_cast<size_t>(i)]});
      tokens += share;
    }
    std::vector<int32_t> rows(static_cast<size_t>(std::min(tokens, stage_.logit_rows())));
    std::iota(rows.begin(), rows.end(), 0);
    stage_.batch(m).write(ctx_, parts, rows, 0);
  }
  return planned_pass().capacity;
}

void ModelExecutor::run_planned(const ArenaPlan& plan) {
  ctx_.arena.begin_step(plan);
  try {
    pass();
  } catch (...) {
    ctx_.arena.abandon_step();
    throw;
  }
  ctx_.arena.end_step();
}

void ModelExecutor::pass() {
  const int stages = stages_of(groups_);
  if (stages == 1) {
    stage_.forward(0, 0, {});
    return;
  }
  auto executor = executors_.find(micro_batches_);
  if (executor == executors_.end()) {
    const Schedule schedule = make_schedule(ScheduleKind::kForwardOnly, stages, 1, micro_batches_);
    executor = executors_.try_emplace(micro_batches_, schedule, *groups_->pp).first;
  }
  executor->second.run(stage_, ctx_);
}

void ModelExecutor::read_tokens(int m, int64_t first, std::span<const int32_t> ids,
                                std::span<const double> logprobs) {
  std::vector<LogitRow>& rows = rows_[static_cast<size_t>(m)];
  // Rows beyond the requested ones are padding.
  const int64_t count = std::min(std::ssize(ids), std::ssize(rows) - first);
  for (int64_t i = 0; i < count; ++i) {
    LogitRow& row = rows[static_cast<size_t>(first + i)];
    const auto at = static_cast<size_t>(i);
    if (row.draft_token >= 0 &&
        rows[static_cast<size_t>(first + i - 1)].outcome.id != row.draft_token)
      row.outcome.id = kNotChosen;
    else
      row.outcome = sampler_.record(plan_->sequences[row.part].slot,
                                    {.id = ids[at], .logprob = logprobs[at]});
  }
}

void ModelExecutor::read_logits(int m, int64_t first, std::span<const float> logits) {
  // All tensor-parallel ranks have the logits; the first one samples.
  if (groups_ != nullptr && groups_->layout.tp.index > 0) return;
  const int64_t width = model_.config().vocab_size, words = ceil_div(width, 32);
  std::vector<LogitRow>& rows = rows_[static_cast<size_t>(m)];
  // Rows beyond the requested ones are padding.
  const int64_t count = std::min(std::ssize(logits) / width, std::ssize(rows) - first);
  // Draft rows depend on the previous row: the thread that samples that one samples these, too.
  const auto waits = [&](int64_t i) {
    return i > 0 && i < count && rows[static_cast<size_t>(first + i)].draft_token >= 0;
  };
  const Clock::time_point begun = Clock::now();
  parallel_for(ctx_.threads, count, 1, [&](int64_t begin, int64_t end) {
    while (waits(begin)) ++begin;
    while (waits(end)) ++end;
    for (int64_t i = begin; i < end; ++i) {
      LogitRow& row = rows[static_cast<size_t>(first + i)];
      if (row.draft_token >= 0 &&
          rows[static_cast<size_t>(first + i - 1)].outcome.id != row.draft_token) {
        row.outcome.id = kNotChosen;
        continue;
      }
      const Clock::time_point row_begun = Clock::now();
      const SequenceStep& step = plan_->sequences[row.part];
      const auto of = logits.subspan(static_cast<size_t>(i * width), static_cast<size_t>(width));
      const int64_t draft_index = row.position - (step.past + step.tokens - step.draft_tokens);
      const uint32_t* mask =
          step.mask < 0 ? nullptr : plan_->masks.data() + (step.mask + draft_index) * words;
      row.outcome = row.scored >= 0 ? sampler_.score(step.slot, row.scored, of)
                                    : sampler_.sample(step.slot, row.position, of, mask);
      row.seconds = static_cast<float>(seconds_since(row_begun));
    }
  });
  total_sampling_seconds_ += seconds_since(begun);
}

int64_t ModelExecutor::logprobs_of(const LogitRow& row) const {
  const SamplingParams& params = sampler_.sampling_params(plan_->sequences[row.part].slot);
  return std::max(row.scored >= 0 ? params.prompt_logprobs : params.top_logprobs, 0);
}

void ModelExecutor::share_outcomes() {
  if (alone()) return;
  const GroupCoord &tp = groups_->layout.tp, &pp = groups_->layout.pp;
  // Per row: token, its log-probability, its rank, its sampling time, number of top entries, top
  // entries. Then the step's sampling time.
  std::vector<double> message;
  const auto each = [&](const auto& row_and_numbers) {
    size_t at = 0;
    for (int m = 0; m < micro_batches_; ++m)
      for (LogitRow& row : rows_[static_cast<size_t>(m)]) {
        const auto most = static_cast<size_t>(logprobs_of(row));
        row_and_numbers(row, at, most);
        at += kRowNumbers + 2 * most;
      }
    return at;
  };
  message.resize(each([](LogitRow&, size_t, size_t) {}));
  if (message.empty()) return;
  message.push_back(total_sampling_seconds_);
  const bool chose = pp.index == pp.size - 1 && tp.index == 0;
  if (chose)
    each([&](const LogitRow& row, size_t at, size_t) {
      message[at] = row.outcome.id;
      message[at + 1] = row.outcome.logprob;
      message[at + 2] = static_cast<double>(row.outcome.rank);
      message[at + 3] = static_cast<double>(row.seconds);
      message[at + 4] = static_cast<double>(row.outcome.top.size());
      for (size_t i = 0; i < row.outcome.top.size(); ++i) {
        message[at + kRowNumbers + 2 * i] = row.outcome.top[i].id;
        message[at + kRowNumbers + 2 * i + 1] = row.outcome.top[i].logprob;
      }
    });
  broadcast(message);
  if (chose) return;
  each([&](LogitRow& row, size_t at, size_t most) {
    row.outcome = {.id = static_cast<int32_t>(message[at]),
                   .logprob = message[at + 1],
                   .rank = static_cast<int64_t>(message[at + 2])};
    row.seconds = static_cast<float>(message[at + 3]);
    const auto count = std::min(most, static_cast<size_t>(message[at + 4]));
    for (size_t i = 0; i < count; ++i)
      row.outcome.top.push_back({static_cast<int32_t>(message[at + kRowNumbers + 2 * i]),
                                 message[at + kRowNumbers + 2 * i + 1]});
  });
  total_sampling_seconds_ = message.back();
}

// Broadcasts from the sampling rank to all.
void ModelExecutor::broadcast(std::vector<double>& message) {
  const GroupCoord &tp = groups_->layout.tp, &pp = groups_->layout.pp;
  const Tensor view(message.data(), DType::kF64, Shape{std::ssize(message)});
  if (pp.index == pp.size - 1 && tp.size > 1) groups_->tp->broadcast(view, 0);
  if (pp.size > 1) groups_->pp->broadcast(view, pp.size - 1);
}

void ModelExecutor::share_embeddings() {
  embeddings_.clear();
  const bool head = groups_ == nullptr || groups_->layout.pp.index == groups_->layout.pp.size - 1;
  const auto width = static_cast<size_t>(model_.config().hidden_size);
  for (int m = 0; m < micro_batches_; ++m)
    for (int64_t i = 0; i < stage_.batch(m).embedded_count(); ++i)
      embeddings_.push_back(head ? stage_.embedding(m, i) : std::vector<float>(width));
  if (alone() || embeddings_.empty()) return;
  std::vector<double> message;
  for (const std::vector<float>& one : embeddings_)
    message.insert(message.end(), one.begin(), one.end());
  broadcast(message);
  auto from = message.begin();
  for (std::vector<float>& one : embeddings_)
    for (float& x : one) x = static_cast<float>(*from++);
}

StepOutput ModelExecutor::collect(const SchedulerOutput& plan) {
  StepOutput result;
  result.number = plan.number;
  result.embeddings = std::move(embeddings_);
  result.sampling_seconds.assign(plan.sequences.size(), 0);
  result.total_sampling_seconds = total_sampling_seconds_;
  size_t asked_of = plan.sequences.size();
  for (int m = 0; m < micro_batches_; ++m)
    for (LogitRow& row : rows_[static_cast<size_t>(m)]) {
      result.sampling_seconds[row.part] += row.seconds;
      if (row.scored < 0) {
        if (row.outcome.id == kNotChosen) continue;
        result.sampled.push_back(std::move(row.outcome));
        continue;
      }
      if (std::exchange(asked_of, row.part) != row.part) result.prompt.emplace_back();
      result.prompt.back().push_back(std::move(row.outcome));
    }
  return result;
}

}  // namespace trireme
