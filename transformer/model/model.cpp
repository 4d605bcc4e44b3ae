#include "transformer/model/model.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/ops/attention/rotary.h"
#include "engine/ops/rows/transfer.h"
#include "transformer/families/family.h"

namespace trireme {
namespace {

// Keeps the values of a parameter block available during its lifetime.
class StoreBlockUse {
 public:
  StoreBlockUse(ParameterStore& params, StoreBlockPass block, StoreBlockPass next = {})
      : params_(params), block_(block.block) {
    params.acquire(block, next);
  }
  ~StoreBlockUse() { params_.release(block_); }
  StoreBlockUse(const StoreBlockUse&) = delete;
  StoreBlockUse& operator=(const StoreBlockUse&) = delete;

 private:
  ParameterStore& params_;
  int block_;
};

StoreBlockPass forward_of(int block) { return {block, StorePass::kForward}; }
StoreBlockPass backward_of(int block) { return {block, StorePass::kBackward}; }

}  // namespace

Model::Model(const ModelConfig& config, DType dtype)
    : Model(config, dtype, Layout{}, split_layers(config.num_layers, 1, {})) {}

Model::Model(const ModelConfig& config, DType dtype, const Layout& layout,
             const std::vector<ChunkSpan>& chunks, const LoraConfig& lora)
    : config_(config), adapted_(lora.enabled()), chunks_(chunks) {
  const LoraPlan adapters{lora, layout.tp};
  if (adapted_) list_.set_adapters(&adapters);
  int number = 0;  // of the parameter block
  for (const ChunkSpan& span : chunks_) {
    if (span.embedding) {
      // With a pipeline the tied head is on another rank.
      const bool shared = config.tie_word_embeddings && layout.pp.size > 1;
      embedding_ = std::make_unique<Embedding>(config, layout, list_, number++, shared);
    }
    std::vector<Layer>& layers = layers_.emplace_back();
    for (int l = static_cast<int>(span.first_layer); l < static_cast<int>(span.last_layer); ++l) {
      const std::string prefix = concat(parameter_names(config).layers, ".", l);
      layers.push_back({TransformerBlock(config, layout, list_, prefix, number, l), number});
      ++number;
    }
    if (!span.head) continue;
    head_block_ = number++;
    const bool here = config.tie_word_embeddings && layout.pp.size == 1;
    head_ = std::make_unique<LmHead>(config, layout, list_, head_block_,
                                     here ? embedding_->token_table() : -1);
  }
  list_.set_adapters(nullptr);
  if (config.moe.experts > 0) routers_ = std::make_unique<RouterState>(config, dtype);
  table_dtype_ = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

void Model::use_float8(const Float8Config& config) {
  std::vector<ParamHandle> weights;
  for (const std::vector<Layer>& chunk : layers_)
    for (const Layer& layer : chunk)
      for (const ParamHandle weight : layer.block.linear_weights()) weights.push_back(weight);
  float8_ = std::make_unique<Float8State>(config, list_, std::move(weights));
}

int64_t Model::position_bytes(int64_t positions) const {
  if (config_.learned_positions) return 0;
  return checked_mul(checked_mul(positions, rotary_tables(config_) * rotary_width(config_)),
                     dtype_size(table_dtype_));
}

std::vector<double> Model::query_factors(int64_t positions, double factor) const {
  std::vector<double> out;
  out.reserve(static_cast<size_t>(positions));
  for (int64_t p = 0; p < positions; ++p) {
    const int64_t turns = config_.unrotated_scaling > 0
                              ? (p + 1) / config_.unrotated_scaling
                              : p / config_.rope_scaling.original_positions;
    out.push_back(factor * (1 + config_.query_scaling * std::log1p(static_cast<double>(turns))));
  }
  return out;
}

void Model::reserve_positions(Ctx& ctx, int64_t positions) {
  if (config_.learned_positions) return;
  if (cos_sin_.present() && cos_sin_.size(1) >= positions) return;
  const int64_t bytes = position_bytes(positions), width = rotary_width(config_);
  const Shape shape{rotary_tables(config_), positions, width};
  Buffer host("rotary table", bytes);
  const Tensor tables = host.tensor(table_dtype_, shape);
  for (int64_t k = 0; k < shape[0]; ++k) {
    const bool local = k > 0 && config_.local_rope_theta > 0;
    const bool unrotated = k > 0 && config_.unrotated_scaling > 0;
    RotaryFrequencies frequencies = rotary_frequencies(
        local ? config_.local_rope_theta : config_.rope_theta, width,
        local ? RopeScaling{} : config_.rope_scaling, config_.max_positions, positions);
    if (unrotated) {  // the queries' factor alone
      std::ranges::fill(frequencies.inverse, 0);
      frequencies.attention_factor = 1;
    }
    rotary_table(tables.slice(0, k, k + 1).reshape({positions, width}), frequencies.inverse,
                 k > 0 && !local ? query_factors(positions, frequencies.attention_factor)
                                 : std::vector<double>{frequencies.attention_factor});
  }
  rotary_block_ =
      ctx.gpu == nullptr ? std::move(host) : Buffer("rotary table", bytes, ctx.memory());
  cos_sin_ = rotary_block_.tensor(table_dtype_, shape);
  if (ctx.gpu != nullptr) transfer(ctx, rotary_block_.tensor(table_dtype_, shape), tables);
}

ConstTensor Model::rotary_rows(const Pass& pass) const {
  if (config_.learned_positions) return {};
  if (pass.ctx.planning())
    return {nullptr, table_dtype_,
            Shape{rotary_tables(config_), config_.max_positions, rotary_width(config_)}};
  const int64_t reserved = cos_sin_.present() ? cos_sin_.size(1) : 0;
  const int64_t end = pass.tokens.position_end;
  TRIREME_CHECK(end >= 1 && end <= reserved, "a pass over positions below ", end,
                " with a rotary table for ", reserved, " positions");
  return cos_sin_;
}

ConstTensor Model::rotary_of(const ConstTensor& tables, size_t layer, int chunk) const {
  const int64_t number = span(chunk).first_layer + static_cast<int64_t>(layer);
  const bool rotates = config_.rotates(number), temperature = config_.unrotated_scaling > 0;
  if (!tables.present() || (!rotates && (!temperature || tables.size(0) == 1))) return {};
  if (config_.query_scaling > 0 && !temperature) return tables;
  const bool second = temperature ? !rotates : tables.size(0) > 1 && config_.window(number) > 0;
  return tables.slice(0, second ? 1 : 0, second ? 2 : 1).reshape({tables.size(1), tables.size(2)});
}

Activation Model::forward(Pass& pass, int chunk, Activation x, Saved* saved,
                          Recompute recompute) const {
  pass.routers = routers_.get();
  const std::vector<Layer>& layers = layers_[static_cast<size_t>(chunk)];
  const ConstTensor tables = rotary_rows(pass);
  if (span(chunk).embedding) {
    const StoreBlockUse use(pass.params, forward_of(0),
                            forward_of(layers.empty() ? -1 : layers[0].number));
    x = embedding_->forward(pass);
  }
  if (saved != nullptr) saved->blocks.resize(layers.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    const StoreBlockUse use(pass.params, forward_of(layers[l].number),
                            forward_of(l + 1 < layers.size() ? layers[l + 1].number : -1));
    x = layers[l].block.forward(pass, std::move(x), rotary_of(tables, l, chunk),
                                saved != nullptr ? &saved->blocks[l] : nullptr, recompute);
  }
  return x;
}

Activation Model::backward_input(Pass& pass, int chunk, Activation dy, Saved saved,
                                 Recompute recompute, Deferred& deferred) const {
  pass.routers = routers_.get();
  const std::vector<Layer>& layers = layers_[static_cast<size_t>(chunk)];
  const ConstTensor tables = rotary_rows(pass);
  deferred.blocks.resize(layers.size());
  for (size_t l = layers.size(); l-- > 0;) {
    const StoreBlockUse use(pass.params, backward_of(layers[l].number),
                            backward_of(l > 0 ? layers[l - 1].number : -1));
    dy = layers[l].block.backward_input(pass, std::move(dy), rotary_of(tables, l, chunk),
                                        std::move(saved.blocks[l]), recompute, deferred.blocks[l]);
  }
  if (!span(chunk).embedding) return dy;
  deferred.d_embedding = std::move(dy);
  return {};
}

void Model::backward_weight(Pass& pass, int chunk, Deferred deferred,
                            const StoreBlockDone& done) const {
  const std::vector<Layer>& layers = layers_[static_cast<size_t>(chunk)];
  for (size_t l = layers.size(); l-- > 0;) {
    {
      std::optional<StoreBlockUse> use;
      if (adapted_ || layers[l].block.weight_pass_reads_weights(deferred.blocks[l]))
        use.emplace(pass.params, backward_of(layers[l].number));
      layers[l].block.backward_weight(pass, std::move(deferred.blocks[l]));
    }
    done(layers[l].number);
  }
  if (!span(chunk).embedding) return;
  embedding_->backward(pass, std::move(deferred.d_embedding));
  done(0);
}

Activation Model::backward(Pass& pass, int chunk, Activation dy, Saved saved, Recompute recompute,
                           const StoreBlockDone& done) const {
  pass.routers = routers_.get();
  const std::vector<Layer>& layers = layers_[static_cast<size_t>(chunk)];
  const ConstTensor tables = rotary_rows(pass);
  for (size_t l = layers.size(); l-- > 0;) {
    {
      const StoreBlockUse use(pass.params, backward_of(layers[l].number),
                              backward_of(l > 0 ? layers[l - 1].number : -1));
      TransformerBlock::Deferred deferred;
      dy = layers[l].block.backward_input(pass, std::move(dy), rotary_of(tables, l, chunk),
                                          std::move(saved.blocks[l]), recompute, deferred);
      layers[l].block.backward_weight(pass, std::move(deferred));
    }
    done(layers[l].number);
  }
  if (!span(chunk).embedding) return dy;
  embedding_->backward(pass, std::move(dy));
  done(0);
  return {};
}

int Model::last_layer_block() const {
  return layers_.back().empty() ? -1 : layers_.back().back().number;
}

void Model::loss(Pass& pass, Activation x, const Loss& loss) const {
  const StoreBlockUse table(pass.params, forward_of(head_->weight_block(pass.params)));
  const StoreBlockUse use(pass.params, forward_of(head_block_));
  head_->loss(pass, std::move(x), loss);
}

Activation Model::loss_and_backward(Pass& pass, Activation x, const Loss& loss,
                                    const StoreBlockDone& done) const {
  Activation dx;
  {
    // Backward of this chunk follows.
    const StoreBlockUse table(pass.params, forward_of(head_->weight_block(pass.params)));
    const StoreBlockUse use(pass.params, forward_of(head_block_), backward_of(last_layer_block()));
    dx = head_->loss_and_backward(pass, std::move(x), loss);
  }
  done(head_block_);
  return dx;
}

void Model::logits(Pass& pass, const ConstTensor& x, const Tensor& logits,
                   const ConstTensor& rows) const {
  const StoreBlockUse table(pass.params, forward_of(head_->weight_block(pass.params)));
  const StoreBlockUse use(pass.params, forward_of(head_block_));
  head_->logits(pass, x, logits, rows);
}

void Model::hidden(Pass& pass, const ConstTensor& x, const Tensor& out,
                   const ConstTensor& rows) const {
  const StoreBlockUse use(pass.params, forward_of(head_block_));
  head_->hidden(pass, x, out, rows);
}

bool has_targets(const ModelConfig& config, const LoraConfig& lora) {
  const Model model(config, DType::kF32, Layout{}, split_layers(config.num_layers, 1, {}), lora);
  return std::ranges::any_of(model.parameters().specs(), &ParameterSpec::adapter);
}

ParameterCounts count_parameters(const ModelConfig& config) {
  const Model model(config, DType::kF32);
  int64_t dense = 0, experts = 0;
  for (const ParameterSpec& spec : model.parameters().specs())
    (is_dense(spec.region) ? dense : experts) += spec.shape.numel();
  const MoeConfig& moe = config.moe;  // all experts have the same size
  const int64_t visited = experts == 0 ? 0 : experts / moe.experts * moe.experts_per_token;
  return {.all = dense + experts, .active = dense + visited};
}

int64_t parameter_count(const ModelConfig& config) { return count_parameters(config).all; }

}  // namespace trireme
