#include "tests/layouts/layout_case.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>
#include <set>

#include "engine/core/random.h"
#include "optim/adamw.h"
#include "optim/optimizers.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/schedule_file.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test {
namespace {

constexpr int64_t kGlobalBatch = 8;  // sequences
constexpr int64_t kHeads = 8;

const char* word(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return "";
    case Recompute::kSelective: return ", selective";
    case Recompute::kFull: return ", full";
  }
  return "";
}

// Latents and values with widths that no parallel dimension divides.
void set_latents(ModelConfig& model) {
  model.family = ModelFamily::kDeepseekV3;
  model.latent = {.q_rank = 11, .kv_rank = 7, .nope_dim = 5, .rope_dim = 2, .value_dim = 3};
  model.head_dim = 7;
  model.num_kv_heads = model.num_heads;
  model.rope_interleaved = true;
  model.attention_scale = 0.5;
}

// Experts that no parallel dimension divides, with everything that is exchanged: losses over
// samples and over the last step, selection biases with updates, capacity, shared experts.
void set_experts(const LayoutCase& c, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.experts = 6;
  moe.experts_per_token = 2;
  moe.intermediate_size = 13;
  moe.balance_coef = 0.1;
  moe.z_coef = 0.01;
  if (c.experts == "mixtral") {
    model.family = ModelFamily::kMixtral;
    moe.balance_scope = BalanceScope::kGlobal;
    moe.capacity_factor = 1.25;
  } else if (c.experts == "qwen2_moe") {
    model.family = ModelFamily::kQwen2Moe;
    moe.normalize_weights = false;
    moe.shared_intermediate_size = 11;
    moe.shared_gate = true;
    moe.sparse_step = 2;
    moe.sparse_phase = 1;
    model.attention_bias = true;
  } else if (c.experts == "gpt_oss") {
    model.family = ModelFamily::kGptOss;
    model.attention_bias = model.attention_output_bias = model.attention_sinks = true;
    model.clamped_gate = ClampedGate{.limit = 0.3, .slope = 1.5};  // some operands are beyond it
    model.initializer_range = 0.25;
    for (int64_t l = 0; l < model.num_layers; ++l) model.windows.push_back(l % 2 == 0 ? 5 : 0);
    model.rope_scaling = {
        .type = RopeType::kYarn, .factor = 4, .original_positions = 8, .truncate = false};
    moe.expert_bias = moe.router_bias = true;
  } else if (c.experts == "llama4") {
    model.family = ModelFamily::kLlama4;
    model.qk_norm = model.qk_norm_after_rope = model.qk_norm_weightless = true;
    model.rope_interleaved = true;
    model.query_scaling = 0.3;
    model.unrotated_scaling = 4;
    model.attention_chunk = 5;  // longer than a context chunk, shorter than two of some
    for (int64_t l = 0; l < model.num_layers; ++l) {
      model.rope_layers.push_back(l % 3 == 1 ? 0 : 1);
      model.chunked_layers.push_back(model.rope_layers.back());
    }
    moe.sigmoid_scores = moe.scaled_inputs = moe.choose_by_logits = true;
    moe.normalize_weights = false;
    moe.shared_intermediate_size = 11;
    moe.capacity_factor = 1.25;
    moe.dense_layers = {0, 3};
  } else {
    model.family = ModelFamily::kDeepseek;
    if (c.experts == "deepseek_v3") set_latents(model);
    moe.sigmoid_scores = moe.selection_bias = true;
    moe.bias_update_speed = 0.01;
    moe.groups = 3;
    moe.kept_groups = 2;
    moe.shared_intermediate_size = 26;
    moe.balance_scope = BalanceScope::kSequence;
    moe.first_sparse = 2;
  }
}

void set_variant(const std::string& variant, ModelConfig& model) {
  constexpr int64_t kWindow = 5;  // longer than a context chunk, shorter than two of some
  const auto layers = static_cast<size_t>(model.num_layers);
  RopeScaling& rope = model.rope_scaling;
  if (variant == "mistral") {
    model.family = ModelFamily::kMistral;
    model.windows.assign(layers, kWindow);
    rope = {.type = RopeType::kLinear, .factor = 2};
  } else if (variant == "qwen2") {
    model.family = ModelFamily::kQwen2;
    model.attention_bias = model.tie_word_embeddings = true;
    model.windows.assign(layers, 0);
    std::fill(model.windows.begin() + std::ssize(model.windows) / 2, model.windows.end(), kWindow);
    rope = {.type = RopeType::kDynamic, .factor = 2};
    model.max_positions = 16;
  } else if (variant == "qwen3") {
    model.family = ModelFamily::kQwen3;
    model.qk_norm = true;
    rope = {.type = RopeType::kYarn, .factor = 4, .original_positions = 8};
  } else if (variant == "gemma3") {
    model.family = ModelFamily::kGemma3;
    model.qk_norm = model.zero_centered_gamma = model.post_norms = model.gelu_gate = true;
    model.tie_word_embeddings = true;
    model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
    model.attention_scale = 0.4;
    model.logits_soft_cap = 1;
    for (size_t l = 0; l < layers; ++l) model.windows.push_back(l % 3 == 1 ? 0 : kWindow);
    model.local_rope_theta = 100;
    rope = {.type = RopeType::kLinear, .factor = 4};
  } else if (variant == "gemma2") {
    model.family = ModelFamily::kGemma2;
    model.zero_centered_gamma = model.post_norms = model.gelu_gate = true;
    model.tie_word_embeddings = true;
    model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
    model.attention_scale = 0.4;
    model.attention_soft_cap = 0.5;
    model.logits_soft_cap = 2;
    for (size_t l = 0; l < layers; ++l) model.windows.push_back(l % 2 == 0 ? kWindow : 0);
  } else if (variant == "smollm3") {
    model.family = ModelFamily::kSmolLm3;
    model.tie_word_embeddings = true;
    for (size_t l = 0; l < layers; ++l) {
      model.rope_layers.push_back(l % 3 == 1 ? 0 : 1);
      model.windows.push_back(l % 3 == 1 ? kWindow : 0);
    }
    rope = {.type = RopeType::kLinear, .factor = 2};
  } else if (variant == "granite") {
    model.family = ModelFamily::kGranite;
    model.tie_word_embeddings = model.exact_embedding_scale = true;
    model.embedding_scale = 1.7;
    model.attention_scale = 0.4;
    model.residual_scale = 0.6;
    model.logits_divisor = 1.3;
  } else if (variant == "olmo2") {
    model.family = ModelFamily::kOlmo2;
    model.pre_norms = false;
    model.post_norms = model.qk_norm = model.qk_norm_whole = true;
    rope = {.type = RopeType::kLinear, .factor = 2};
  } else if (variant == "glm4") {
    model.family = ModelFamily::kGlm4;
    model.post_norms = model.attention_bias = model.rope_interleaved = true;
    model.rotary_dim = model.head_dim / 2 / 2 * 2;
    rope = {.type = RopeType::kYarn, .factor = 4, .original_positions = 8};
    model.query_scaling = 0.2;
  }
}

}  // namespace

LayoutCase layout(int dp, int tp, int pp, int cp, int zero, bool sequence_parallel) {
  LayoutCase c;
  c.sizes.dp = dp;
  c.sizes.tp = tp;
  c.sizes.pp = pp;
  c.sizes.cp = cp;
  c.sizes.sequence_parallel = sequence_parallel;
  c.zero = zero;
  return c;
}

CompressionConfig compression(const CompressionOptions& options) {
  CompressionConfig config;
  config.enabled = true;
  config.options = options;
  config.min_bytes = 300;
  return config;
}

std::string mesh(const LayoutCase& c) {
  std::string text =
      concat("pp", c.sizes.pp, " dp", c.sizes.dp, " cp", c.sizes.cp, " tp", c.sizes.tp);
  if (c.sizes.ep > 1 || c.sizes.etp > 1) text += concat(" ep", c.sizes.ep, " etp", c.sizes.etp);
  if (c.sizes.sequence_parallel) text += " sp";
  return text;
}

namespace {

std::string context_words(const ParallelSizes& sizes) {
  const bool ring = sizes.cp_ulysses<sizes.cp, heads = sizes.cp_ulysses> 1;
  if (heads && ring) return "a2a+p2p (Ulysses and ring)";
  return heads ? "a2a (Ulysses)" : "p2p (ring)";
}

const char* offload_word(OffloadDevice device) {
  switch (device) {
    case OffloadDevice::kNone: return "none";
    case OffloadDevice::kCpu: return "cpu";
    case OffloadDevice::kFile: return "nvme";
  }
  return "";
}

std::string schedule_words(const LayoutCase& c) {
  return c.schedule == "custom" ? "custom, from a file" : c.schedule;
}

}  // namespace

std::vector<std::string> variants(const LayoutCase& c) {
  std::vector<std::string> out;
  out.push_back(concat("schedule ", schedule_words(c)));
  out.push_back(concat("model ", c.model()));
  if (c.virtual_stages > 1) out.push_back(concat(c.virtual_stages, " chunks a rank"));
  if (!c.stage_layers.empty()) out.emplace_back("uneven stages");
  if (c.recompute == Recompute::kSelective) out.emplace_back("selective recompute");
  if (c.recompute == Recompute::kFull) out.emplace_back("full recompute");
  if (c.sizes.cp > 1) {
    out.push_back(concat("context ", context_words(c.sizes)));
    out.push_back(concat("context ", context_balance_name(c.sizes.cp_balance)));
  }
  if (c.sizes.sequence_parallel) out.emplace_back("sequence parallel");
  if (c.sizes.ep > 1) out.emplace_back("expert parallel");
  if (c.sizes.etp > 1) out.emplace_back("expert tensor parallel");
  if (c.zero > 0) out.push_back(concat("ZeRO stage ", c.zero));
  if (c.offload != OffloadDevice::kNone)
    out.push_back(concat("optimizer states offloaded to ", offload_word(c.offload)));
  if (c.packed) out.emplace_back("packed documents");
  if (c.dropout) out.emplace_back("dropout");
  return out;
}

std::vector<std::pair<std::string, std::string>> dimensions(const LayoutCase& c) {
  const char* recompute[] = {"none", "selective", "full"};
  const ParallelSizes& s = c.sizes;
  std::string schedule = schedule_words(c);
  if (c.virtual_stages > 1) schedule += concat(", ", c.virtual_stages, " chunks a rank");
  if (!c.stage_layers.empty()) schedule += ", uneven stages";
  return {
      {"tensor parallel (tp)", concat(s.tp)},
      {"sequence parallel", s.sequence_parallel ? "on" : "off"},
      {"pipeline parallel (pp)", concat(s.pp)},
      {"pipeline schedule", schedule},
      {"context parallel (cp)", concat(s.cp)},
      {"context exchange", s.cp == 1 ? "none" : context_words(s)},
      {"context balance", s.cp == 1 ? "none" : context_balance_name(s.cp_balance)},
      {"data parallel (dp)", concat(s.dp)},
      {"ZeRO stage", concat(c.zero)},
      {"optimizer states offloaded to", offload_word(c.offload)},
      {"expert parallel (ep)", concat(s.ep)},
      {"expert tensor parallel (etp)", concat(s.etp)},
      {"recompute", recompute[static_cast<size_t>(c.recompute)]},
      {"sequences", c.packed ? "packed documents" : "one document"},
      {"dropout", c.dropout ? "on" : "off"},
      {"model", c.model()},
  };
}

std::string LayoutCase::model() const {
  if (!experts.empty()) return experts;
  if (!variant.empty()) return variant;
  return llama ? "llama" : "gpt2";
}

std::string LayoutCase::name() const {
  std::string text = mesh(*this);
  if (sizes.cp_ulysses > 1) text += concat(" a2a", sizes.cp_ulysses);
  if (sizes.cp_balance != ContextBalance::kZigzag) text += " contiguous";
  text += concat(", ", schedule);
  if (virtual_stages > 1) text += concat(" x", virtual_stages);
  if (!stage_layers.empty()) text += " uneven";
  if (zero > 0) text += concat(", zero", zero);
  if (offload != OffloadDevice::kNone) text += concat(", offload ", offload_word(offload));
  text += word(recompute);
  if (packed) text += ", packed";
  text += concat(", ", model());
  if (dropout) text += ", dropout";
  return concat(text, ", ", dtype_name(dtype));
}

namespace {

// Ways for cp ranks to share sequences.
std::vector<ParallelSizes> context_sizes(int tp) {
  std::vector<ParallelSizes> all(1);
  for (const int cp : {2, 4})
    for (const ContextCommType type :
         {ContextCommType::kP2P, ContextCommType::kA2A, ContextCommType::kA2AP2P})
      for (const ContextBalance balance : {ContextBalance::kZigzag, ContextBalance::kContiguous}) {
        const bool zigzag = balance == ContextBalance::kZigzag;
        ParallelSizes sizes;
        sizes.cp = cp;
        sizes.cp_ulysses = ulysses_ranks(type, cp, kHeads / tp);
        sizes.cp_balance = balance;
        const bool possible = sizes.cp_ulysses == 1 || (sizes.cp_ulysses > 1 && zigzag);
        if (possible && std::ranges::find(all, sizes) == all.end()) all.push_back(sizes);
      }
  return all;
}

std::vector<ParallelSizes> all_sizes(int most) {
  std::vector<ParallelSizes> out;
  for (const int pp : {1, 2, 4})
    for (const int dp : {1, 2, 4})
      for (const int tp : {1, 2, 4})
        for (const bool sp : {false, true})
          for (ParallelSizes sizes : context_sizes(tp)) {
            if (pp * dp * tp * sizes.cp > most || (sp && tp == 1)) continue;
            sizes.pp = pp;
            sizes.dp = dp;
            sizes.tp = tp;
            sizes.sequence_parallel = sp;
            out.push_back(sizes);
          }
  return out;
}

struct ScheduleChoice {
  const char* name;
  int virtual_stages;
  std::vector<int64_t> layers;
};

std::vector<ScheduleChoice> schedules(const ParallelSizes& sizes) {
  if (sizes.pp == 1) return {{"1f1b", 1, {}}, {"zb_h1", 1, {}}, {"custom", 1, {}}};
  std::vector<ScheduleChoice> out = {
      {"gpipe", 1, {}}, {"1f1b", 1, {}},  {"interleaved_1f1b", 2, {}},
      {"zb_h1", 1, {}}, {"zb_h2", 1, {}}, {"custom", 1, {}}};
  if (sizes.pp == 2) out.push_back({"1f1b", 1, {5, 3}});
  if ((kGlobalBatch / sizes.dp) % sizes.pp != 0) out.erase(out.begin() + 2);
  return out;
}

}  // namespace

std::vector<LayoutCase> all_cases(int most) {
  std::vector<LayoutCase> cases;
  LayoutCase c;
  const auto for_options = [&] {
    for (const OffloadDevice offload :
         {OffloadDevice::kNone, OffloadDevice::kCpu, OffloadDevice::kFile})
      for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
        for (const bool packed : {false, true})
          for (const char* model : {"gpt2", "", "mistral", "qwen2", "qwen3", "gemma2", "gemma3",
                                    "smollm3", "granite", "olmo2", "glm4"})
            for (const bool dropout : {false, true}) {
              c.offload = offload;
              c.recompute = recompute;
              c.packed = packed;
              c.llama = model != std::string("gpt2");
              c.variant = c.llama ? model : "";
              c.dropout = dropout;
              cases.push_back(c);
            }
  };
  for (const ParallelSizes& sizes : all_sizes(most))
    for (const ScheduleChoice& schedule : schedules(sizes))
      for (int zero = 0; zero <= (sizes.dp > 1 ? 3 : 0); ++zero) {
        c.sizes = sizes;
        c.schedule = schedule.name;
        c.virtual_stages = schedule.virtual_stages;
        c.stage_layers = schedule.layers;
        c.zero = zero;
        for_options();
      }
  return cases;
}

namespace {

// Properties of a case that a sample must include.
std::vector<std::string> traits(const LayoutCase& c) {
  std::vector<std::string> out;
  for (const auto& [name, value] : dimensions(c)) out.push_back(concat(name, " ", value));
  out.push_back(concat("ep", c.sizes.ep, " ", c.experts));
  return out;
}

}  // namespace

std::vector<LayoutCase> sample_cases(const std::vector<LayoutCase>& all, size_t count,
                                     uint64_t seed) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const RandomKey key{seed, stream_id("layout sample")};
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[philox_word(key, i) % i]);
  // First one case for each property that no case has yet, then any.
  std::set<std::string> seen;
  std::vector<size_t> chosen;
  std::vector<bool> taken(all.size(), false);
  const auto take = [&](size_t i) {
    taken[i] = true;
    chosen.push_back(i);
    for (const std::string& trait : traits(all[i])) seen.insert(trait);
  };
  for (const size_t i : order) {
    const std::vector<std::string> own = traits(all[i]);
    if (std::ranges::any_of(own, [&](const std::string& t) { return !seen.contains(t); })) take(i);
  }
  for (const size_t i : order)
    if (chosen.size() < count && !taken[i]) take(i);
  std::ranges::sort(chosen);
  std::vector<LayoutCase> sample;
  for (const size_t i : chosen) sample.push_back(all[i]);
  return sample;
}

std::vector<LayoutCase> expert_cases(int most) {
  std::vector<LayoutCase> cases;
  for (const ParallelSizes& dense : all_sizes(most))
    for (const int ep : {1, 2, 4})
      for (const int etp : {1, 2})
        for (const char* experts :
             {"mixtral", "qwen2_moe", "deepseek", "deepseek_v3", "gpt_oss", "llama4"})
          for (const int zero : {0, 1, 2, 3}) {
            const int stage_ranks = dense.tp * dense.cp * dense.dp;
            if (stage_ranks % (ep * etp) != 0) continue;
            LayoutCase c;
            c.sizes = dense;
            c.sizes.ep = ep;
            c.sizes.etp = etp;
            c.zero = zero;
            c.schedule = dense.pp > 1 && zero % 2 == 1 ? "zb_h1" : "1f1b";
            c.experts = experts;
            c.recompute = ep == 1   ? Recompute::kNone
                          : ep == 2 ? Recompute::kSelective
                                    : Recompute::kFull;
            c.packed = etp == 2;
            if (zero == 2) c.offload = OffloadDevice::kFile;
            cases.push_back(c);
          }
  return cases;
}

namespace {

// Files of the runs in this process.
const ScratchDirectory& scratch() {
  static const ScratchDirectory directory;
  return directory;
}

// Two waves of micro-batches, forward and then backward, and the weight gradients of a wave from
// its last micro-batch to its first: different from all named schedules.
std::string custom_schedule(int stages, int micro_batches) {
  Schedule schedule;
  schedule.kind = ScheduleKind::kCustom;
  schedule.stages = stages;
  schedule.micro_batches = micro_batches;
  std::vector<Instruction> rank;
  for (const auto& [begin, end] :
       {std::pair{0, micro_batches / 2}, std::pair{micro_batches / 2, micro_batches}}) {
    for (int m = begin; m < end; ++m) rank.push_back({InstructionKind::kForward, 0, m});
    for (int m = begin; m < end; ++m) rank.push_back({InstructionKind::kBackwardInput, 0, m});
    for (int m = end - 1; m >= begin; --m) rank.push_back({InstructionKind::kBackwardWeight, 0, m});
  }
  schedule.ranks.assign(static_cast<size_t>(stages), rank);
  const std::string path = scratch() / concat("waves-", stages, "-", micro_batches, ".json");
  std::ofstream(path) << schedule_json(schedule);
  return path;
}

// Seed for weights with which no router of the run is near another choice
// (tests/layouts/routing_margin.h).
uint64_t seed_of(const LayoutCase& c) {
  if (c.experts == "mixtral") return 1;
  if (c.experts == "qwen2_moe") return 5;
  if (c.experts == "deepseek") return 2;
  if (c.experts == "deepseek_v3") return 25;
  if (c.experts == "gpt_oss") return 14;
  if (c.experts == "llama4") return 2;
  return 1234;
}

}  // namespace

RunConfig config_of(const LayoutCase& c) {
  RunConfig config;
  ModelConfig& model = config.model;
  model.family = c.llama ? ModelFamily::kLlama : ModelFamily::kGpt2;
  model.layer_norm = model.learned_positions = !c.llama;
  model.gated_mlp = c.llama;
  model.vocab_size = 61;
  model.hidden_size = 32;
  model.intermediate_size = 45;
  model.num_layers = 8;
  model.num_heads = kHeads;
  model.num_kv_heads = c.llama ? 2 : 8;
  model.head_dim = 4;
  model.max_positions = 32;
  model.initializer_range = 0.2;
  model.tie_word_embeddings = !c.llama;
  model.attention_bias = model.attention_output_bias = model.mlp_bias = !c.llama;
  set_variant(c.variant, model);
  if (!c.experts.empty()) set_experts(c, model);
  if (c.dropout) model.residual_dropout = model.embedding_dropout = model.attention_dropout = 0.1;
  config.compression = c.compression;
  config.outer = c.outer;
  config.weight_compression = c.weights;
  const bool blocks = c.compression.enabled || c.outer.compression.enabled || c.weights.enabled;
  if (blocks) model.intermediate_size = 64;
  if (blocks && model.moe.experts > 0) model.moe.intermediate_size = 32;
  config.parallel = c.sizes;
  config.pipeline.schedule =
      c.schedule == "custom"
          ? custom_schedule(c.sizes.pp, static_cast<int>(kGlobalBatch) / c.sizes.dp)
          : c.schedule;
  config.pipeline.virtual_stages = c.virtual_stages;
  config.pipeline.layers = c.stage_layers;
  config.zero.stage = c.zero;
  config.zero.offload_optimizer.device = c.offload;
  if (c.offload == OffloadDevice::kFile) {
    config.zero.offload_optimizer.path = scratch().path();
    config.zero.offload_optimizer.buffer_count = 2;
    config.zero.offload_optimizer.buffer_elements = 4096;  // several windows
  }
  config.recompute = c.recompute;
  config.dtype = c.dtype;
  config.train_batch_size = kGlobalBatch;
  config.micro_batch_size = 1;
  config.gradient_accumulation_steps = kGlobalBatch / (c.sizes.dp * c.outer.sites);
  config.sequence_length = 23;
  config.train_steps = 5;
  config.seed = seed_of(c);
  config.optimizer.lr = 1e-3;  // larger steps would amplify rounding
  // Likewise steps of full length along gradients that are zero by mathematics, as for biases of
  // keys.
  AdamW rule;
  rule.eps = 1e-4;
  config.optimizer.rule = c.optimizer.empty() ? rule.clone() : optimizer_row(c.optimizer).make();
  config.scheduler.style = DecayStyle::kConstant;
  config.comm.bucket_bytes = 16384;  // several buckets
  return config;
}

LayoutCase reference_of(const LayoutCase& c) {
  LayoutCase reference = c;
  reference.sizes = {};
  reference.schedule = "1f1b";
  reference.virtual_stages = 1;
  reference.stage_layers.clear();
  reference.zero = 0;
  reference.offload = OffloadDevice::kNone;
  reference.recompute = Recompute::kNone;
  return reference;
}

}  // namespace trireme::test
