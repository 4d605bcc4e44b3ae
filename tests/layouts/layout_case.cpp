#include "tests/layouts/layout_case.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/core/random.h"

namespace trireme::test {
namespace {

const char* word(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return "";
    case Recompute::kSelective: return ", selective";
    case Recompute::kFull: return ", full";
  }
  return "";
}

// The values of a case that a sample must not miss.
std::vector<std::string> traits(const LayoutCase& c) {
  return {concat("tp", c.sizes.tp),
          concat("cp", c.sizes.cp),
          concat("pp", c.sizes.pp),
          concat("dp", c.sizes.dp),
          concat("sp", c.sizes.sequence_parallel),
          concat("schedule ", c.schedule),
          concat("virtual ", c.virtual_stages),
          concat("recompute ", word(c.recompute)),
          concat("packed ", c.packed),
          concat("llama ", c.llama),
          concat("dropout ", c.dropout)};
}

}  // namespace

std::string LayoutCase::name() const {
  std::string text = concat("pp", sizes.pp, " dp", sizes.dp, " cp", sizes.cp, " tp", sizes.tp);
  if (sizes.sequence_parallel) text += " sp";
  if (sizes.pp > 1 || virtual_stages > 1) text += concat(", ", schedule);
  if (virtual_stages > 1) text += concat(" x", virtual_stages);
  text += word(recompute);
  if (packed) text += ", packed";
  text += llama ? ", llama" : ", gpt2";
  if (dropout) text += ", dropout";
  return concat(text, ", ", dtype_name(dtype));
}

std::vector<LayoutCase> all_cases(int most) {
  std::vector<LayoutCase> cases;
  for (const int tp : {1, 2, 4})
    for (const int dp : {1, 2, 4})
      for (const bool sp : {false, true})
        for (const Recompute recompute :
             {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
          for (const bool packed : {false, true})
            for (const bool llama : {false, true})
              for (const bool dropout : {false, true}) {
                if (tp * dp > most || (sp && tp == 1)) continue;
                LayoutCase c;
                c.sizes.tp = tp;
                c.sizes.dp = dp;
                c.sizes.sequence_parallel = sp;
                c.recompute = recompute;
                c.packed = packed;
                c.llama = llama;
                c.dropout = dropout;
                cases.push_back(c);
              }
  return cases;
}

std::vector<LayoutCase> sample_cases(const std::vector<LayoutCase>& all, size_t count,
                                     uint64_t seed) {
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const RandomKey key{seed, stream_id("layout sample")};
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[philox_word(key, i) % i]);
  // First one case for each trait that none has yet, then whatever comes.
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

RunConfig config_of(const LayoutCase& c) {
  RunConfig config;
  ModelConfig& model = config.model;
  model.family = c.llama ? ModelFamily::kLlama : ModelFamily::kGpt2;
  model.vocab_size = 61;
  model.hidden_size = 32;
  model.intermediate_size = 45;
  model.num_layers = 8;
  model.num_heads = 8;
  model.num_kv_heads = c.llama ? 2 : 8;
  model.head_dim = 4;
  model.max_positions = 32;
  model.initializer_range = 0.2;
  model.tie_word_embeddings = !c.llama;
  model.attention_bias = model.mlp_bias = !c.llama;
  if (c.dropout) model.residual_dropout = model.embedding_dropout = 0.1;
  config.parallel = c.sizes;
  config.pipeline.schedule = c.schedule;
  config.pipeline.virtual_stages = c.virtual_stages;
  config.recompute = c.recompute;
  config.dtype = c.dtype;
  config.train_batch_size = 8;
  config.micro_batch_size = 1;
  config.gradient_accumulation_steps = 8 / c.sizes.dp;
  config.sequence_length = 23;
  config.train_steps = 5;
  config.optimizer.lr = 5e-3;
  config.scheduler.style = DecayStyle::kConstant;
  config.comm.bucket_bytes = 16384;  // several buckets
  return config;
}

LayoutCase reference_of(const LayoutCase& c) {
  LayoutCase reference = c;
  reference.sizes = {};
  reference.schedule = "1f1b";
  reference.virtual_stages = 1;
  reference.recompute = Recompute::kNone;
  return reference;
}

}  // namespace trireme::test
