// Causal self-attention with grouped-query heads: fused QKV projection, norms of q and k
// (transformer/layers/query_key_norm.h), rotary embedding (Llama) of each head or of its first
// elements, core attention (transformer/layers/core_attention.h; some layers have a sliding
// window), output projection.
#pragma once

#include "engine/ops/attention/rotary.h"
#include "transformer/layers/core_attention.h"
#include "transformer/layers/linear.h"
#include "transformer/layers/query_key_norm.h"

namespace trireme {

class Attention {
 public:
  Attention(const ModelConfig& config, const Layout& layout, ParameterList& list,
            const std::string& prefix, int block, int layer);

  // H and Hkv are the heads of this rank.
  struct Saved {
    // (T, (H + 2 Hkv) D): q and k rotated; with qk_norm: as the norm reads them. Absent after an
    // all-to-all of heads (Ulysses) without qk_norm.
    Activation qkv;
    // (T, (H + Hkv) D), with qk_norm: q and k, normalized and rotated. Absent after an all-to-all.
    Activation qk;
    QueryKeyNorm::Saved norm;  // with qk_norm
    Activation out;            // (T, H D): output of the heads, input of the output projection
    CoreAttention::Saved heads;
  };
  // Input of backward_weight() from backward_input(): gradients of the outputs of the two
  // projections.
  struct Deferred {
    Activation d_qkv;  // (T, (H + 2 Hkv) D)
    AllTokens dy;      // (T, C)
  };

  // y = attention(x); x, y (T / split, C). cos_sin: the layer's rotary table (P, D'), or (2, P, D')
  // if queries use their own, the second; absent: no rotation. In a layer without rotary positions
  // it applies to queries alone (Llama 4: a factor). saved == nullptr: keeps nothing.
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x, const ConstTensor& cos_sin,
               Saved* saved) const;
  // Overwrites dx and writes the gradients of norms and sinks. dx, dy (T / split, C); dy must stay
  // valid until backward_weight(), which also reads x of forward().
  Deferred backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                          const ConstTensor& cos_sin, const Saved& saved) const;
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x, const Saved& saved,
                       const Deferred& deferred) const;

  // As Mixer::linear_weights() (transformer/layers/mixer.h).
  std::vector<ParamHandle> linear_weights() const { return {qkv_proj_.weight(), o_proj_.weight()}; }

 private:
  CoreAttention::Heads split(const Tensor& qkv) const;  // of a packed (T, (H + 2 Hkv) D)
  // Inputs of the core attention: `heads`, with q and k from `qk` where that is present.
  CoreAttention::Heads attended(CoreAttention::Heads heads, const Activation& qk) const;
  // Rotates q and k, adjacent in `qk` (T, (H + Hkv) D); inverse: back.
  void rotate(Pass& pass, const Tensor& qk, const ConstTensor& cos_sin, bool inverse) const;

  int64_t heads_, kv_heads_, head_dim_;  // of this rank
  int64_t rotary_dim_;                   // first elements of each head that are rotated
  bool rotates_;                         // has rotary positions
  bool norm_after_rope_;
  RotaryPairs pairs_;
  CoreAttention attention_;
  std::unique_ptr<QueryKeyNorm> norm_;  // with qk_norm
  ColumnLinear qkv_proj_;
  RowLinear o_proj_;
};

}  // namespace trireme
