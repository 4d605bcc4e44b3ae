// Micro-batches of a step whose queued work is recorded once and then runs again at the cost of one
// launch (engine/device/graph.h): the host queues a micro-batch of a hundred layers as fast as one
// of two.
//
// One rank's forward and backward of a micro-batch is the same work every time, but for the tokens,
// which it finds where the last copy put them; for the first micro-batch of a step, which
// overwrites gradients; for the number of sequences and the longest, which some grids and libraries
// go by; and with dropout for the step, whose number is an argument of the kernels. Each of these
// has a record of its own, made when it comes a second time (libraries then have made their
// choices); the records used last are kept. With dropout a record serves one step only and is made
// where enough of that step follows.
//
// Not recorded: what waits for the host or another rank within a micro-batch. why_not() names it.
#pragma once

#include <string>
#include <vector>

#include "engine/device/graph.h"
#include "parallel/pipeline/program.h"
#include "training/config/run_config.h"
#include "training/step/train_stage.h"

namespace trireme {

class MicroBatchGraphs {
 public:
  // Everything must outlive this object. program: of this rank.
  MicroBatchGraphs(const RunConfig& config, const Groups& groups, const RankProgram& program,
                   ParameterStore& store, TrainStage& stage, Ctx& ctx);
  // Of a run that asks for graphs on a GPU and gets none: what is in the way. Else "".
  const std::string& why_not() const { return why_not_; }
  // Whether run() takes the executor's place in the work that comes.
  bool serve() const { return on_ && !ctx_.planning() && !ctx_.observer; }
  // Forward and backward of all micro-batches of step number `step`, which the stage has begun.
  // When it is queued, all before the one before it have run through.
  void run(int64_t step);

 private:
  // What a record depends on.
  struct Key {
    bool first = false;  // of a step
    int64_t tokens = 0, offsets = 0, uniform_length = 0, longest = 0;
    const void* place = nullptr;  // of the tokens
    int64_t arena = 0;            // its capacity: memory that grows moves
    int64_t moves = 0;            // Context::library_moves
    int64_t step = -1;            // with dropout
    bool operator==(const Key&) const = default;
  };
  struct Record {
    Key key;
    bool queued = false;                      // once, as it is
    cuda::Graph graph;                        // absent: not recorded so far
    int64_t allocation = 0, allocations = 0;  // of the arena, in the step where it was recorded
    std::vector<int> blocks;                  // in the order in which their gradients were done
    std::vector<bool> written;                // gradients, after it
  };
  Key key_of(int micro_batch, int64_t step) const;
  Record& record_of(const Key& key, int64_t step);
  void queue(int micro_batch);
  void make(Record& record, int micro_batch);
  bool on_ = false, dropout_ = false;
  std::string why_not_;
  int64_t micro_batches_;
  int64_t served_;  // micro-batches of a step that may be recorded, from the first
  ParameterStore& store_;
  TrainStage& stage_;
  Ctx& ctx_;
  std::vector<Record> records_;  // the one used last first
  int64_t made_ = 0, replayed_ = 0;
  // Records that are dropped may still run: with the step in which that was.
  std::vector<std::pair<int64_t, cuda::Graph>> dropped_;
};

}  // namespace trireme
