// Core attention, shared by all attention layers: attention of this rank's heads over packed
// sequences, over context-parallel ranks or over a KV cache. Some layers have a sliding window or
// stay inside chunks of the document, some models have a sink for each head. Formulas:
// engine/ops/attention/attention.h, attention_sinks.h.
#pragma once

#include "engine/ops/attention/attention.h"
#include "transformer/config/model_config.h"
#include "transformer/pass/pass.h"
#include "transformer/pass/sharding.h"

namespace trireme {

class CoreAttention {
 public:
  // prefix: name of the attention module; adds its parameter `prefix`.sinks if the model has sinks.
  CoreAttention(const ModelConfig& config, const Layout& layout, ParameterList& list,
                const std::string& prefix, int block, int layer);

  // H and Hkv are the heads of this rank.
  int64_t heads() const { return heads_; }

  struct Saved {
    Activation lse;                   // (H, T)
    ContextAttention::Saved context;  // instead of lse, with context parallelism
  };
  // Views (T, H, D) and (T, Hkv, D); the heads of a token are contiguous.
  struct Heads {
    Tensor q, k, v;
  };

  // out (T, H, D) = attention of the heads, after the rotary embedding. saved == nullptr: keeps
  // nothing; required with a KV cache, which has no backward (Error).
  void forward(Pass& pass, const Tensor& out, const Heads& heads, Saved* saved) const;
  // Returns whether backward() reads out and heads. If not, Saved holds them after the all-to-all
  // of heads, and they may be absent.
  bool backward_reads_heads(const Saved& saved) const { return !saved.context.qkv.present(); }
  // Overwrites d and writes the gradient of the sinks.
  void backward(Pass& pass, const Heads& d, const ConstTensor& d_out, const ConstTensor& out,
                const Heads& heads, const Saved& saved) const;

 private:
  AttentionArgs op_args(const Pass& pass, const Tokens& tokens) const;
  // Query heads of this rank, index of the first one, and total over all ranks.
  int64_t heads_, first_head_, total_heads_;
  double scale_, soft_cap_, dropout_;
  int64_t window_;          // 0: none
  bool chunked_;            // attends inside chunks
  ParamHandle sinks_ = -1;  // (H); -1: none
  int layer_;
};

}  // namespace trireme
