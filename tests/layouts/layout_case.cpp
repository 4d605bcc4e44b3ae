#include "tests/layouts/layout_case.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "engine/core/random.h"

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

// The values of a case that a sample must not miss.
std::vector<std::string> traits(const LayoutCase& c) {
  std::vector<std::string> out = variants(c);
  for (const std::string& dim :
       {concat("tp", c.sizes.tp), concat("cp", c.sizes.cp), concat("pp", c.sizes.pp),
        concat("dp", c.sizes.dp), concat("sp", c.sizes.sequence_parallel)})
    out.push_back(dim);
  return out;
}

}  // namespace

std::string mesh(const LayoutCase& c) {
  std::string text =
      concat("pp", c.sizes.pp, " dp", c.sizes.dp, " cp", c.sizes.cp, " tp", c.sizes.tp);
  if (c.sizes.sequence_parallel) text += " sp";
  return text;
}

std::vector<std::string> variants(const LayoutCase& c) {
  std::vector<std::string> out;
  out.push_back(concat("schedule ", c.schedule));
  out.push_back(concat("model ", c.llama ? "llama" : "gpt2"));
  if (c.virtual_stages > 1) out.push_back(concat(c.virtual_stages, " chunks a rank"));
  if (!c.stage_layers.empty()) out.emplace_back("uneven stages");
  if (c.recompute == Recompute::kSelective) out.emplace_back("selective recompute");
  if (c.recompute == Recompute::kFull) out.emplace_back("full recompute");
  if (c.sizes.cp > 1) {
    const bool ring = c.sizes.cp_exchange < c.sizes.cp;
    const bool heads = c.sizes.cp_exchange > 1;
    out.push_back(
        concat("context ", heads ? "a2a" : "", heads && ring ? "+" : "", ring ? "p2p" : ""));
    out.push_back(concat("context ", context_balance_name(c.sizes.cp_balance)));
  }
  if (c.zero > 0) out.push_back(concat("ZeRO stage ", c.zero));
  if (c.packed) out.emplace_back("packed documents");
  if (c.dropout) out.emplace_back("dropout");
  return out;
}

std::string LayoutCase::name() const {
  std::string text = mesh(*this);
  if (sizes.cp_exchange > 1) text += concat(" a2a", sizes.cp_exchange);
  if (sizes.cp_balance != ContextBalance::kZigzag) text += " contiguous";
  text += concat(", ", schedule);
  if (virtual_stages > 1) text += concat(" x", virtual_stages);
  if (!stage_layers.empty()) text += " uneven";
  if (zero > 0) text += concat(", zero", zero);
  text += word(recompute);
  if (packed) text += ", packed";
  text += llama ? ", llama" : ", gpt2";
  if (dropout) text += ", dropout";
  return concat(text, ", ", dtype_name(dtype));
}

namespace {

// The ways in which cp ranks may share sequences.
std::vector<ParallelSizes> context_sizes(int tp) {
  std::vector<ParallelSizes> all(1);
  for (const int cp : {2, 4})
    for (const ContextCommType type :
         {ContextCommType::kP2P, ContextCommType::kA2A, ContextCommType::kA2AP2P})
      for (const ContextBalance balance : {ContextBalance::kZigzag, ContextBalance::kContiguous}) {
        const bool zigzag = balance == ContextBalance::kZigzag;
        ParallelSizes sizes;
        sizes.cp = cp;
        sizes.cp_exchange = ulysses_ranks(type, cp, kHeads / tp);
        sizes.cp_balance = balance;
        const bool possible = sizes.cp_exchange == 1 || (sizes.cp_exchange > 1 && zigzag);
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
  if (sizes.pp == 1) return {{"1f1b", 1, {}}, {"zb_h1", 1, {}}};
  std::vector<ScheduleChoice> out = {{"gpipe", 1, {}},
                                     {"1f1b", 1, {}},
                                     {"interleaved_1f1b", 2, {}},
                                     {"zb_h1", 1, {}},
                                     {"zb_h2", 1, {}}};
  if (sizes.pp == 2) out.push_back({"1f1b", 1, {5, 3}});
  if ((kGlobalBatch / sizes.dp) % sizes.pp != 0) out.erase(out.begin() + 2);
  return out;
}

}  // namespace

std::vector<LayoutCase> all_cases(int most) {
  std::vector<LayoutCase> cases;
  for (const ParallelSizes& sizes : all_sizes(most))
    for (const ScheduleChoice& schedule : schedules(sizes))
      for (int zero = 0; zero <= (sizes.dp > 1 ? 3 : 0); ++zero)
        for (const Recompute recompute :
             {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
          for (const bool packed : {false, true})
            for (const bool llama : {false, true})
              for (const bool dropout : {false, true}) {
                LayoutCase c;
                c.sizes = sizes;
                c.schedule = schedule.name;
                c.virtual_stages = schedule.virtual_stages;
                c.stage_layers = schedule.layers;
                c.zero = zero;
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
  model.num_heads = kHeads;
  model.num_kv_heads = c.llama ? 2 : 8;
  model.head_dim = 4;
  model.max_positions = 32;
  model.initializer_range = 0.2;
  model.tie_word_embeddings = !c.llama;
  model.attention_bias = model.mlp_bias = !c.llama;
  if (c.dropout) model.residual_dropout = model.embedding_dropout = model.attention_dropout = 0.1;
  config.parallel = c.sizes;
  config.pipeline.schedule = c.schedule;
  config.pipeline.virtual_stages = c.virtual_stages;
  config.pipeline.layers = c.stage_layers;
  config.zero.stage = c.zero;
  config.recompute = c.recompute;
  config.dtype = c.dtype;
  config.train_batch_size = kGlobalBatch;
  config.micro_batch_size = 1;
  config.gradient_accumulation_steps = kGlobalBatch / c.sizes.dp;
  config.sequence_length = 23;
  config.train_steps = 5;
  config.optimizer.lr = 1e-3;  // larger steps would amplify rounding
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
  reference.recompute = Recompute::kNone;
  return reference;
}

}  // namespace trireme::test
