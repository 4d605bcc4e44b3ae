#include "tests/layouts/shard_bytes.h"

namespace trireme::test {
namespace {

constexpr int64_t kAlignment = 64;  // elements

// Part `index` of n elements divided into `size` parts as equal as possible.
int64_t part(int64_t n, const GroupCoord& coord) {
  return n * (coord.index + 1) / coord.size - n * coord.index / coord.size;
}

// A range of elements that is divided separately.
struct StoreBlock {
  int64_t elements = 0;
  Region region = Region::kDense;
  void add(int64_t matrix) { elements += (matrix + kAlignment - 1) / kAlignment * kAlignment; }
};

class RankShapes {
 public:
  RankShapes(const RunConfig& config, int rank)
      : config_(config), model_(config.model), layout_(layout_of(config.parallel, rank)) {}

  std::vector<StoreBlock> blocks() const {
    std::vector<StoreBlock> out;
    const int64_t chunks = int64_t{layout_.pp.size} * config_.pipeline.virtual_stages;
    int64_t layer = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const int64_t layers = config_.pipeline.layers.empty()
                                 ? model_.num_layers / chunks
                                 : config_.pipeline.layers[static_cast<size_t>(chunk)];
      const bool mine = chunk % layout_.pp.size == layout_.pp.index;
      if (mine && chunk == 0) add_embedding(out);
      for (int64_t l = layer; l < layer + layers; ++l)
        if (mine) add_layer(out, l);
      if (mine && chunk + 1 == chunks) add_head(out);
      layer += layers;
    }
    return out;
  }
  const Layout& layout() const { return layout_; }

 private:
  bool gpt2() const { return model_.family == ModelFamily::kGpt2; }
  bool shares_table() const { return model_.tie_word_embeddings && layout_.pp.size > 1; }

  void add_norm(StoreBlock& block) const {
    block.add(model_.hidden_size);
    if (gpt2()) block.add(model_.hidden_size);
  }

  void add_table(std::vector<StoreBlock>& out) const {
    if (shares_table()) out.emplace_back();
    out.back().add(part(model_.vocab_size, layout_.tp) * model_.hidden_size);
  }

  void add_embedding(std::vector<StoreBlock>& out) const {
    out.emplace_back();
    add_table(out);
    if (!gpt2()) return;
    if (shares_table()) out.emplace_back();
    out.back().add(model_.max_positions * model_.hidden_size);
  }

  void add_head(std::vector<StoreBlock>& out) const {
    add_norm(out.emplace_back());
    if (!model_.tie_word_embeddings || shares_table()) add_table(out);
  }

  void add_mlp(StoreBlock& block, int64_t width) const {
    const int64_t inner = part(width, layout_.tp) * (gpt2() ? 1 : 2);
    block.add(inner * model_.hidden_size);
    block.add(part(width, layout_.tp) * model_.hidden_size);
    if (!model_.mlp_bias) return;
    block.add(inner);
    block.add(model_.hidden_size);
  }

  void add_attention(StoreBlock& block) const {
    const int64_t width = model_.hidden_size, tp = layout_.tp.size;
    const int64_t q = model_.num_heads / tp * model_.head_dim;
    const int64_t kv = std::max<int64_t>(1, model_.num_kv_heads / tp) * model_.head_dim;
    block.add((q + 2 * kv) * width);
    block.add(width * q);
    if (model_.attention_bias) block.add(q + 2 * kv);
    if (model_.attention_output_bias) block.add(width);
    if (model_.attention_sinks) block.add(model_.num_heads / tp);
    if (!model_.qk_norm || model_.qk_norm_weightless) return;
    block.add(model_.qk_norm_whole ? q : model_.head_dim);
    block.add(model_.qk_norm_whole ? kv : model_.head_dim);
  }

  void add_latent_attention(StoreBlock& block) const {
    const LatentConfig& latent = model_.latent;
    const int64_t width = model_.hidden_size, heads = model_.num_heads / layout_.tp.size;
    block.add((latent.q_rank + latent.kv_rank + latent.rope_dim) * width);
    block.add(latent.q_rank);
    block.add(latent.kv_rank);
    block.add(heads * model_.head_dim * latent.q_rank);
    block.add(heads * (latent.nope_dim + latent.value_dim) * latent.kv_rank);
    block.add(width * heads * latent.value_dim);
  }

  void add_layer(std::vector<StoreBlock>& out, int64_t layer) const {
    const int64_t width = model_.hidden_size;
    StoreBlock dense, experts{0, Region::kExpert};
    const int norms = 2 * (model_.pre_norms ? 1 : 0) + 2 * (model_.post_norms ? 1 : 0);
    for (int norm = 0; norm < norms; ++norm) add_norm(dense);
    if (model_.latent.kv_rank > 0)
      add_latent_attention(dense);
    else
      add_attention(dense);
    const MoeConfig& moe = model_.moe;
    if (!moe.sparse(layer)) {
      add_mlp(dense, model_.intermediate_size);
    } else {
      dense.add(moe.experts * width);
      if (moe.router_bias) dense.add(moe.experts);
      if (moe.shared_intermediate_size > 0) add_mlp(dense, moe.shared_intermediate_size);
      if (moe.shared_gate) dense.add(width);
      const int64_t inner = part(moe.intermediate_size, layout_.etp);
      for (int64_t e = 0; e < part(moe.experts, layout_.ep); ++e) {
        experts.add(2 * inner * width);
        experts.add(width * inner);
        if (!moe.expert_bias) continue;
        experts.add(2 * inner);
        experts.add(width);
      }
    }
    out.push_back(dense);
    out.push_back(experts);
  }

  const RunConfig& config_;
  const ModelConfig& model_;
  Layout layout_;
};

}  // namespace

LayoutResult::Stored shard_bytes(const RunConfig& config, int rank) {
  const RankShapes shapes(config, rank);
  int64_t whole = 0, shard = 0;
  for (const StoreBlock& block : shapes.blocks()) {
    whole += block.elements;
    shard += part(block.elements, shapes.layout().of(block.region));
  }
  const int64_t value = dtype_size(config.dtype), sum = config.dtype == DType::kF64 ? 8 : 4;
  const int64_t states =
      config.dtype == DType::kBF16 ? 3 : 2;  // moments, and the weights themselves
  const int stage = config.zero.stage;
  return {value * (stage >= 3 ? shard : whole), sum * (stage >= 2 ? shard : whole),
          states * sum * (stage >= 1 ? shard : whole)};
}

std::string stored_difference(const LayoutResult& got, const RunConfig& config) {
  const int ranks = world_size(config.parallel);
  if (std::ssize(got.stored) != ranks)
    return concat(got.stored.size(), " ranks stored something, not ", ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const LayoutResult::Stored want = shard_bytes(config, rank);
    const LayoutResult::Stored& stored = got.stored[static_cast<size_t>(rank)];
    const auto other = [&](const char* what, int64_t bytes, int64_t expected) {
      return concat("rank ", rank, " stores ", bytes, " bytes of ", what, ", its shard is ",
                    expected);
    };
    if (stored.values != want.values) return other("parameters", stored.values, want.values);
    if (stored.gradients != want.gradients)
      return other("gradients", stored.gradients, want.gradients);
    if (stored.states != want.states) return other("states", stored.states, want.states);
  }
  return "";
}

std::string silent_group(const LayoutResult& got, const RunConfig& config) {
  const ParallelSizes& sizes = config.parallel;
  const bool experts = config.model.moe.experts > 0;
  const int stage = sizes.tp * sizes.cp * sizes.dp, u = sizes.cp_ulysses;
  const int copies = std::max(1, sizes.tp / static_cast<int>(config.model.num_kv_heads));
  const std::vector<std::pair<const char*, int>> groups = {
      {"tp", sizes.tp},
      {"pp", sizes.pp},
      {"dp x cp", sizes.dp * sizes.cp},
      {"cp ring", sizes.cp / u},
      {"cp heads", u},
      {"ep", sizes.ep},
      {"etp", sizes.etp},
      {"edp", experts ? stage / (sizes.ep * sizes.etp) : 1},
      {"kv copies", copies},
      {"tied embedding", config.model.tie_word_embeddings ? std::min(sizes.pp, 2) : 1}};
  for (const auto& [name, size] : groups) {
    const auto found = got.traffic.find(name);
    if (size > 1 && (found == got.traffic.end() || found->second <= 0))
      return concat("no traffic in group ", name, " of ", size, " ranks");
  }
  return "";
}

}  // namespace trireme::test
