#include "serving/engine/decode_inputs.h"

#include <numeric>
#include <vector>

#include "engine/ops/transfer.h"

namespace trireme {
namespace {

// A slot, an id and a position for each token, two pairs of offsets and a length.
int64_t bytes_for(int64_t tokens) { return 16 * tokens + 4 * (2 + 2 + 1); }

}  // namespace

DecodeInputs::DecodeInputs(Ctx& ctx, int64_t max_tokens, int64_t most_new, int64_t block_tokens)
    : max_tokens_(max_tokens),
      most_new_(most_new),
      host_("decode inputs", bytes_for(most_new),
            ctx.gpu != nullptr ? Memory::kPinned : Memory::kHost) {
  if (ctx.gpu != nullptr) {
    device_ = Buffer("decode inputs", bytes_for(most_new), Memory::kDevice);
    copied_ = cuda::make_event(*ctx.gpu);
  }
  tokens_.position_end = max_tokens;
  if (block_tokens == 0) return;
  std::vector<int32_t> blocks(static_cast<size_t>(ceil_div(max_tokens, block_tokens)));
  std::iota(blocks.begin(), blocks.end(), 0);
  const Shape shape{1, std::ssize(blocks)};
  table_ = Buffer("block table", 4 * std::ssize(blocks), ctx.memory());
  const Tensor table = table_.tensor(DType::kI32, shape);
  transfer(ctx, table, ConstTensor(blocks.data(), DType::kI32, shape));
  tokens_.cached.block_table = table;
}

template <class T, class F>
ConstTensor DecodeInputs::put(int64_t n, F&& value) {
  T* const to = host_.tensor(dtype_of<T>, Shape{n}, used_).template as<T>();
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<T>(value(i));
  const Buffer& where = device_.data() != nullptr ? device_ : host_;
  const ConstTensor view = where.tensor(dtype_of<T>, Shape{n}, used_);
  used_ += view.bytes();
  return view;
}

void DecodeInputs::write(Ctx& ctx, std::span<const int32_t> ids, int64_t past) {
  const int64_t count = std::ssize(ids);
  TRIREME_CHECK(count > 0 && count <= most_new_ && past >= 0 && past + count <= max_tokens_, count,
                " tokens after ", past, " where ", most_new_, " may come of ", max_tokens_);
  // Whoever has read the last pass's result need not wait here.
  if (ctx.gpu != nullptr && !cuda::done(copied_)) cuda::synchronize(copied_);
  used_ = 0;
  CachedTokens& cached = tokens_.cached;
  tokens_.count = count;
  cached.past = past;
  cached.new_sequences = past == 0 && count > 1;
  cached.most_queries = count;
  const auto position = [&](int64_t i) { return past + i; };
  cached.slots = put<int64_t>(count, position);  // block b of the text is block b of the pool
  tokens_.ids = put<int32_t>(count, [&](int64_t i) { return ids[static_cast<size_t>(i)]; });
  tokens_.positions = put<int32_t>(count, position);
  tokens_.cu_q = put<int32_t>(2, [&](int64_t i) { return i * count; });
  tokens_.cu_k = put<int32_t>(2, [&](int64_t i) { return i * (past + count); });
  cached.context_lens = put<int32_t>(1, [&](int64_t) { return past + count; });
  if (ctx.gpu == nullptr) return;
  cuda::copy_async(*ctx.gpu, ctx.gpu->main, device_.data(), host_.data(), used_);
  cuda::record(copied_, ctx.gpu->main);
}

}  // namespace trireme
