// Causal self-attention with grouped-query heads: fused QKV projection, rotary embedding (Llama),
// attention over packed sequences, over context-parallel ranks or a KV cache, output projection.
#pragma once

#include "engine/ops/attention.h"
#include "transformer/linear.h"
#include "transformer/model_config.h"

namespace trireme {

class Attention {
 public:
  Attention(const ModelConfig& config, const Layout& layout, ParameterList& list,
            const std::string& prefix, int block, int layer);

  // H and Hkv are the heads of this rank.
  struct Saved {
    Activation qkv;                   // (T, (H + 2 Hkv) D), after the rotary embedding
    Activation out;                   // (T, H D): heads' outputs, input of the output projection
    Activation lse;                   // (H, T)
    ContextAttention::Saved context;  // in its place, with context parallelism
  };
  // What backward_weight() needs of backward_input(): gradients of the two projections' outputs.
  struct Deferred {
    Activation d_qkv;  // (T, (H + 2 Hkv) D)
    AllTokens dy;      // (T, C)
  };

  // y = attention(x); x, y (T / split, C). cos_sin is the rotary table, absent without rotary embedding.
  // saved may be null: nothing is kept.
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x, const ConstTensor& cos_sin,
               Saved* saved) const;
  // dx overwrites. dx, dy (T / split, C); dy must stay until backward_weight().
  Deferred backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                          const ConstTensor& cos_sin, const Saved& saved) const;
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x, const Saved& saved,
                       const Deferred& deferred) const;

  std::vector<ParamHandle> linear_weights() const { return {qkv_proj_.weight(), o_proj_.weight()}; }

 private:
  struct Heads {  // views of a packed (T, (H + 2 Hkv) D) tensor
    Tensor q, k, v;
  };
  Heads split(const Tensor& qkv) const;
  AttentionArgs op_args(const Pass& pass) const;
  void attend(Pass& pass, const Tensor& out, const Heads& heads, Saved* saved) const;
  void attend_backward(Pass& pass, const Heads& d, const ConstTensor& d_out,
                       const Saved& saved) const;

  int64_t heads_, kv_heads_, head_dim_;  // of this rank
  int64_t first_head_, total_heads_;     // its place among all query heads
  double dropout_;
  int layer_;
  ColumnLinear qkv_proj_;
  RowLinear o_proj_;
};

}  // namespace trireme
