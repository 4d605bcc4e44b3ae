// MLP of a block: gated (Llama: down(silu(gate x) * up x); other units:
// transformer/layers/gated_unit.h), or GELU (GPT-2: proj(gelu(fc x))).
#pragma once

#include "transformer/layers/gated_unit.h"
#include "transformer/layers/linear.h"

namespace trireme {

class Mlp {
 public:
  Mlp(const ModelConfig& config, const Layout& layout, ParameterList& list,
      const std::string& prefix, int block);

  // F: this rank's part of the inner width.
  struct Saved {
    Activation inner;  // (T, 2F) gate and up, or (T, F) before GELU
    Activation act;    // (T, F) input of the second projection; absent: recomputed from inner
  };
  struct Deferred {
    Activation d_inner;  // gradient of Saved::inner
    AllTokens dy;        // (T, C)
  };

  // y = mlp(x); x, y (T / split, C). keep_act = false drops Saved::act (selective recompute).
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x, Saved* saved,
               bool keep_act) const;
  // Overwrites dx. Recomputes Saved::act if it was dropped; moves Saved::inner into the result. dx,
  // dy (T / split, C); dy must stay valid until backward_weight(), which also reads x.
  Deferred backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy, Saved& saved) const;
  // Forward and backward in halves, each with one product and its tensor-parallel collective, so
  // that other communication can overlap with them. forward_first() returns all of Saved.
  Saved forward_first(Pass& pass, const ConstTensor& x) const;
  void forward_second(Pass& pass, const Tensor& y, const Saved& saved) const;
  Deferred backward_second(Pass& pass, const ConstTensor& dy, Saved& saved) const;
  void backward_first(Pass& pass, const Tensor& dx, const Deferred& deferred) const;
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x, const Saved& saved,
                       const Deferred& deferred) const;

  std::vector<ParamHandle> linear_weights() const { return {first_.weight(), second_.weight()}; }

 private:
  Activation activate(Pass& pass, const ConstTensor& inner) const;
  bool gated_;  // else GELU
  GatedUnit unit_;
  int64_t width_;       // F
  ColumnLinear first_;  // gate and up, or fc
  RowLinear second_;    // down, or proj
};

}  // namespace trireme
