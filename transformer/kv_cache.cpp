#include "transformer/kv_cache.h"

#include "engine/ops/copy_rows.h"
#include "engine/ops/paged_attention.h"

namespace trireme {
namespace {

int64_t bytes_of(const CachedLayers& layers, int64_t tokens) {
  return checked_mul(checked_mul(2 * layers.layers, tokens), layers.token_bytes());
}

// Attention of new tokens without the log-sum-exp, which only a backward needs.
void attend_to(Ctx& ctx, const Tensor& out, const ConstTensor& q, const ConstTensor& k,
               const ConstTensor& v, const ConstTensor& cu_q, const ConstTensor& cu_k,
               const AttentionArgs& args) {
  const Activation lse =
      ctx.allocate("attention.lse", sum_dtype(out.dtype()), Shape{q.size(1), q.size(0)});
  attention_forward(ctx, out, lse, q, k, v, cu_q, cu_k, args);
}

}  // namespace

int64_t CachedLayers::place(int layer) const {
  const int64_t at = layer - first_layer;
  TRIREME_CHECK(at >= 0 && at < layers, "layer ", layer, " of a KV cache of ", layers, " from ",
                first_layer);
  return at;
}

ContiguousKvCache::ContiguousKvCache(const CachedLayers& layers, int64_t max_tokens, Memory memory)
    : layers_(layers),
      max_tokens_(max_tokens),
      storage_("kv cache", bytes_of(layers, max_tokens), memory) {}

Tensor ContiguousKvCache::rows(int layer, int which) const {
  const int64_t bytes = max_tokens_ * layers_.token_bytes();
  return storage_.tensor(layers_.dtype, Shape{max_tokens_, layers_.kv_heads, layers_.head_dim},
                         (2 * layers_.place(layer) + which) * bytes);
}

void ContiguousKvCache::attend(Ctx& ctx, int layer, const Tensor& out, const ConstTensor& q,
                               const ConstTensor& k, const ConstTensor& v, const Tokens& tokens,
                               const AttentionArgs& args) {
  const int64_t begin = tokens.cached.past, count = k.size(0);
  TRIREME_CHECK(begin + count <= max_tokens_, "KV cache of ", max_tokens_, " tokens cannot take ",
                count, " after ", begin);
  const Tensor keys = rows(layer, 0), values = rows(layer, 1);
  const auto store = [&](const char* name, const Tensor& to, const ConstTensor& from) {
    check_shape("KvCache::attend", name, from, {count, layers_.kv_heads, layers_.head_dim});
    copy_rows(ctx, heads_as_columns(to.slice(0, begin, begin + count)), heads_as_columns(from));
  };
  store("k", keys, k);
  store("v", values, v);
  attend_to(ctx, out, q, keys, values, tokens.cu_q, tokens.cu_k, args);
}

PagedKvCache::PagedKvCache(const CachedLayers& layers, int64_t blocks, int64_t block_tokens,
                           Memory memory)
    : layers_(layers),
      blocks_(blocks),
      block_tokens_(block_tokens),
      storage_("kv cache", bytes_of(layers, checked_mul(blocks, block_tokens)), memory) {}

Tensor PagedKvCache::pool(int layer, int which) const {
  const int64_t bytes = blocks_ * block_tokens_ * layers_.token_bytes();
  return storage_.tensor(layers_.dtype,
                         Shape{blocks_, layers_.kv_heads, block_tokens_, layers_.head_dim},
                         (2 * layers_.place(layer) + which) * bytes);
}

void PagedKvCache::attend(Ctx& ctx, int layer, const Tensor& out, const ConstTensor& q,
                          const ConstTensor& k, const ConstTensor& v, const Tokens& tokens,
                          const AttentionArgs& args) {
  const CachedTokens& cached = tokens.cached;
  const Tensor keys = pool(layer, 0), values = pool(layer, 1);
  paged_append(ctx, keys, values, k, v, cached.slots);
  if (cached.new_sequences) {
    attend_to(ctx, out, q, k, v, tokens.cu_q, tokens.cu_q, args);
    return;
  }
  paged_attention(
      ctx, out, q, keys, values, cached.block_table, tokens.cu_q, cached.context_lens,
      {.scale = args.scale, .window = args.window, .most_queries = cached.most_queries});
}

}  // namespace trireme
