#include "transformer/kv_cache.h"

#include "engine/ops/copy_rows.h"

namespace trireme {

ContiguousKvCache::ContiguousKvCache(int64_t layers, int64_t max_tokens, int64_t kv_heads,
                                     int64_t head_dim, DType dtype, int64_t first_layer,
                                     Memory memory)
    : max_tokens_(max_tokens),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      dtype_(dtype),
      first_layer_(first_layer),
      appended_(static_cast<size_t>(layers), 0),
      storage_(
          "kv cache",
          checked_mul(checked_mul(2 * layers, max_tokens), kv_heads * head_dim * dtype_size(dtype)),
          memory) {}

size_t ContiguousKvCache::place(int layer) const {
  const int64_t at = layer - first_layer_;
  TRIREME_CHECK(at >= 0 && at < std::ssize(appended_), "layer ", layer, " of a KV cache of ",
                appended_.size(), " from ", first_layer_);
  return static_cast<size_t>(at);
}

Tensor ContiguousKvCache::slot(int layer, int which) const {
  const int64_t bytes = max_tokens_ * kv_heads_ * head_dim_ * dtype_size(dtype_);
  return storage_.tensor(dtype_, Shape{max_tokens_, kv_heads_, head_dim_},
                         (2 * static_cast<int64_t>(place(layer)) + which) * bytes);
}

void ContiguousKvCache::append(Ctx& ctx, int layer, const ConstTensor& k, const ConstTensor& v) {
  if (ctx.planning()) return;
  int64_t& extra = appended_[place(layer)];
  const int64_t begin = length_ + extra, count = k.size(0);
  TRIREME_CHECK(begin + count <= max_tokens_, "KV cache of ", max_tokens_, " tokens cannot take ",
                count, " after ", begin);
  for (int which = 0; which < 2; ++which) {
    const ConstTensor& from = which == 0 ? k : v;
    check_shape("KvCache::append", which == 0 ? "k" : "v", from, {count, kv_heads_, head_dim_});
    const Tensor to = slot(layer, which).slice(0, begin, begin + count);
    copy_rows(ctx, heads_as_columns(to), heads_as_columns(from));
  }
  extra += count;
}

ConstTensor ContiguousKvCache::keys(int layer) const { return slot(layer, 0); }

ConstTensor ContiguousKvCache::values(int layer) const { return slot(layer, 1); }

void ContiguousKvCache::advance(int64_t tokens) {
  for (int64_t& extra : appended_) {
    TRIREME_CHECK(extra == tokens, "a layer appended ", extra, " tokens, the pass had ", tokens);
    extra = 0;
  }
  length_ += tokens;
}

}  // namespace trireme
