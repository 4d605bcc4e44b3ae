// Paged KV cache of one rank, per layer, and attention over it.
#pragma once

#include <vector>

#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/paged_attention.h"
#include "transformer/pass/kv_groups.h"
#include "transformer/pass/tokens.h"

namespace trireme {

// Layers that have a cache, consecutive from first_layer, and the format of their keys and values.
struct CachedLayers {
  // Number of this rank's layers in the largest group: as many pools of keys, and of values.
  int64_t layers = 0;
  int64_t first_layer = 0;
  int64_t kv_heads = 0;  // of this rank
  int64_t head_dim = 0;
  KvType type = {};
  std::vector<KvPlace> places;  // by layer, from first_layer on; kv_places()

  // Bytes of the keys, or of the values, of a token in one layer.
  int64_t token_bytes() const { return checked_mul(kv_heads, row_bytes(type, head_dim)); }
  // Requires a layer that has a cache.
  KvPlace place(int layer) const;
};

// Paged KV cache: tokens are stored in blocks, one pool per layer index in a group
// (engine/ops/attention/paged_attention.h); a block is used by one group at a time
// (transformer/pass/kv_groups.h). The block tables of each pass assign blocks to sequences and
// groups; the cache itself has no notion of a sequence. All inputs that change between passes are
// on the device, so that a pass can be recorded and replayed.
class KvCache {
 public:
  // Allocates `blocks` blocks of `block_tokens` tokens each.
  KvCache(const CachedLayers& layers, int64_t blocks, int64_t block_tokens, Memory memory);
  // Stores k, v (T, Hkv, D) of the new tokens of `layer` in the slots of its group, then
  // computes out = attention of q (T, H, D) over the keys of each sequence, including the new ones
  // (attention_forward(); causal, without dropout). Stores nothing in a planning run. With 8-bit
  // keys, attention always reads the stored codes, so that the output does not depend on what was
  // cached.
  void attend(Ctx& ctx, int layer, const Tensor& out, const ConstTensor& q, const ConstTensor& k,
              const ConstTensor& v, const Tokens& tokens, const AttentionArgs& args);
  int64_t blocks() const { return blocks_; }
  int64_t block_tokens() const { return block_tokens_; }

 private:
  // Pool of keys (which == 0) or values (1) of the layers with this index in their groups: elements
  // (B, Hkv, P, D), and the scales (B, Hkv, P) of 8-bit codes.
  Tensor pool(int64_t index, int which) const;
  Tensor scales(int64_t index, int which) const;
  CachedLayers layers_;
  int64_t blocks_, block_tokens_;
  Buffer storage_;
};

}  // namespace trireme
