// Transformer block: h = x + mixer(norm1(x)); y = h + feed_forward(norm2(h)). Depending on the
// model, it has post-norms of the two branches in addition to the pre-norms (Gemma: Ding et al.
// 2021, "sandwich") or in place of them (OLMo 2: Liu et al. 2022, arXiv 2111.09883,
// "res-post-norm"), dropout on the branches (GPT-2) and a factor on the branches (Granite). The
// mixer is an attention layer, the feed-forward layer an MLP or a mixture of experts
// (transformer/layers/mixer.h, feed_forward.h).
#pragma once

#include "transformer/config/recompute.h"
#include "transformer/layers/feed_forward.h"
#include "transformer/layers/mixer.h"
#include "transformer/layers/norm.h"

namespace trireme {

class TransformerBlock {
 public:
  TransformerBlock(const ModelConfig& config, const Layout& layout, ParameterList& list,
                   const std::string& prefix, int block, int layer);

  // All activations are this rank's share of the residual stream, (T / split, C). Full recompute
  // saves only x.
  struct Saved {
    Activation x;          // input
    Activation n1, h, n2;  // n1 and n2 with pre_norms only; dropped by selective recompute
    Norm::Saved norm1, norm2;
    Activation attended, mlp_out;  // the branches before their post-norms, with post_norms
    Norm::Saved attention_branch, mlp_branch;
    std::unique_ptr<Mixer::Saved> mixer;
    std::unique_ptr<FeedForward::Saved> feed_forward;
  };
  // Input of backward_weight() from backward_input().
  struct Deferred {
    Saved saved;
    Activation dy, dh;  // gradients of the two branches as added to the residual stream
    // Gradients of the layers' outputs, before factor, dropout and post-norm; absent if the block
    // has none of these.
    Activation d_mlp, d_attention;
    std::unique_ptr<FeedForward::Deferred> feed_forward;
    std::unique_ptr<Mixer::Deferred> mixer;
  };

  // Returns y (T / split, C) for x (T / split, C). cos_sin: the layer's rotary table
  // (transformer/layers/attention.h). saved == nullptr: keeps nothing.
  Activation forward(Pass& pass, Activation x, const ConstTensor& cos_sin, Saved* saved,
                     Recompute recompute) const;
  // Returns dx. Consumes saved. The weight gradients of linear layers stay pending in `deferred`,
  // so that a schedule can postpone them; those of norms are written here.
  Activation backward_input(Pass& pass, Activation dy, const ConstTensor& cos_sin, Saved saved,
                            Recompute recompute, Deferred& deferred) const;
  void backward_weight(Pass& pass, Deferred deferred) const;
  // Returns whether backward_weight() reads weights: those of norms whose outputs were not saved.
  bool weight_pass_reads_weights(const Deferred& deferred) const {
    return norm1_ != nullptr && !deferred.saved.n1.present();
  }

  // First weight of the matrix of each linear layer, except those of routed experts.
  std::vector<ParamHandle> linear_weights() const;

 private:
  // Applies dropout and factor to a branch before the residual add.
  Activation branch_output(Pass& pass, const char* name, Activation branch) const;
  Activation run(Pass& pass, Activation x, const ConstTensor& cos_sin, Saved* saved,
                 Recompute recompute) const;
  // Returns norm(x), allocated as `name`; absent without the norm.
  Activation normed(Pass& pass, const std::unique_ptr<Norm>& norm, const char* name,
                    const Activation& x, Norm::Saved& statistics) const;
  // dx = gradient of x: d_norm, the gradient of norm(x), through the norm, plus `residual`, the
  // gradient through the residual stream.
  void norm_backward(Pass& pass, const std::unique_ptr<Norm>& norm, const Tensor& dx,
                     const ConstTensor& d_norm, const ConstTensor& residual, const Activation& x,
                     const Norm::Saved& statistics) const;
  // Applies the branch's post-norm where there is one; `kept` then receives the branch before it.
  Activation post_norm(Pass& pass, const std::unique_ptr<Norm>& norm, Activation branch,
                       Activation* kept, Norm::Saved& statistics) const;
  // Gradient of a branch's layer, given `d`, the gradient of the branch as added to the residual
  // stream. Absent: equal to `d`.
  Activation branch_gradient(Pass& pass, const char* name, const std::unique_ptr<Norm>& norm,
                             const ConstTensor& d, const Activation& kept,
                             const Norm::Saved& statistics) const;
  void restore_attention_input(Pass& pass, Saved& saved) const;
  void restore_mlp_input(Pass& pass, Saved& saved) const;

  double dropout_, residual_scale_;
  int layer_;
  std::unique_ptr<Norm> norm1_, norm2_;  // with pre_norms
  std::unique_ptr<Mixer> mixer_;
  std::unique_ptr<FeedForward> feed_forward_;
  std::unique_ptr<Norm> attention_post_norm_, mlp_post_norm_;  // with post_norms
};

}  // namespace trireme
