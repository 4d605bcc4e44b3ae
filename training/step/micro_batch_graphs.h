// CUDA graphs of micro-batches (engine/device/graph.h): forward and backward of a micro-batch are
// captured once and then replayed with one launch, so that the host's cost of a micro-batch does
// not grow with the number of layers.
//
// Micro-batches of one rank differ in few respects only. Each replay copies its tokens to a fixed
// buffer, from which the graph reads them. Where micro-batches differ in one of the following, each
// case has a graph (a record) of its own:
//   - the first micro-batch of a step overwrites gradients, the others add to them
//   - numbers of sequences and max_seqlen determine some grids and library calls
//   - with dropout the number of the step is a kernel argument
// A record is captured when its case occurs for the second time, because libraries choose their
// algorithms in the first. The most recently used records are kept. With dropout a record is valid
// for one step only, and is captured if enough micro-batches of that step follow.
//
// A run whose micro-batches wait for the host or for another rank uses no graphs; why_not() gives
// the reason.
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
  // All arguments must outlive this object. program: the pipeline schedule of this rank.
  MicroBatchGraphs(const RunConfig& config, const Groups& groups, const RankProgram& program,
                   ParameterStore& store, TrainStage& stage, Ctx& ctx);
  // Reason why this run uses no graphs although cuda.graphs enables them; else "".
  const std::string& why_not() const { return why_not_; }
  // True if the caller must use run() instead of the pipeline executor.
  bool active() const { return on_ && !ctx_.planning() && !ctx_.observer; }
  // Queues forward and backward of all micro-batches of step `step`, after TrainStage::begin().
  // Precondition: step - 2 and all earlier steps have completed.
  void run(int64_t step);

 private:
  // Values that a captured graph depends on.
  struct Key {
    bool first = false;  // first micro-batch of a step
    int64_t tokens = 0, offsets = 0, chunk_offsets = 0, uniform_length = 0, max_seqlen = 0;
    const void* place = nullptr;  // address of the fixed buffer
    int64_t arena = 0;            // capacity of the arena: if it grows, its memory moves
    int64_t moves = 0;            // Context::library_moves
    int64_t step = -1;            // number of the step, with dropout; else -1
    bool operator==(const Key&) const = default;
  };
  struct Record {
    Key key;
    bool queued = false;                      // the case occurred once, without capture
    cuda::Graph graph;                        // absent: not captured yet
    int64_t allocation = 0, allocations = 0;  // number of the first arena allocation, and count
    std::vector<int> blocks;                  // store blocks, in order of their complete gradients
    std::vector<bool> written;                // ParameterStore::written() after the micro-batch
  };
  Key key_of(int micro_batch, int64_t step) const;
  Record& record_of(const Key& key, int64_t step);
  void queue(int micro_batch);
  void make(Record& record, int micro_batch);
  bool on_ = false, dropout_ = false;
  std::string why_not_;
  int64_t micro_batches_;
  int64_t graphed_;  // only the first `graphed_` micro-batches of a step use graphs
  ParameterStore& store_;
  TrainStage& stage_;
  Ctx& ctx_;
  std::vector<Record> records_;  // most recently used first
  int64_t made_ = 0, replayed_ = 0;
  // Graphs of dropped records, which may still be running, and the step in which they were dropped.
  std::vector<std::pair<int64_t, cuda::Graph>> dropped_;
};

}  // namespace trireme
