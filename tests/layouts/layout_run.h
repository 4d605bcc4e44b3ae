// Trains a case on ranks that are threads and gathers what must not depend on the layout.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "parallel/comm/world.h"
#include "tests/layouts/layout_case.h"
#include "training/step/train_step.h"

namespace trireme::test {

struct LayoutResult {
  std::vector<double> losses, norms;  // of each step
  // Of each step, the whole gradient of every logical tensor.
  std::vector<std::map<std::string, std::vector<double>>> gradients;
  std::map<std::string, std::vector<double>> parameters;  // after the last step
  // Parameter that a rank stores with another value than its owner after the last step, or "".
  std::string replica;
  // Bytes moved in each group of more than one rank that the model uses, over the run, summed over
  // ranks.
  std::map<std::string, int64_t> traffic;  // "tp", "dp x cp", "cp ring", "cp heads", ...
  Traffic data_traffic;                    // of the dp x cp groups, summed over ranks
  struct Stored {                          // bytes of what a rank keeps
    int64_t values = 0, gradients = 0, states = 0;
  };
  std::vector<Stored> stored;  // of each rank
  // Of a run on one rank, on the CPU (tests/layouts/routing_margin.h); infinite without experts.
  double routing_margin = std::numeric_limits<double>::infinity();
};

// One rank of a run that is ready to take its first step.
struct LayoutRank {
  const RunConfig& config;
  Groups& groups;
  Ctx& ctx;
  TrainState& state;
  TrainStep& step;
  const ArenaPlan& plan;

  std::vector<MicroBatch> batches(int64_t step_number, bool packed) const;
  StepResult train(int64_t step_number, bool packed);
};
struct LayoutRunOptions {
  CommOptions comm;
  // Starts the ranks: run_threads(), or ranks that something happens to.
  std::function<void(int, const std::function<void(Communicator&)>&, const CommOptions&)> start =
      [](int ranks, const std::function<void(Communicator&)>& rank, const CommOptions& options) {
        run_threads(ranks, rank, options);
      };
  std::function<void(Groups&)> change;  // before anything is made of the groups
  // Faults in the parameters' specs: before the step reads them, and after.
  std::function<void(TrainState&, const Groups&)> before_step, after_step;
  bool gpu = false;  // ranks compute on the GPUs there are, in turn
  DeviceBackend backend = DeviceBackend::kAuto;
};
void on_ranks(const RunConfig& config, const LayoutRunOptions& options,
              const std::function<void(LayoutRank&)>& body);

// Puts what this rank owns of every logical tensor to its place in `into`. `array`, in the host's
// memory, is laid out as `map` says. Ranks take turns.
void place_owned(const ParameterStore& store, const ConstTensor& array, const ShardMap& map,
                 std::map<std::string, std::vector<double>>& into);
// Name of the first tensor that this rank stores with another value than its owner, who placed it
// in `whole`, or "". Every rank computes with what it stores, owner or not: no bit may differ.
std::string replica_difference(const ParameterStore& store, const ConstTensor& array,
                               const ShardMap& map,
                               const std::map<std::string, std::vector<double>>& whole);

LayoutResult run_layout(const LayoutCase& c, const LayoutRunOptions& options = {});
// The same for any configuration; its micro-batches hold one sequence.
LayoutResult run_training(const RunConfig& config, bool packed, const LayoutRunOptions& options);

// How far a result is from the reference: the largest relative differences of all steps, and where.
// A tensor is compared by the norm of the difference against its own norm plus a share of the
// global one: some gradients are zero by mathematics, and what rounding leaves of large terms that
// cancel is noise.
struct LayoutError {
  double loss = 0, norm = 0, gradient = 0, value = 0;  // value: parameters after the last step
  double first_gradient = 0;   // of the first step, whose parameters are the same bits
  std::string worst_gradient;  // "step 3: model.norm.weight"
  std::string mismatch;        // tensors missing or of another size: nothing else means anything
  std::string replica = {};  // a parameter that ranks store different values of after the last step
};
LayoutError compare_layouts(const LayoutResult& got, const LayoutResult& want, DType dtype);

// What rounding may do in five steps of eight layers: in float64 nothing to speak of.
LayoutError allowed_error(DType dtype);
// The same for later steps of models whose small gradients cancel more than that (those of
// normalised heads' weights, or of a norm before experts), where updates of Adam have turned
// rounding into other parameters: where one rank in `dtype` is further than a quarter of it from
// one rank in float64, four times that distance, but not more than the gradient itself, in
// gradients, their norm and the final values that they lead to. Gradients of the first step have no
// such excuse.
LayoutError allowed_error(DType dtype, const LayoutResult& one_rank,
                          const LayoutResult& in_float64);
// "" or what exceeds what is allowed.
std::string layout_difference(const LayoutResult& got, const LayoutResult& want, DType dtype);
std::string layout_difference(const LayoutResult& got, const LayoutResult& want, DType dtype,
                              const LayoutError& allowed);

}  // namespace trireme::test
