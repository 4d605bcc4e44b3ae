// FP8 training of the blocks' linear layers (Micikevicius et al. 2022), scaled like NVIDIA's
// Transformer Engine, whose terms the configuration's section fp8 uses.
//
//   y = x w^T       x and w in E4M3
//   dx = dy w       dy in E5M2 (hybrid) or E4M3, w in E4M3
//   dw = dy^T x     dy and x as above
//
// Each operand is scaled and rounded before its product (engine/ops/quantized/float8.h); sums are
// float32. Results, saved activations, gradients and the optimizer's weights keep the dtypes they
// have without FP8. So do embedding, norms, core attention, routers, routed experts and the head.
// Evaluation does not use FP8.
//
//   delayed      one scale per tensor, from its largest magnitude in the last `history` steps. The
//                first step has no history and scales like tensorwise
//   tensorwise   one scale per tensor, from its current largest magnitude over the ranks that share
//                the micro-batch (tensor and context parallel)
//   blockwise    activations and gradients: one scale per 128 consecutive elements along the
//                product's inner dimension; weights: one scale per block of 128 by 128
#pragma once

#include <vector>

#include "engine/ops/quantized/float8_gemm.h"
#include "parallel/comm/communicator.h"
#include "parallel/parameter_store.h"

namespace trireme {

struct Pass;

enum class Float8Recipe : uint8_t { kDelayed, kTensorwise, kBlockwise };
struct Float8Config {
  bool enabled = false;
  bool hybrid = true;  // gradients dy in E5M2, else in E4M3
  Float8Recipe recipe = Float8Recipe::kDelayed;
  int64_t history = 16;  // steps; delayed only
  int margin = 0;        // scales are smaller by 2^margin
};

class Float8State {
 public:
  // list: the model's parameters. weights: the first parameter of each linear layer's matrix.
  Float8State(const Float8Config& config, const ParameterList& list,
              std::vector<ParamHandle> weights);
  // Allocates the state on the device of ctx, with empty histories.
  void allocate(Ctx& ctx);

  // The products of linear_forward() and its backward (engine/ops/gemm/gemm.h) for the layer with
  // this weight. InputError unless inner sizes and columns are multiples of 16 and, for blockwise,
  // rows are multiples of 4.
  void forward(Pass& pass, ParamHandle weight, const Tensor& y, const ConstTensor& x,
               const ConstTensor& w, const ConstTensor& bias);
  void backward_input(Pass& pass, ParamHandle weight, const Tensor& dx, const ConstTensor& dy,
                      const ConstTensor& w);
  void backward_weight(Pass& pass, ParamHandle weight, const Tensor& dw, const ConstTensor& dy,
                       const ConstTensor& x, bool accumulate);

  // Ends a step: appends the largest magnitudes over all ranks that have these layers to the
  // histories, which determine the scales of the next step. Discards them instead if `scalars`
  // (kStepScalarsBytes uint8, a StepScalars) reports that the optimizer skipped the step. No effect
  // unless delayed.
  void finish_step(Ctx& ctx, Communicator& tensor_parallel, Communicator& data_parallel,
                   const ConstTensor& scalars);

  // State that a checkpoint needs for an exact resume: scale (1) and history
  // (Float8Config::history) of each layer's input, weight and gradient, float32 on the device:
  // "model.layers.0.mlp.down_proj.weight.gradient_scale" and "..._amax_history".
  // Empty unless delayed. The same on all ranks that have the layer.
  struct Named {
    std::string name;
    Tensor tensor;
  };
  std::vector<Named> saved() const;
  // Returns whether the histories are in use: after a step that was not skipped, or a load.
  bool has_history() const { return has_history_; }
  void set_has_history() { has_history_ = true; }  // call after loading the tensors of saved()

 private:
  enum class Role : int { kInput, kWeight, kGradient };
  struct Operand {
    Activation codes, inverse;
    Float8Matrix matrix;
  };
  int64_t layers() const { return std::ssize(weights_); }
  int64_t row_of(ParamHandle weight, Role role) const;
  Float8Format format_of(Role role) const;
  // (3 L, columns) of block_, after `first` values per row.
  Tensor part(int64_t first, int64_t columns) const;
  Tensor amaxes() const { return part(0, 1); }
  Tensor scales() const { return part(1, 1); }
  Tensor histories() const { return part(2, config_.history); }
  // Quantizes x (R, C), or its transpose. first_use: first use of the tensor in this pass.
  Operand quantize(Pass& pass, ParamHandle weight, Role role, const ConstTensor& x, bool transposed,
                   bool first_use) const;
  ConstTensor scale_of(Pass& pass, ParamHandle weight, Role role, const ConstTensor& x,
                       bool first_use, Activation& amax, Activation& own) const;

  Float8Config config_;
  std::vector<ParamHandle> weights_;
  std::vector<std::string> names_;
  std::vector<int64_t> layer_of_;  // by handle; -1: not a linear layer
  bool has_history_ = false;
  // float32: amaxes, scales, histories; in each, the rows of all inputs, weights, then gradients.
  Buffer block_;
};

}  // namespace trireme
