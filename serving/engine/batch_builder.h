// Builder of device batches from scheduler outputs (plans). Keeps the block tables of each slot,
// which plans change, and lists the rows of logits that a plan needs.
#pragma once

#include <vector>

#include "serving/engine/sampler.h"
#include "serving/engine/step_batch.h"
#include "serving/scheduler/scheduler_output.h"

namespace trireme {

// Row of logits that a plan needs.
struct LogitRow {
  size_t part;     // index of the sequence in the plan
  int32_t scored;  // id of the prompt token to score; -1: samples the next token
  // Draft token that the previous row must have sampled for this row to be valid. -1: always valid.
  int32_t draft_token;
  int64_t position;  // of the sampled or scored token
  // Both set on the sampling rank, then broadcast to all (ModelExecutor).
  OutputToken outcome;
  float seconds = 0;  // of sampling or scoring on the host; 0: not done there
};

class BatchBuilder {
 public:
  // adapters: for each LoRA adapter its inner columns in the stacked adapters
  // (transformer/formats/peft/stacked_adapters.h).
  BatchBuilder(const StepLimits& limits, std::vector<AdapterColumns> adapters);

  // Applies a plan to the slots and their tables: slot starts, dropped blocks and new ones.
  void take(const SchedulerOutput& plan);
  // Writes the plan's sequences [begin, end), then `padding` padding tokens, into `batch`. Call
  // take(plan) before. Sets `rows` to the logit rows that the sequences need, in batch order,
  // without those of padding. Of a table that the last write into `batch` put into the same row,
  // with the same first block, copies only the new blocks; of any other the whole table.
  // sampler: if every row samples, and RowSamplingParams alone determine the sampled token, the
  // batch gets them for all rows, padding included. nullptr: never.
  void write(Ctx& ctx, StepBatch& batch, const SchedulerOutput& plan, size_t begin, size_t end,
             int64_t padding, std::vector<LogitRow>& rows, const Sampler* sampler = nullptr);

 private:
  struct Slot {
    uint64_t name = 0;               // identity of the sequence in the slot, never reused
    std::vector<BlockTable> tables;  // by group of layers
    AdapterColumns columns;
  };
  static void change(BlockTable& table, const TableStep& step, std::span<const int32_t> blocks);
  std::vector<AdapterColumns> adapters_;
  size_t groups_;  // of layers
  std::vector<Slot> slots_;
  uint64_t entered_ = 0;
  std::vector<StepBatch::Part> parts_;
  void ask_sampling(const SchedulerOutput& plan, const std::vector<LogitRow>& rows,
                    const Sampler& sampler);

  std::vector<int32_t> wanted_, embedded_;
  std::vector<StepBatch::RowSampling> sampling_;
};

}  // namespace trireme
