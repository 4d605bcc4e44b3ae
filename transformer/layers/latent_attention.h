// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", arXiv 2405.04434, section 2.1;
// DeepSeek-V3).
//
// Keys and values of all heads are projected from one latent vector per token. Positions enter
// through a rotated part of each query and one rotated key shared by all heads:
//   c_q = norm(x Wqa^T)              (Rq)       q_a_proj, q_a_layernorm
//   q   = c_q Wqb^T                  (H, D)     q_b_proj; without Rq: q = x Wq^T, q_proj
//   [c | k_r] = x Wkva^T             (Rkv + Dr) kv_a_proj_with_mqa
//   [k_n | v] = norm(c) Wkvb^T       (H, Dn + Dv)  kv_a_layernorm, kv_b_proj
//   q_h = [q_n | rotate(q_r)]        k_h = [k_n | rotate(k_r)]       D = Dn + Dr
//   y = concat_h(attention(q_h, k_h, v_h)) Wo^T
// The norms are RMSNorm with eps = 1e-6, independent of the model's norm_eps, as in HuggingFace's
// and DeepSeek's code. The softmax scale is the configuration's: with YaRN it has a factor
// mscale^2.
//
// The attention op requires one width for queries, keys and values, so that values are padded with
// zeros from Dv to D. At the published sizes (D = 192, Dv = 128) the products cost 6/5 of the work.
// In exchange these heads use every existing path (packed sequences, context-parallel rings,
// Ulysses, KV caches, tensor cores).
//
// Tensor parallelism splits the up-projections and Wo by heads. The down-projections and norms are
// replicated; each rank computes them for its share of the residual stream. With sequence
// parallelism the ranks gather the latents, Rq + Rkv + Dr elements per token, instead of C. A KV
// cache holds expanded keys and padded values, D elements each per head, not the latents.
//
// The down-projections have biases if the configuration has attention_bias.
#pragma once

#include <memory>

#include "engine/ops/attention/rotary.h"
#include "transformer/layers/core_attention.h"
#include "transformer/layers/linear.h"
#include "transformer/layers/norm.h"

namespace trireme {

class LatentAttention {
 public:
  LatentAttention(const ModelConfig& config, const Layout& layout, ParameterList& list,
                  const std::string& prefix, int block, int layer);

  // H: heads of this rank. R = T / split: tokens of this rank's share.
  struct Saved {
    Activation q_latent, kv_latent;  // (R, Rq), (R, Rkv): before their norms
    Activation q_normed, kv_normed;  // after them
    Norm::Saved q_norm, kv_norm;
    // q, kv and k_rope are absent after an all-to-all of heads (Ulysses).
    Activation q;       // (T, H D), rotated
    Activation kv;      // (T, H (Dn + Dv))
    Activation k_rope;  // (T, Dr), rotated
    Activation out;     // (T, H Dv): input of the output projection
    CoreAttention::Saved heads;
  };
  // Input of backward_weight() from backward_input(): gradients of the projections' outputs.
  struct Deferred {
    Activation d_q;     // (T, H D)
    Activation d_kv;    // (T, H (Dn + Dv))
    Activation d_down;  // (R, Rq + Rkv + Dr)
    AllTokens dy;       // (T, C)
  };

  // y = attention(x); x, y (R, C). cos_sin: the rotary table of Dr columns. saved == nullptr: keeps
  // nothing.
  void forward(Pass& pass, const Tensor& y, const ConstTensor& x, const ConstTensor& cos_sin,
               Saved* saved) const;
  // Overwrites dx and writes the gradients of the norms. dx, dy (R, C); dy must stay valid until
  // backward_weight().
  Deferred backward_input(Pass& pass, const Tensor& dx, const ConstTensor& dy,
                          const ConstTensor& cos_sin, const Saved& saved) const;
  void backward_weight(Pass& pass, const ConstTensor& dy, const ConstTensor& x, const Saved& saved,
                       const Deferred& deferred) const;

  // As Mixer::linear_weights() (transformer/layers/mixer.h).
  std::vector<ParamHandle> linear_weights() const;

 private:
  // Column ranges of a (R, Rq + Rkv + Dr) tensor.
  template <class AnyTensor>
  struct Down {
    AnyTensor q, kv, rope;
  };
  template <class AnyTensor>
  Down<AnyTensor> parts(const AnyTensor& down) const;
  // Keys and values of width D, each contiguous.
  struct Expanded {
    Activation k, v;
  };
  Expanded expand(Pass& pass, const ConstTensor& kv, const ConstTensor& k_rope) const;
  Activation widen(Pass& pass, const ConstTensor& out) const;
  Tensor by_heads(const Activation& wide) const;  // (T, H D) as (T, H, D)
  void rotate_queries(Pass& pass, const Tensor& q, const ConstTensor& cos_sin, bool inverse) const;
  void rotate_key(Pass& pass, const Tensor& k_rope, const ConstTensor& cos_sin, bool inverse) const;
  void down(Pass& pass, const ConstTensor& x, const ConstTensor& cos_sin, Saved& saved,
            Activation& k_rope) const;
  Activation backward_key(Pass& pass, const Tensor& partial, const ConstTensor& cos_sin) const;

  int64_t width_;       // D
  LatentConfig sizes_;  // Rq, Rkv, Dn, Dr, Dv
  RotaryPairs pairs_;
  CoreAttention core_;
  ReplicatedLinear down_;  // q_a_proj (with Rq) and kv_a_proj_with_mqa
  ColumnLinear q_up_;      // q_b_proj, or q_proj
  ColumnLinear kv_up_;
  RowLinear o_proj_;
  std::unique_ptr<Norm> q_norm_;  // with Rq
  std::unique_ptr<Norm> kv_norm_;
};

}  // namespace trireme
