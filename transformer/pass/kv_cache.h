// Keys and values of the tokens seen so far, per layer, and attention over them.
#pragma once

#include <vector>

#include "engine/ops/attention.h"
#include "engine/ops/paged_attention.h"
#include "transformer/pass/tokens.h"

namespace trireme {

// A number of layers from first_layer on, and what a layer's keys are.
struct CachedLayers {
  int64_t layers = 0;
  int64_t first_layer = 0;
  int64_t kv_heads = 0;  // of this rank
  int64_t head_dim = 0;
  KvType type = {};

  // Of the keys, or the values, of a token in one layer.
  int64_t token_bytes() const { return checked_mul(kv_heads, row_bytes(type, head_dim)); }
  int64_t place(int layer) const;  // of a layer among those held
};

// Any sequences, whose tokens lie in blocks of a pool for each layer
// (engine/ops/paged_attention.h). Blocks belong to whom the tables of the passes say: the cache
// itself knows of no sequence. Nothing that changes from pass to pass is the host's, so that a pass
// can be recorded and run again.
class KvCache {
 public:
  KvCache(const CachedLayers& layers, int64_t blocks, int64_t block_tokens, Memory memory);
  // Stores the new tokens' k, v (T, Hkv, D) of `layer` behind those already there, as tokens.cached
  // says, then out = attention of q (T, H, D) over the keys of each sequence, the new ones included
  // (attention_forward(); causal, without dropout). In a planning run nothing is stored. Keys in
  // codes of 8 bits are always attended to as they were stored, so that what is cached changes no
  // text by their error.
  void attend(Ctx& ctx, int layer, const Tensor& out, const ConstTensor& q, const ConstTensor& k,
              const ConstTensor& v, const Tokens& tokens, const AttentionArgs& args);
  int64_t blocks() const { return blocks_; }
  int64_t block_tokens() const { return block_tokens_; }

 private:
  // Of keys (which = 0) or values (1): elements (B, Hkv, P, D), and the scales (B, Hkv, P) of
  // codes.
  Tensor pool(int layer, int which) const;
  Tensor scales(int layer, int which) const;
  CachedLayers layers_;
  int64_t blocks_, block_tokens_;
  Buffer storage_;
};

}  // namespace trireme
