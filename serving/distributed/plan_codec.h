// Serialization of scheduler outputs (plans) and step outputs, between the scheduler and the ranks
// (serving/scheduler/scheduler_output.h). Field lists: plan_fields.h; byte format:
// parallel/comm/control/records.h.
//
// A rank checks the whole plan before it runs the model, because a rank that fails alone inside a
// step blocks all others. A plan contains only numbers, so only numbers are checked.
#pragma once

#include <span>
#include <vector>

#include "parallel/comm/control/records.h"
#include "serving/scheduler/scheduler_output.h"

namespace trireme {

// Upper bounds on the numbers in a plan.
struct PlanBounds {
  int64_t slots = 0;                   // sequences running at the same time
  int64_t tokens = 0;                  // per step
  int64_t length = 0;                  // per sequence
  int64_t blocks = 0;                  // KV blocks in the cache
  int64_t block_tokens = 0;            // tokens per KV block
  int64_t ids = 0;                     // token ids are below this
  int64_t mask_words = 0;              // words per row of SchedulerOutput::masks
  int64_t adapters = 0;                // adapters served at the same time
  std::vector<int64_t> windows = {0};  // of the cache's groups of layers (BatchingConfig)

  // Upper bound on the encoded bytes of a plan within these bounds. Allows 8 MiB for each
  // SamplingParams, for example 2 Mi token ids in its lists.
  int64_t max_bytes() const;
};

std::vector<std::byte> encode_plan(const SchedulerOutput& plan);
// BadMessage with the reason: too short, too long, a number out of bounds, or inconsistent parts.
SchedulerOutput decode_plan(std::span<const std::byte> bytes, const PlanBounds& bounds);

// Decoder for the plans of one scheduler, in order. Also checks each plan against the ones before
// it.
class PlanDecoder {
 public:
  explicit PlanDecoder(const PlanBounds& bounds);
  // BadMessage as in decode_plan(), and when a plan contradicts earlier ones:
  //  - its number is not that of the previous plan + 1 (the first may have any number above 0);
  //  - a sequence runs in a slot that no sequence has entered;
  //  - a table drops fewer blocks than before, or keeps another number than it then has.
  SchedulerOutput decode(std::span<const std::byte> bytes);
  const PlanBounds& bounds() const { return bounds_; }

 private:
  static constexpr int32_t kNothing = -1;
  struct Held;
  static void check_kept(Held& held, const TableStep& table, int32_t slot);
  PlanBounds bounds_;
  uint64_t last_ = 0;
  struct Held {
    int32_t first = 0, end = kNothing;  // range of block numbers; end kNothing: no sequence
  };
  std::vector<Held> tables_;  // (slots, groups)
};

std::vector<std::byte> encode_output(const StepOutput& outcome);
// As decode_plan(), and BadMessage when the result does not match the plan. ids: as in PlanBounds.
StepOutput decode_output(std::span<const std::byte> bytes, const SchedulerOutput& plan,
                         int64_t ids);

}  // namespace trireme
