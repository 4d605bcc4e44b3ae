#include "training/step/micro_batch_graphs.h"

#include <algorithm>
#include <utility>

namespace trireme {
namespace {

constexpr size_t kMaxRecords = 16;
// Replays that make a capture worthwhile: to capture and instantiate a graph takes the host about
// three times as long as to queue the work.
constexpr int64_t kWorthRecording = 4;

// True if each micro-batch runs forward and backward before the next one starts.
bool one_after_the_other(const RankProgram& program) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Instruction& in = program.steps[i].instruction;
    const bool forward = i % 2 == 0;
    if (in.kind != (forward ? InstructionKind::kForward : InstructionKind::kBackward) ||
        in.chunk != 0 || in.micro_batch != static_cast<int>(i / 2))
      return false;
  }
  return true;
}

std::string in_the_way(const RunConfig& config, const Groups& groups, const RankProgram& program,
                       const Ctx& ctx, int64_t graphed) {
  const Layout& layout = groups.layout;
  if (ctx.gpu->synchronous) return "cuda.synchronous waits after every launch";
  if (config.model.moe.experts > 0) return "the host reads the number of tokens of each expert";
  if (learns_from_pairs(config.finetune)) return "the host computes the loss of preferences";
  if (config.float8.enabled) return "the first fp8 step differs from the others";
  if (layout.pp.size > 1) return "pipeline stages exchange tensors within a micro-batch";
  if (layout.tp.size > 1 || layout.cp.size > 1)
    return "tensor- and context-parallel ranks exchange tensors within a micro-batch";
  if (config.zero.stage >= 2) return "this ZeRO stage reduces gradients after each micro-batch";
  if (!one_after_the_other(program)) return "the schedule interleaves micro-batches";
  if (graphed == 0) return "a step has one micro-batch, which reduces gradients during backward";
  return "";
}

}  // namespace

MicroBatchGraphs::MicroBatchGraphs(const RunConfig& config, const Groups& groups,
                                   const RankProgram& program, ParameterStore& store,
                                   TrainStage& stage, Ctx& ctx)
    : micro_batches_(config.gradient_accumulation_steps),
      // The last micro-batch reduces gradients block by block during backward.
      graphed_(micro_batches_ - (groups.world.size() > 1 ? 1 : 0)),
      store_(store),
      stage_(stage),
      ctx_(ctx) {
  const ModelConfig& model = config.model;
  dropout_ = std::max({model.residual_dropout, model.embedding_dropout, model.attention_dropout,
                       config.finetune.lora.dropout}) > 0;
  if (ctx.gpu == nullptr || !config.cuda_graphs) return;
  why_not_ = in_the_way(config, groups, program, ctx, graphed_);
  on_ = why_not_.empty();
}

MicroBatchGraphs::Key MicroBatchGraphs::key_of(int micro_batch, int64_t step) const {
  const Tokens tokens = stage_.tokens(micro_batch);
  return {.first = micro_batch == 0,
          .tokens = tokens.count,
          .offsets = tokens.cu_q.numel(),
          .chunk_offsets = tokens.chunks.cu_q.present() ? tokens.chunks.cu_q.numel() : 0,
          .uniform_length = tokens.uniform_length,
          .max_seqlen = tokens.max_seqlen,
          .place = stage_.fixed_buffer(),
          .arena = ctx_.arena.capacity(),
          .moves = ctx_.gpu->library_moves,
          .step = dropout_ ? step : -1};
}

// Returns the record of a key, moved to the front; adds one if there is none.
MicroBatchGraphs::Record& MicroBatchGraphs::record_of(const Key& key, int64_t step) {
  auto found = std::ranges::find(records_, key, &Record::key);
  if (found == records_.end()) {
    if (records_.size() == kMaxRecords) {
      dropped_.emplace_back(step, std::move(records_.back().graph));
      records_.pop_back();
    }
    records_.emplace_back().key = key;
    found = records_.end() - 1;
  }
  std::rotate(records_.begin(), found, found + 1);
  return records_.front();
}

void MicroBatchGraphs::queue(int micro_batch) {
  stage_.forward(0, micro_batch, {});
  stage_.backward_input(0, micro_batch, {});
  stage_.backward_weight(0, micro_batch);
}

void MicroBatchGraphs::make(Record& record, int micro_batch) {
  TRIREME_CHECK(ctx_.arena.in_use() == 0, "activations are allocated between two micro-batches");
  record.allocation = ctx_.arena.allocations();
  stage_.begin_recording();
  record.graph = cuda::capture(*ctx_.gpu, [&] { queue(micro_batch); });
  record.blocks = stage_.end_recording();
  record.allocations = ctx_.arena.allocations() - record.allocation;
  record.written = store_.written();
}

void MicroBatchGraphs::run(int64_t step) {
  std::erase_if(dropped_, [&](const auto& dropped) { return dropped.first + 2 <= step; });
  for (int64_t i = 0; i < micro_batches_; ++i) {
    const int micro_batch = static_cast<int>(i);
    if (i >= graphed_) {
      queue(micro_batch);
      continue;
    }
    Record& record = record_of(key_of(micro_batch, step), step);
    const bool made = record.graph.present();
    // If micro-batches have more cases than records are kept, records may be dropped before their
    // capture has paid off.
    const bool pays = made_ < 2 * std::ssize(records_) || replayed_ >= kWorthRecording * made_;
    const bool worth = dropout_ ? micro_batches_ - i >= kWorthRecording : pays;
    if (!made && (!std::exchange(record.queued, true) || !worth)) {
      queue(micro_batch);
      continue;
    }
    ++(made ? replayed_ : made_);
    if (made)
      ctx_.arena.skip(record.allocation, record.allocations);
    else
      make(record, micro_batch);
    stage_.copy_to_fixed_buffer(micro_batch);
    cuda::replay(*ctx_.gpu, record.graph);
    store_.set_written(record.written);
    stage_.count_blocks(record.blocks);
  }
}

}  // namespace trireme
