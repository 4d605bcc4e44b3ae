// Training of a case on thread ranks, and the results that must not depend on the layout.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "parallel/comm/world.h"
#include "parallel/outer/outer_sync.h"
#include "tests/layouts/layout_case.h"
#include "training/step/train_step.h"

namespace trireme::test {

struct LayoutResult {
  std::vector<double> losses, norms;  // of each step; with several sites those of the first
  // Whole gradient of every logical tensor, for each step.
  std::vector<std::map<std::string, std::vector<double>>> gradients;
  std::map<std::string, std::vector<double>> parameters;  // after the last step
  // Parameter of which a rank stores another value than its owner after the last step; "": none.
  std::string replica;
  // Bytes sent in each group of more than one rank that the model uses, over the whole run, summed
  // over ranks.
  std::map<std::string, int64_t> traffic;  // "tp", "dp x cp", "cp ring", "cp heads", ...
  Traffic data_traffic;                    // of the dp x cp groups, summed over ranks
  struct Stored {                          // bytes that a rank stores
    int64_t values = 0, gradients = 0, states = 0;
  };
  std::vector<Stored> stored;  // of each rank
  // Margin of a run on one rank, on the CPU (tests/layouts/routing_margin.h); infinite without
  // experts.
  double routing_margin = std::numeric_limits<double>::infinity();
};

// One rank of a run, ready for its first step, after OuterSync::begin(); in a site that is a job of
// its own before it.
struct LayoutRank {
  const RunConfig& config;
  Communicator& world;  // all sites of the job
  Groups& groups;       // of this rank's site
  Ctx& ctx;
  TrainState& state;
  TrainStep& step;
  const ArenaPlan& plan;
  OuterSync* outer;  // nullptr: one site
  const ArenaPlan& outer_plan;

  std::vector<MicroBatch> batches(int64_t step_number, bool packed) const;
  StepResult train(int64_t step_number, bool packed);  // and the round that follows it, if any
};
struct LayoutRunOptions {
  CommOptions comm;
  // Starts the ranks: run_threads(), or ranks with faults.
  std::function<void(int, const std::function<void(Communicator&)>&, const CommOptions&)> start =
      [](int ranks, const std::function<void(Communicator&)>& rank, const CommOptions& options) {
        run_threads(ranks, rank, options);
      };
  std::function<void(Groups&)> change;  // before anything is built from the groups
  // Exchange of a site that is a job of its own.
  std::function<std::unique_ptr<UpdateExchange>(Communicator&, TrainState&, Ctx&)> exchange;
  // Inject faults into the parameters' specs: before the step reads them, and after.
  std::function<void(TrainState&, const Groups&)> before_step, after_step;
  bool gpu = false;  // ranks compute on the available GPUs, in turn
  DeviceBackend backend = DeviceBackend::kAuto;
};
void on_ranks(const RunConfig& config, const LayoutRunOptions& options,
              const std::function<void(LayoutRank&)>& body);

// Copies what this rank owns of every logical tensor to its position in `into`. array: on the host,
// laid out by `map`. Ranks take turns.
void place_owned(const ParameterStore& store, const ConstTensor& array, const ShardMap& map,
                 std::map<std::string, std::vector<double>>& into);
// Name of the first tensor of which this rank stores another value than the owner's in `whole`, or
// "". Every rank computes with what it stores, owner or not, so that every bit must be equal.
std::string replica_difference(const ParameterStore& store, const ConstTensor& array,
                               const ShardMap& map,
                               const std::map<std::string, std::vector<double>>& whole);

LayoutResult run_layout(const LayoutCase& c, const LayoutRunOptions& options = {});
// The same, for any configuration; each micro-batch holds one sequence.
LayoutResult run_training(const RunConfig& config, bool packed, const LayoutRunOptions& options);

// Error of a result: largest relative differences to the reference over all steps, and their
// positions. A tensor is compared by the norm of the difference relative to its own norm plus a
// share of the global norm: some gradients are zero by mathematics, and the rounding errors of
// large terms that cancel are noise.
struct LayoutError {
  double loss = 0, norm = 0, gradient = 0, value = 0;  // value: parameters after the last step
  double first_gradient = 0;   // of the first step, whose parameters are bitwise equal
  std::string worst_gradient;  // "step 3: model.norm.weight"
  std::string mismatch;        // missing tensors or other sizes: all else is then meaningless
  std::string replica = {};  // parameter of which ranks store different values after the last step
};
LayoutError compare_layouts(const LayoutResult& got, const LayoutResult& want, DType dtype);

// Allowed effect of rounding in five steps of eight layers; in float64 close to zero.
LayoutError allowed_error(DType dtype);
// The same for later steps of models whose small gradients cancel more strongly (those of the
// weights of q and k norms, or of a norm before experts), where Adam's updates have turned rounding
// into different parameters. Where one rank in `dtype` differs from one rank in float64 by more
// than a quarter of the above, allows four times that difference, but not more than the gradient
// itself, in gradients, their norm and the resulting final values. Gradients of the first step get
// no such allowance.
LayoutError allowed_error(DType dtype, const LayoutResult& one_rank,
                          const LayoutResult& in_float64);
// "" or the differences beyond the allowed ones.
std::string layout_difference(const LayoutResult& got, const LayoutResult& want, DType dtype);
std::string layout_difference(const LayoutResult& got, const LayoutResult& want, DType dtype,
                              const LayoutError& allowed);

}  // namespace trireme::test
