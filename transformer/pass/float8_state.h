// The linear layers of blocks in 8-bit floats (Micikevicius et al. 2022), scaled as NVIDIA's
// Transformer Engine does, whose words the configuration's section fp8 uses.
//
//   y = x w^T       x and w in E4M3
//   dx = dy w       dy in E5M2 (hybrid) or E4M3, w in E4M3
//   dw = dy^T x     dy and x as above
// An operand is scaled and rounded before each product (engine/ops/float8.h); sums are float32.
// Results, what backward keeps, gradients and the optimizer's weights stay in the types they have
// without it, and so do embedding, norms, attention itself, routers, routed experts and the head.
// Evaluation does without.
//
//   delayed      one scale for a tensor, from its largest magnitude in the last `history` steps. The
//                first step has none and scales as tensorwise does
//   tensorwise   one scale for a tensor, from its largest magnitude now, over the ranks that share the
//                micro-batch (tensor and context parallel)
//   blockwise    128 neighbours along the product's inner size share a scale in activations and
//                gradients, blocks of 128 by 128 in weights
#pragma once

#include <vector>

#include "engine/ops/float8_gemm.h"
#include "parallel/comm/communicator.h"
#include "parallel/parameter_store.h"

namespace trireme {

struct Pass;

enum class Float8Recipe : uint8_t { kDelayed, kTensorwise, kBlockwise };
struct Float8Config {
  bool enabled = false;
  bool hybrid = true;
  Float8Recipe recipe = Float8Recipe::kDelayed;
  int64_t history = 16;  // steps
  int margin = 0;        // scales are smaller by 2^margin
};

class Float8State {
 public:
  // weights: the first parameter of each linear layer's weight; `list` has their names.
  Float8State(const Float8Config& config, const ParameterList& list,
              std::vector<ParamHandle> weights);
  // Where ctx computes; nothing is remembered yet.
  void allocate(Ctx& ctx);

  // The products of linear_forward() and its backward (engine/ops/gemm.h) for the layer with this
  // weight. Inner sizes and columns are multiples of 16, rows of 4.
  void forward(Pass& pass, ParamHandle weight, const Tensor& y, const ConstTensor& x,
               const ConstTensor& w, const ConstTensor& bias);
  void backward_input(Pass& pass, ParamHandle weight, const Tensor& dx, const ConstTensor& dy,
                      const ConstTensor& w);
  void backward_weight(Pass& pass, ParamHandle weight, const Tensor& dw, const ConstTensor& dy,
                       const ConstTensor& x, bool accumulate);

  // Ends a step: the largest magnitudes, over all ranks that have these layers, go into the
  // histories and give the scales of the next one. Where scalars (kStepScalarsBytes uint8, a
  // StepScalars) say that the optimizer skipped the step, it leaves no trace.
  void finish_step(Ctx& ctx, Communicator& tensor_parallel, Communicator& data_parallel,
                   const ConstTensor& scalars);

  // What must be saved with the parameters to go on exactly: of each layer's three tensors the
  // scale (1) and the history (H), "model.layers.0.mlp.down_proj.weight.gradient_scale". Empty
  // unless delayed. The same on all ranks that have the layer.
  struct Named {
    std::string name;
    Tensor tensor;
  };
  std::vector<Named> saved() const;
  bool remembers() const { return remembers_; }
  void set_remembers() { remembers_ = true; }  // what saved() shows has been read

 private:
  enum class Role : int { kInput, kWeight, kGradient };
  struct Operand {
    Activation codes, inverse;
    Float8Matrix matrix;
  };
  int64_t layers() const { return std::ssize(weights_); }
  int64_t row_of(ParamHandle weight, Role role) const;
  Float8Format format_of(Role role) const;
  Tensor part(int64_t first, int64_t columns) const;  // (3 L, columns) of the block
  Tensor amaxes() const { return part(0, 1); }
  Tensor scales() const { return part(1, 1); }
  Tensor histories() const { return part(2, config_.history); }
  // x (R, C), or its transpose. first_use: of the tensor in this pass.
  Operand quantize(Pass& pass, ParamHandle weight, Role role, const ConstTensor& x, bool transposed,
                   bool first_use) const;
  ConstTensor scale_of(Pass& pass, ParamHandle weight, Role role, const ConstTensor& x,
                       bool first_use, Activation& amax, Activation& own) const;

  Float8Config config_;
  std::vector<ParamHandle> weights_;
  std::vector<std::string> names_;
  std::vector<int64_t> layer_of_;  // of a handle; -1: no linear layer
  bool remembers_ = false;
  Buffer block_;  // float32, rows of all inputs, then weights, then gradients
};

}  // namespace trireme
