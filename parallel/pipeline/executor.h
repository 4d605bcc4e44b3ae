// Pipeline executor: runs a schedule on one rank of a pipeline group. Depends on stages and
// messages, not on layers.
#pragma once

#include "engine/ops/context.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/program.h"

namespace trireme {

// Computation of a rank: its chunks of the model. Chunk and micro-batch numbers are those of the
// schedule. An activation passed or returned belongs to the receiver; destroying it frees its
// memory.
class PipelineStage {
 public:
  virtual ~PipelineStage() = default;
  // input: absent at the first chunk of the model. Returns the output; absent at the last chunk
  // (where the loss is). In a training schedule it saves what backward needs, until
  // backward_weight.
  virtual Activation forward(int chunk, int micro_batch, Activation input) = 0;
  // d_output: gradient of the output; absent at the last chunk. Returns the gradient of the input;
  // absent at the first chunk.
  virtual Activation backward_input(int chunk, int micro_batch, Activation d_output) = 0;
  // Called later, or immediately after backward_input where the schedule has whole backwards.
  virtual void backward_weight(int chunk, int micro_batch) = 0;
  // Allocates the message that forward (gradient: backward_input) of this chunk and micro-batch
  // will receive, with the size that its peer returns. Not called where it is absent.
  virtual Activation allocate_message(int chunk, int micro_batch, bool gradient) = 0;
};

struct PipelineReport {
  double seconds = 0;        // of the whole run on this rank
  double idle_seconds = 0;   // part of `seconds` spent waiting for messages, received or sent
  double first_seconds = 0;  // part of idle_seconds before the first instruction: pipeline fill
  int peak_in_flight = 0;    // as in Timeline::Rank
};

class PipelineExecutor {
 public:
  // Derives this rank's program. The group has schedule.stages ranks, in the order of the stages.
  // With a GPU attached, opens the message paths, collectively; InputError if a custom schedule
  // uses the messages between two ranks in an order other than that of sending. For evaluation and
  // serving: make_schedule(ScheduleKind::kForwardOnly, stages, chunks, m).
  PipelineExecutor(const Schedule& schedule, Communicator& group);

  // One pass over all micro-batches. Calls of the stage, allocations and frees have the same order
  // in every run; a planning run (ctx.planning()) differs only in sending and awaiting no messages.
  // If the stage throws while messages are in transfer, all operations of the run end with that
  // reason (Communicator::abort), because the memory of the messages is about to be freed.
  PipelineReport run(PipelineStage& stage, Ctx& ctx) const;

  const RankProgram& program() const { return program_; }

 private:
  Communicator& group_;
  bool trains_;
  RankProgram program_;
};

}  // namespace trireme
