#include "transformer/pass/kv_cache.h"

namespace trireme {
namespace {

int64_t bytes_of(const CachedLayers& layers, int64_t tokens) {
  return checked_mul(checked_mul(2 * layers.layers, tokens), layers.token_bytes());
}

// Attention of sequences without earlier tokens. There is no backward: only sinks need the
// log-sum-exp.
void attend_to(Ctx& ctx, const Tensor& out, const ConstTensor& q, const ConstTensor& k,
               const ConstTensor& v, const ConstTensor& cu, AttentionArgs args) {
  args.keep_lse = args.sinks.present();
  const Activation lse =
      ctx.allocate("attention.lse", sum_dtype(out.dtype()), Shape{q.size(1), q.size(0)});
  attention_forward(ctx, out, lse, q, k, v, cu, cu, args);
}

}  // namespace

KvPlace CachedLayers::place(int layer) const {
  const int64_t at = layer - first_layer;
  TRIREME_CHECK(at >= 0 && at < std::ssize(places), "layer ", layer,
                " is not in the KV cache, which has ", places.size(), " layers from ", first_layer,
                " on");
  return places[static_cast<size_t>(at)];
}

KvCache::KvCache(const CachedLayers& layers, int64_t blocks, int64_t block_tokens, Memory memory)
    : layers_(layers),
      blocks_(blocks),
      block_tokens_(block_tokens),
      storage_("kv cache", bytes_of(layers, checked_mul(blocks, block_tokens)), memory) {}

// All scales precede all elements; both are aligned there.
Tensor KvCache::pool(int64_t index, int which) const {
  const Shape shape{blocks_, layers_.kv_heads, block_tokens_, layers_.head_dim};
  const bool codes = layers_.type.codes != KvCodes::kNone;
  const int64_t scales =
      codes ? 2 * layers_.layers * blocks_ * layers_.kv_heads * block_tokens_ * int64_t{4} : 0;
  return storage_.tensor(
      layers_.type.dtype, shape,
      scales + (2 * index + which) * shape.numel() * dtype_size(layers_.type.dtype));
}

Tensor KvCache::scales(int64_t index, int which) const {
  if (layers_.type.codes == KvCodes::kNone) return {};
  const Shape shape{blocks_, layers_.kv_heads, block_tokens_};
  return storage_.tensor(DType::kF32, shape, (2 * index + which) * shape.numel() * int64_t{4});
}

void KvCache::attend(Ctx& ctx, int layer, const Tensor& out, const ConstTensor& q,
                     const ConstTensor& k, const ConstTensor& v, const Tokens& tokens,
                     const AttentionArgs& args) {
  const KvPlace place = layers_.place(layer);
  const CachedTokens& cached = tokens.cached_in(place.group);
  const Tensor keys = pool(place.index, 0), values = pool(place.index, 1);
  const PagedScales scale{scales(place.index, 0), scales(place.index, 1), layers_.type.codes};
  paged_append(ctx, keys, values, k, v, cached.slots, scale);
  if (cached.new_sequences && scale.codes == KvCodes::kNone) {
    attend_to(ctx, out, q, k, v, tokens.cu_q, args);
    return;
  }
  paged_attention(ctx, out, q, keys, values, cached.block_table, tokens.cu_q, cached.context_lens,
                  {.scale = args.scale,
                   .window = args.window,
                   .max_queries = cached.max_queries,
                   .max_context_len = cached.max_context_len,
                   .soft_cap = args.soft_cap,
                   .sinks = args.sinks},
                  scale);
}

}  // namespace trireme
