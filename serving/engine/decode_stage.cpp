#include "serving/engine/decode_stage.h"

#include <algorithm>

#include "transformer/sharding.h"

namespace trireme {
namespace {

constexpr int64_t kBlockTokens = 16;

}  // namespace

DecodeStage::DecodeStage(const Model& model, ParameterStore& params, Ctx& ctx, const Groups* groups,
                         int64_t max_tokens, int64_t most_new, bool paged)
    : model_(model),
      params_(params),
      ctx_(ctx),
      groups_(groups),
      inputs_(ctx, max_tokens, most_new, paged ? kBlockTokens : 0),
      cache_(make_cache(max_tokens, paged)) {
  if (!model_.has_head(0)) return;
  const DType dtype = params.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Shape shape{1, model_.config().vocab_size};
  logits_data_ = Buffer("logits", shape.numel() * dtype_size(dtype),
                        ctx.gpu != nullptr ? Memory::kPinned : Memory::kHost);
  logits_ = logits_data_.tensor(dtype, shape);
  if (dtype == DType::kF64) narrow_.resize(static_cast<size_t>(shape.numel()));
}

std::unique_ptr<KvCache> DecodeStage::make_cache(int64_t max_tokens, bool paged) const {
  TRIREME_CHECK(model_.chunks() == 1, "decoding takes one chunk a rank, got ", model_.chunks());
  const ModelConfig& config = model_.config();
  const Place tp = groups_ != nullptr ? groups_->layout.tp : Place{};
  const ChunkSpan& span = model_.span(0);
  const CachedLayers layers{
      .layers = span.layers(),
      .first_layer = span.first_layer,
      .kv_heads = head_slice(config.num_kv_heads, config.head_dim, tp).size() / config.head_dim,
      .head_dim = config.head_dim,
      .dtype = params_.dtype()};
  if (!paged) return std::make_unique<ContiguousKvCache>(layers, max_tokens, ctx_.memory());
  return std::make_unique<PagedKvCache>(layers, ceil_div(max_tokens, kBlockTokens), kBlockTokens,
                                        ctx_.memory());
}

Activation DecodeStage::forward(int chunk, int /*micro_batch*/, Activation x) {
  Pass pass{ctx_, params_, inputs_.tokens(), groups_, cache_.get()};
  Activation y = model_.forward(pass, chunk, std::move(x), nullptr, Recompute::kNone);
  if (!model_.has_head(chunk)) return y;
  if (ctx_.gpu == nullptr) {
    model_.logits(pass, std::move(y), logits_);
    return {};
  }
  const Activation logits = ctx_.allocate("decode.logits", logits_.dtype(), logits_.shape());
  model_.logits(pass, std::move(y), logits);
  if (!ctx_.planning())
    cuda::copy_async(*ctx_.gpu, ctx_.gpu->main, logits_.raw(), logits->raw(), logits->bytes());
  return {};
}

void DecodeStage::end() {
  past_ += inputs_.tokens().count;
  if (!logits_.present()) return;
  if (ctx_.gpu != nullptr) cuda::synchronize(*ctx_.gpu, ctx_.gpu->main);
  if (narrow_.empty()) return;
  std::ranges::transform(std::span(logits_.as<double>(), narrow_.size()), narrow_.begin(),
                         [](double x) { return static_cast<float>(x); });
}

std::span<const float> DecodeStage::logits() const {
  if (!narrow_.empty()) return narrow_;
  return {logits_.as<float>(), static_cast<size_t>(logits_.numel())};
}

Activation DecodeStage::allocate_hidden(int /*chunk*/, int /*micro_batch*/, bool /*gradient*/) {
  return ctx_.allocate("pipeline.hidden", params_.dtype(),
                       Shape{inputs_.tokens().count, model_.config().hidden_size});
}

Activation DecodeStage::backward_input(int /*chunk*/, int /*micro_batch*/, Activation /*dy*/) {
  TRIREME_UNREACHABLE("backward while decoding");
}

void DecodeStage::backward_weight(int /*chunk*/, int /*micro_batch*/) {
  TRIREME_UNREACHABLE("backward while decoding");
}

}  // namespace trireme
