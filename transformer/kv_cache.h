// Keys and values of the tokens seen so far, per layer; the attention layer's view of a cache.
#pragma once

#include <vector>

#include "engine/ops/context.h"

namespace trireme {

class KvCache {
 public:
  virtual ~KvCache() = default;
  // Stores the new tokens' k, v (T, Hkv, D) of `layer` behind those already there; in a planning run nothing.
  virtual void append(Ctx& ctx, int layer, const ConstTensor& k, const ConstTensor& v) = 0;
  // The keys and values of `layer`, the new ones included, and room for more behind them: (Tk, Hkv, D),
  // the same shape in every pass. Offsets (cu_k) say how many there are.
  virtual ConstTensor keys(int layer) const = 0;
  virtual ConstTensor values(int layer) const = 0;
};

// One sequence, one contiguous block for each of `layers` layers from `first_layer` on.
class ContiguousKvCache final : public KvCache {
 public:
  ContiguousKvCache(int64_t layers, int64_t max_tokens, int64_t kv_heads, int64_t head_dim,
                    DType dtype, int64_t first_layer = 0, Memory memory = Memory::kHost);
  void append(Ctx& ctx, int layer, const ConstTensor& k, const ConstTensor& v) override;
  ConstTensor keys(int layer) const override;
  ConstTensor values(int layer) const override;
  // Call after a forward pass over `tokens` new tokens (all layers have appended).
  void advance(int64_t tokens);
  void clear() { length_ = 0; }
  int64_t length() const { return length_; }
  int64_t max_tokens() const { return max_tokens_; }

 private:
  Tensor slot(int layer, int which) const;  // (max_tokens, Hkv, D); which: 0 keys, 1 values
  size_t place(int layer) const;            // of a layer among those held
  int64_t max_tokens_, kv_heads_, head_dim_;
  DType dtype_;
  int64_t first_layer_;
  int64_t length_ = 0;
  std::vector<int64_t> appended_;  // tokens each layer holds beyond length_
  Buffer storage_;
};

}  // namespace trireme
