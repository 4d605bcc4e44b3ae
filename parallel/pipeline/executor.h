// Runs a schedule on one rank of a pipeline group. It knows stages and messages, and no layer.
#pragma once

#include "engine/ops/context.h"
#include "parallel/comm/communicator.h"
#include "parallel/pipeline/program.h"

namespace trireme {

// What a rank computes: its chunks of the model. Chunks and micro-batches are those of the
// schedule. Activations handed over belong to who gets them: destroying one gives its memory back.
class PipelineStage {
 public:
  virtual ~PipelineStage() = default;
  // input: absent at the first chunk of the model. Returns the output; absent at the last chunk
  // (where the loss is). In a training schedule it saves what backward needs, until
  // backward_weight.
  virtual Activation forward(int chunk, int micro_batch, Activation input) = 0;
  // d_output: gradient of the output; absent at the last chunk. Returns that of the input; absent
  // at the first chunk.
  virtual Activation backward_input(int chunk, int micro_batch, Activation d_output) = 0;
  // Later, or at once where the schedule has whole backwards.
  virtual void backward_weight(int chunk, int micro_batch) = 0;
  // Memory for the message forward (gradient: backward_input) of this chunk and micro-batch will
  // get, of the size its peer returns. Not called where that is absent.
  virtual Activation allocate_hidden(int chunk, int micro_batch, bool gradient) = 0;
};

struct PipelineReport {
  double seconds = 0;        // of the whole run on this rank
  double idle_seconds = 0;   // of them waiting for messages
  double first_seconds = 0;  // of those before the first instruction: the pipeline fills
  int peak_in_flight = 0;    // as in Timeline::Rank
};

class PipelineExecutor {
 public:
  // Derives this rank's program. The group has schedule.stages ranks, in the order of the stages.
  // Where a GPU is attached it opens the paths of the messages, collectively; InputError where a
  // custom schedule uses messages between two ranks in another order than they are sent. For
  // evaluation and serving: make_schedule(ScheduleKind::kForwardOnly, stages, chunks, m).
  PipelineExecutor(const Schedule& schedule, Communicator& group);

  // One pass over all micro-batches. Calls of the stage, allocations and releases come in the same
  // order in every run; in a planning run (ctx.planning()) no message is sent or awaited, and the
  // rest is the same. A stage that throws while messages are under way makes all operations of the
  // run end with that reason (Communicator::abort), because their memory is about to go.
  PipelineReport run(PipelineStage& stage, Ctx& ctx) const;

  const RankProgram& program() const { return program_; }

 private:
  Communicator& group_;
  bool trains_;
  RankProgram program_;
};

}  // namespace trireme
