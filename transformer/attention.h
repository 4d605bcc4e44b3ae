// Causal self-attention with grouped-query heads: fused QKV projection, rotary embedding (Llama),
// attention (transformer/attention_heads.h), output projection.
#pragma once

#include "transformer/attention_heads.h"
#include "transformer/linear.h"

namespace trireme {

class Attention {
 public:
  Attention(const ModelConfig& config, const Layout& layout, ParameterList& list,
            const std::string& prefix, int block, int layer);

  // H and Hkv are the heads of this rank.
  struct Saved {
    Activation qkv;  // (T, (H + 2 Hkv) D), after the rotary embedding
    Activation out;  // (T, H D): heads' outputs, input of the output projection
    AttentionHeads::Saved heads;
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
  AttentionHeads::Heads split(const Tensor& qkv) const;  // of a packed (T, (H + 2 Hkv) D)

  int64_t heads_, kv_heads_, head_dim_;  // of this rank
  AttentionHeads attention_;
  ColumnLinear qkv_proj_;
  RowLinear o_proj_;
};

}  // namespace trireme
