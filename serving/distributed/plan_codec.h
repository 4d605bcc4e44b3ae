// Step plans and their outcomes as bytes, for the way from the scheduler to the ranks and back
// (serving/scheduler/step_plan.h; the fields: plan_fields.h; how they lie: records.h).
//
// A plan that arrives is checked in full before a rank enters the model with it: inside a step a
// rank that stops alone takes all others with it. What is checked are numbers alone; there is
// nothing else in a plan.
#pragma once

#include <span>
#include <vector>

#include "serving/distributed/records.h"
#include "serving/scheduler/step_plan.h"

namespace trireme {

// What numbers of a plan may be.
struct PlanBounds {
  int64_t slots = 0;         // sequences at a time
  int64_t tokens = 0;        // of a step
  int64_t length = 0;        // tokens of a sequence
  int64_t blocks = 0;        // of the KV cache
  int64_t block_tokens = 0;  // of a block
  int64_t ids = 0;           // tokens have ids below
  int64_t mask_words = 0;    // of a row of StepPlan::masks
  int64_t adapters = 0;      // that are served beside one another

  // No plan within these bounds takes more bytes, unless one choice lists more than 2 Mi of ids.
  int64_t most_bytes() const;
};

std::vector<std::byte> encode_plan(const StepPlan& plan);
// BadMessage says what is wrong: too short, too long, a number out of bounds, parts that do not fit
// together.
StepPlan decode_plan(std::span<const std::byte> bytes, const PlanBounds& bounds);

// The plans of one scheduler, in their order: also checks what each says of those before it.
class PlanDecoder {
 public:
  explicit PlanDecoder(const PlanBounds& bounds);
  // BadMessage as decode_plan(), where it is not the plan behind the last one (the first may have
  // any number), and where it computes in a slot that nothing has entered, or expects other blocks
  // there than the plans before gave it.
  StepPlan decode(std::span<const std::byte> bytes);
  const PlanBounds& bounds() const { return bounds_; }

 private:
  static constexpr int32_t kNothing = -1;
  PlanBounds bounds_;
  uint64_t last_ = 0;
  std::vector<int32_t> blocks_;  // that each slot has; kNothing: nothing has entered it
};

std::vector<std::byte> encode_outcome(const StepOutcome& outcome);
// BadMessage also where it is not what has to come of this plan.
StepOutcome decode_outcome(std::span<const std::byte> bytes, const StepPlan& plan, int64_t ids);

}  // namespace trireme
