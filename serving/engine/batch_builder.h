// From plans to batches: keeps the table of blocks of each slot, as plans extend it, and says which
// rows of logits a plan asks for.
#pragma once

#include <vector>

#include "serving/engine/step_batch.h"
#include "serving/engine/token_chooser.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

// A row of logits that a plan asks for.
struct LogitRow {
  size_t part;          // of the plan's sequences
  int32_t asked;        // a token of the prompt; -1: the next token is chosen
  int32_t guess;        // counts where this is what the row before chose; -1: always
  int64_t position;     // of the token behind the row
  ChosenToken outcome;  // where the logits are
  float seconds = 0;    // that choosing it took there
};

class BatchBuilder {
 public:
  // adapters: inner columns of each that sequences name
  // (transformer/formats/peft/stacked_adapters.h).
  BatchBuilder(const StepLimits& limits, std::vector<AdapterColumns> adapters);

  // The plan that comes: who enters a slot, and the new blocks of all.
  void take(const StepPlan& plan);
  // Its sequences [begin, end), and `padding` tokens behind theirs, into `batch`; `rows` are those
  // that they ask for, in the order of the batch's. Costs what has changed since the batch was last
  // written, beside a few numbers of each sequence and token. chooser: where all rows may be chosen
  // by their parameters alone, the batch has these.
  void write(Ctx& ctx, StepBatch& batch, const StepPlan& plan, size_t begin, size_t end,
             int64_t padding, std::vector<LogitRow>& rows, const TokenChooser* chooser = nullptr);

 private:
  struct Table {
    uint64_t name = 0;  // of the sequence that entered, never used twice
    std::vector<int32_t> blocks;
    AdapterColumns columns;
  };
  std::vector<AdapterColumns> adapters_;
  std::vector<Table> tables_;  // of the slots
  uint64_t entered_ = 0;
  std::vector<StepBatch::Part> parts_;
  void ask_sampling(const StepPlan& plan, const std::vector<LogitRow>& rows,
                    const TokenChooser& chooser);

  std::vector<int32_t> wanted_, embedded_;
  std::vector<StepBatch::RowSampling> sampling_;
};

}  // namespace trireme
