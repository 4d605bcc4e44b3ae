// CUDA graphs of micro-batches: the queued work of a micro-batch is captured once and then replayed
// at the cost of one launch (engine/device/graph.h), so that the host queues a micro-batch of a
// hundred layers as fast as one of two.
//
// One rank's forward and backward of a micro-batch is the same work every time, with few
// exceptions. Tokens differ: they are read from a fixed place that each replay fills. Each of these
// cases has a separate record:
//   - the first micro-batch of a step, which overwrites gradients
//   - a number of sequences and a longest length, on which some grids and libraries depend
//   - with dropout a step, whose number is a kernel argument
// A record is captured when its case occurs a second time (libraries have made their choices by
// then). The most recently used records are kept. With dropout a record is valid for one step only,
// and is captured if enough micro-batches of that step follow.
//
// Work that waits for the host or another rank within a micro-batch is not captured; why_not()
// names it.
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
  // All arguments must outlive this object. program: of this rank.
  MicroBatchGraphs(const RunConfig& config, const Groups& groups, const RankProgram& program,
                   ParameterStore& store, TrainStage& stage, Ctx& ctx);
  // Reason why a run that enables graphs on a GPU gets none; else "".
  const std::string& why_not() const { return why_not_; }
  // True if run() replaces the executor for the next work.
  bool serve() const { return on_ && !ctx_.planning() && !ctx_.observer; }
  // Runs forward and backward of all micro-batches of step number `step`, which the stage has
  // begun. Once it is queued, all steps before the previous one have completed.
  void run(int64_t step);

 private:
  // Properties on which a record depends.
  struct Key {
    bool first = false;  // micro-batch of a step
    int64_t tokens = 0, offsets = 0, uniform_length = 0, longest = 0;
    const void* place = nullptr;  // address of the tokens
    int64_t arena = 0;            // arena capacity: memory that grows moves
    int64_t moves = 0;            // Context::library_moves
    int64_t step = -1;            // only with dropout
    bool operator==(const Key&) const = default;
  };
  struct Record {
    Key key;
    bool queued = false;                      // has been queued once without capture
    cuda::Graph graph;                        // absent: not captured yet
    int64_t allocation = 0, allocations = 0;  // of the arena, at the capture
    std::vector<int> blocks;                  // in the order in which their gradients were done
    std::vector<bool> written;                // gradients written after it
  };
  Key key_of(int micro_batch, int64_t step) const;
  Record& record_of(const Key& key, int64_t step);
  void queue(int micro_batch);
  void make(Record& record, int micro_batch);
  bool on_ = false, dropout_ = false;
  std::string why_not_;
  int64_t micro_batches_;
  int64_t served_;  // micro-batches of a step that may be captured, from the first
  ParameterStore& store_;
  TrainStage& stage_;
  Ctx& ctx_;
  std::vector<Record> records_;  // most recently used first
  int64_t made_ = 0, replayed_ = 0;
  // Dropped records, which may still be running, with the step in which they were dropped.
  std::vector<std::pair<int64_t, cuda::Graph>> dropped_;
};

}  // namespace trireme
