#include "serving/engine/step_stage.h"

#include <algorithm>

#include "engine/core/convert_float.h"
#include "transformer/pass/sharding.h"

namespace trireme {
namespace {

CachedLayers cached_layers(const Model& model, const KvType& type, const Groups* groups,
                           std::span<const int64_t> windows) {
  TRIREME_CHECK(model.chunks() == 1, "decoding: expected 1 chunk per rank, got ", model.chunks());
  const ModelConfig& config = model.config();
  const GroupCoord tp = groups != nullptr ? groups->layout.tp : GroupCoord{};
  const ChunkSpan& span = model.span(0);
  CachedLayers out{
      .first_layer = span.first_layer,
      .kv_heads = head_slice(config.num_kv_heads, config.head_dim, tp).size() / config.head_dim,
      .head_dim = config.head_dim,
      .type = type,
      .places = kv_places(config, windows, span.first_layer, span.layers())};
  for (const KvPlace& place : out.places) out.layers = std::max(out.layers, place.index + 1);
  return out;
}

}  // namespace

int64_t kv_block_bytes(const Model& model, const KvType& type, const Groups* groups,
                       int64_t block_tokens, std::span<const int64_t> windows) {
  const CachedLayers layers = cached_layers(model, type, groups, windows);
  return checked_mul(checked_mul(2 * layers.layers, block_tokens), layers.token_bytes());
}

StepStage::StepStage(const Model& model, ParameterStore& params, Ctx& ctx, const Groups* groups,
                     const StepLimits& limits, int micro_batches, int64_t logit_rows, Reader reader,
                     int64_t choices, TokenReader token_reader)
    : model_(model),
      params_(params),
      ctx_(ctx),
      groups_(groups),
      logit_rows_(logit_rows),
      reader_(std::move(reader)),
      choices_(choices),
      token_reader_(std::move(token_reader)) {
  make_cache(limits);
  for (int m = 0; m < micro_batches; ++m)
    batches_.emplace_back(ctx, limits, model.config().attention_chunk);
  if (!model_.has_head(0)) return;
  const Memory where = ctx.gpu != nullptr ? Memory::kPinned : Memory::kHost;
  const int64_t width = model_.config().hidden_size * dtype_size(params.dtype());
  for (int m = 0; m < micro_batches; ++m)
    embeddings_.emplace_back("embeddings", checked_mul(limits.sequences, width), where);
  const DType dtype = params.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Shape shape{logit_rows, model_.config().vocab_size};
  logits_data_ = Buffer("logits", shape.numel() * dtype_size(dtype), where);
  logits_ = logits_data_.tensor(dtype, shape);
  if (dtype == DType::kF64) narrow_.resize(static_cast<size_t>(shape.numel()));
  if (ctx.gpu == nullptr) return;
  tokens_data_ = Buffer("sampled tokens", 12 * logit_rows, where);
  sampled_logprobs_ = tokens_data_.tensor(DType::kF64, {logit_rows});
  sampled_ids_ = tokens_data_.tensor(DType::kI32, {logit_rows}, 8 * logit_rows);
}

void StepStage::make_cache(const StepLimits& limits) {
  const KvType type = limits.kv_type.value_or(KvType{params_.dtype()});
  cache_ = std::make_unique<KvCache>(cached_layers(model_, type, groups_, limits.windows),
                                     limits.blocks, limits.block_tokens, ctx_.memory());
}

Activation StepStage::forward(int chunk, int micro_batch, Activation x) {
  Pass pass{ctx_, params_, batch(micro_batch).tokens(), groups_, cache_.get()};
  Activation y = model_.forward(pass, chunk, std::move(x), nullptr, Recompute::kNone);
  if (!model_.has_head(chunk)) return y;
  compute_logits(pass, micro_batch, y);
  if (batch(micro_batch).embedded_count() > 0) compute_embeddings(pass, micro_batch, y);
  return {};
}

void StepStage::compute_logits(Pass& pass, int micro_batch, const ConstTensor& x) {
  const StepBatch& batch = this->batch(micro_batch);
  const int64_t most = logits_.size(0), rows = batch.row_count();
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t end = std::min(rows, first + most);
    const ConstTensor of =
        batch.rows().present() ? batch.rows().slice(0, first, end) : ConstTensor{};
    TRIREME_CHECK(of.present() || rows <= most, rows, " rows of logits do not fit into ", most,
                  " rows");
    const Tensor here = logits_.slice(0, 0, end - first);
    if (!ctx_.planning()) read_pending();
    if (ctx_.gpu == nullptr) {
      model_.logits(pass, x, here, of);
    } else {
      const Activation there = ctx_.allocate("decode.logits", here.dtype(), here.shape());
      model_.logits(pass, x, there, of);
      if (batch.samples())
        sample(there, batch, first);
      else if (!ctx_.planning())
        cuda::copy_async(*ctx_.gpu, ctx_.gpu->main, here.raw(), there->raw(), there->bytes());
    }
    if (!ctx_.planning()) pending_ = {micro_batch, first, end - first, batch.samples()};
  }
}

// Samples rows of the batch from number `first`; copies 12 bytes per row to the host.
void StepStage::sample(const Tensor& logits, const StepBatch& batch, int64_t first) {
  const int64_t rows = logits.size(0);
  const Activation ids = ctx_.allocate("decode.ids", DType::kI32, {rows});
  const Activation logprobs = ctx_.allocate("decode.logprobs", DType::kF64, {rows});
  const SampleRows& all = batch.sampling();
  const auto part = [&](const ConstTensor& column) { return column.slice(0, first, first + rows); };
  sample_rows(ctx_, ids, logprobs, logits.slice(1, 0, choices_),
              {.temperature = part(all.temperature),
               .top_p = part(all.top_p),
               .min_p = part(all.min_p),
               .top_k = part(all.top_k),
               .seed = part(all.seed),
               .position = part(all.position)});
  if (ctx_.planning()) return;
  const cuda::Stream& stream = ctx_.gpu->main;
  cuda::copy_async(*ctx_.gpu, stream, sampled_ids_.raw(), ids->raw(), ids->bytes());
  cuda::copy_async(*ctx_.gpu, stream, sampled_logprobs_.raw(), logprobs->raw(), logprobs->bytes());
}

void StepStage::compute_embeddings(Pass& pass, int micro_batch, const ConstTensor& x) {
  const ConstTensor& rows = batch(micro_batch).embedded();
  const Tensor here =
      embeddings_[static_cast<size_t>(micro_batch)].tensor(x.dtype(), {rows.size(0), x.size(1)});
  if (ctx_.gpu == nullptr) return model_.hidden(pass, x, here, rows);
  const Activation there = ctx_.allocate("decode.embeddings", here.dtype(), here.shape());
  model_.hidden(pass, x, there, rows);
  if (!ctx_.planning())
    cuda::copy_async(*ctx_.gpu, ctx_.gpu->main, here.raw(), there->raw(), there->bytes());
}

void StepStage::end() {
  read_pending();
  const bool embedded = std::ranges::any_of(
      batches_, [](const StepBatch& batch) { return batch.embedded_count() > 0; });
  if (embedded && ctx_.gpu != nullptr) cuda::synchronize(*ctx_.gpu, ctx_.gpu->main);
}

std::vector<float> StepStage::embedding(int m, int64_t i) const {
  const int64_t width = model_.config().hidden_size;
  const Tensor all = embeddings_[static_cast<size_t>(m)].tensor(params_.dtype(),
                                                                {batch(m).embedded_count(), width});
  std::vector<float> out(static_cast<size_t>(width));
  dispatch_float("embedding", all.dtype(), [&]<class T>() {
    const T* from = all.as<T>() + i * width;
    std::transform(from, from + width, out.begin(), [](T x) { return convert_float<float>(x); });
  });
  return out;
}

void StepStage::read_pending() {
  const Pending now = std::exchange(pending_, Pending{});
  if (now.rows == 0) return;
  if (ctx_.gpu != nullptr) cuda::synchronize(*ctx_.gpu, ctx_.gpu->main);
  if (now.sampled) {
    const auto rows = static_cast<size_t>(now.rows);
    return token_reader_(now.micro_batch, now.first, {sampled_ids_.as<int32_t>(), rows},
                         {sampled_logprobs_.as<double>(), rows});
  }
  const auto count = static_cast<size_t>(now.rows * logits_.size(1));
  if (narrow_.empty()) {
    reader_(now.micro_batch, now.first, {logits_.as<float>(), count});
    return;
  }
  std::ranges::transform(std::span(logits_.as<double>(), count), narrow_.begin(),
                         [](double l) { return static_cast<float>(l); });
  reader_(now.micro_batch, now.first, std::span(narrow_).first(count));
}

Activation StepStage::allocate_message(int /*chunk*/, int micro_batch, bool /*gradient*/) {
  const Shape shape{batch(micro_batch).tokens().count, model_.config().hidden_size};
  return ctx_.allocate("pipeline.hidden", params_.dtype(), shape);
}

Activation StepStage::backward_input(int /*chunk*/, int /*micro_batch*/, Activation /*dy*/) {
  TRIREME_UNREACHABLE("backward while decoding");
}

void StepStage::backward_weight(int /*chunk*/, int /*micro_batch*/) {
  TRIREME_UNREACHABLE("backward while decoding");
}

}  // namespace trireme
