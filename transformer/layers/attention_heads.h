// What attention layers share, whatever their projections are: attention of this rank's heads over
// packed sequences, over context-parallel ranks or over a KV cache, in some layers over a sliding
// window (engine/ops/attention.h has the formula).
#pragma once

#include "engine/ops/attention.h"
#include "transformer/config/model_config.h"
#include "transformer/pass/pass.h"
#include "transformer/pass/sharding.h"

namespace trireme {

class AttentionHeads {
 public:
  AttentionHeads(const ModelConfig& config, const Layout& layout, int layer);

  // H and Hkv are the heads of this rank.
  int64_t heads() const { return heads_; }

  struct Saved {
    Activation lse;                   // (H, T)
    ContextAttention::Saved context;  // in its place, with context parallelism
  };
  // Views, (T, H, D) and (T, Hkv, D); heads lie one behind the other.
  struct Heads {
    Tensor q, k, v;
  };

  // out (T, H, D) = attention of heads that were rotated. saved may be null: nothing is kept.
  void forward(Pass& pass, const Tensor& out, const Heads& heads, Saved* saved) const;
  // Whether backward() reads out and heads; else Saved has them, exchanged, and they may be absent.
  bool backward_reads_heads(const Saved& saved) const { return !saved.context.qkv.present(); }
  // d overwrites.
  void backward(Pass& pass, const Heads& d, const ConstTensor& d_out, const ConstTensor& out,
                const Heads& heads, const Saved& saved) const;

 private:
  AttentionArgs op_args(const Pass& pass) const;
  int64_t heads_, first_head_, total_heads_;  // of this rank, and its place among all query heads
  double scale_, dropout_;
  int64_t window_;  // 0: none
  int layer_;
};

}  // namespace trireme
