// Causal self-attention with grouped-query heads: fused QKV projection, norms of the heads of q and
// k (Qwen3), rotary embedding (Llama), core attention (transformer/layers/core_attention.h; some
// layers have a sliding window), output projection.
#pragma once

#include "transformer/layers/core_attention.h"
#include "transformer/layers/linear.h"

namespace trireme {

class Attention {
 public:
  Attention(const ModelConfig& config, const Layout& layout, ParameterList& list,
            const std::string& prefix, int block, int layer);

  // H and Hkv are the heads of this rank.
  struct Saved {
    Activation qkv;  // (T, (H + 2 Hkv) D): q and k rotated; with qk_norm: before norm and rotation
    Activation qk;   // (T, (H + Hkv) D), with qk_norm: q and k, normalised and rotated
    Activation q_rstd, k_rstd;  // (T, H), (T, Hkv), with qk_norm
    Activation out;             // (T, H D): output of the heads, input of the output projection
    CoreAttention::Saved heads;
  };
  // Input of backward_weight() from backward_input(): gradients of the outputs of the two
  // projections.
  struct Deferred {
    Activation d_qkv;  // (T, (H + 2 Hkv) D)
    AllTokens dy;      // (T, C)
  };

  // y = attention(x); x, y (T / split, C). cos_sin: the rotary table, absent without rotary
  // embedding or in a layer that it does not rotate. saved == nullptr: keeps nothing.
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x, const ConstTensor& cos_sin,
               Saved* saved) const;
  // Overwrites dx. dx, dy (T / split, C); dy must stay valid until backward_weight().
  Deferred backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                          const ConstTensor& cos_sin, const Saved& saved) const;
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x, const Saved& saved,
                       const Deferred& deferred) const;

  std::vector<ParamHandle> linear_weights() const { return {qkv_proj_.weight(), o_proj_.weight()}; }

 private:
  CoreAttention::Heads split(const Tensor& qkv) const;  // of a packed (T, (H + 2 Hkv) D)
  // Inputs of the core attention: `heads`, with q and k from `qk` where that is present.
  CoreAttention::Heads attended(CoreAttention::Heads heads, const Activation& qk) const;
  void normalise(Pass& pass, const CoreAttention::Heads& to, const CoreAttention::Heads& from,
                 Saved& saved) const;
  void normalise_backward(Pass& pass, const CoreAttention::Heads& d, const Saved& saved) const;

  int64_t heads_, kv_heads_, head_dim_;  // of this rank
  double norm_eps_, gamma_offset_;       // of the norms of q and k
  CoreAttention attention_;
  ParamHandle q_norm_ = -1, k_norm_ = -1;  // (D), with qk_norm
  ColumnLinear qkv_proj_;
  RowLinear o_proj_;
};

}  // namespace trireme
