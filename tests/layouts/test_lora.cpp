// Adapters on a frozen model: the same training in every layout, and the memory that a rank needs
// for it.
#include <gtest/gtest.h>

#include <map>

#include "tests/layouts/finite_differences.h"

namespace trireme::test::test_lora {
namespace {

LoraConfig adapters(double dropout = 0) {
  return {.rank = 3, .alpha = 8, .dropout = dropout, .targets = {"all-linear"}};
}

LoraConfig with_magnitudes(double dropout = 0) {
  LoraConfig lora = adapters(dropout);
  lora.dora = true;
  return lora;
}

RunConfig config_with(const LayoutCase& c, const LoraConfig& lora) {
  RunConfig config = config_of(c);
  config.finetune.lora = lora;
  // B starts at zero: the steps must be large enough to give A gradients other than zero.
  config.optimizer.lr = 0.05;
  return config;
}

LayoutCase base_case(const std::string& experts = "") {
  LayoutCase c;
  c.experts = experts;
  return c;
}

std::vector<LayoutCase> layouts(const std::string& experts) {
  std::vector<LayoutCase> out;
  const auto add = [&](auto&& change) {
    LayoutCase c = base_case(experts);
    change(c);
    out.push_back(c);
  };
  add([](LayoutCase& c) { c.sizes.tp = 2; });
  add([](LayoutCase& c) {
    c.sizes.tp = 4;
    c.sizes.sequence_parallel = true;
  });
  add([](LayoutCase& c) { c.sizes.pp = 2; });
  add([](LayoutCase& c) {
    c.sizes.pp = 2;
    c.sizes.tp = 2;
    c.schedule = "zb_h1";
    c.packed = true;
  });
  add([](LayoutCase& c) {
    c.sizes.cp = 2;
    c.sizes.tp = 2;
    c.sizes.sequence_parallel = true;
  });
  for (const int stage : {0, 1, 2, 3})
    add([&](LayoutCase& c) {
      c.sizes.dp = 2;
      c.sizes.tp = 2;
      c.zero = stage;
      c.recompute = stage == 3 ? Recompute::kFull : Recompute::kSelective;
    });
  add([](LayoutCase& c) {
    c.sizes.dp = 2;
    c.sizes.pp = 2;
    c.schedule = "zb_h1";
    c.zero = 3;
  });
  if (!experts.empty())
    add([](LayoutCase& c) {
      c.sizes.dp = 2;
      c.sizes.ep = 2;
      c.sizes.tp = 2;
      c.zero = 3;
    });
  return out;
}

void expect_same(const std::string& experts, const LoraConfig& lora, bool llama = true,
                 const std::string& variant = "") {
  LayoutCase first = base_case(experts);
  first.llama = llama;
  first.variant = variant;
  const LayoutResult whole = run_training(config_with(first, lora), false, {});
  LayoutCase packed = first;
  packed.packed = true;
  const LayoutResult whole_packed = run_training(config_with(packed, lora), true, {});
  double moved = 0;  // of all gradients in the last step
  for (const auto& [name, gradient] : whole.gradients.back()) {
    EXPECT_NE(name.find(".lora_"), std::string::npos) << name << " is frozen";
    double norm = 0;
    for (const double g : gradient) norm += g * g;
    EXPECT_GT(norm, 0) << name;
    moved += norm;
  }
  EXPECT_GT(moved, 0);
  for (LayoutCase c : layouts(experts)) {
    c.llama = llama;
    c.variant = variant;
    const LayoutResult got = run_training(config_with(c, lora), c.packed, {});
    EXPECT_EQ(layout_difference(got, c.packed ? whole_packed : whole, DType::kF64), "") << c.name();
  }
}

TEST(Lora, EveryLayoutTrainsTheSameAdapters) { expect_same("", adapters()); }
TEST(Lora, DropoutDoesNotDependOnTheLayout) { expect_same("", adapters(0.2)); }
TEST(Lora, BiasesAndTiedHeadsStayFrozen) { expect_same("", adapters(), false); }
TEST(Lora, BesideExperts) { expect_same("qwen2_moe", adapters()); }

TEST(Lora, LatentAttention) { expect_same("deepseek_v3", adapters(0.1)); }

TEST(Lora, NormalizedQueriesAndKeys) { expect_same("", adapters(), true, "qwen3"); }
TEST(Lora, NormsOfAllHeads) { expect_same("", adapters(), true, "olmo2"); }
TEST(Lora, SoftCaps) { expect_same("", adapters(), true, "gemma2"); }
TEST(Lora, ScaledBranches) { expect_same("", adapters(0.1), true, "granite"); }

TEST(Dora, EveryLayoutTrainsTheSameAdapters) { expect_same("", with_magnitudes()); }
TEST(Dora, DropoutDoesNotDependOnTheLayout) { expect_same("", with_magnitudes(0.2)); }
TEST(Dora, BiasesAndTiedHeadsStayFrozen) { expect_same("", with_magnitudes(), false); }
TEST(Dora, BesideExperts) { expect_same("qwen2_moe", with_magnitudes()); }
TEST(Dora, LatentAttention) { expect_same("deepseek_v3", with_magnitudes(0.1)); }

// Adapters of some of the weights in a fused matrix, one in its middle.
void expect_some_layers(LoraConfig lora) {
  lora.targets = {"k_proj", "down_proj"};
  LayoutCase c = base_case();
  const LayoutResult whole = run_training(config_with(c, lora), false, {});
  for (const auto& [name, gradient] : whole.gradients.front())
    EXPECT_TRUE(name.find("k_proj.lora_") != std::string::npos ||
                name.find("down_proj.lora_") != std::string::npos)
        << name;
  c.sizes.tp = 4;  // more ranks than key/value heads: each is on several
  const LayoutResult divided = run_training(config_with(c, lora), false, {});
  EXPECT_EQ(layout_difference(divided, whole, DType::kF64), "");
}
TEST(Lora, SomeLayersOnly) { expect_some_layers(adapters()); }
TEST(Dora, SomeLayersOnly) { expect_some_layers(with_magnitudes(0.2)); }

// Preference training, whose losses belong to pairs and not to tokens.
TEST(Preferences, EveryLayoutLearnsTheSame) {
  for (const bool with_adapters : {false, true}) {
    const auto config_for = [&](const LayoutCase& c) {
      RunConfig config = config_with(c, with_adapters ? adapters() : LoraConfig());
      config.finetune.method = "dpo";
      config.finetune.dpo.label_smoothing = 0.1;
      return config;
    };
    const LayoutResult whole = run_training(config_for(base_case()), true, {});
    for (const LayoutCase& c : layouts("")) {
      if (c.sizes.cp > 1) continue;
      EXPECT_EQ(layout_difference(run_training(config_for(c), true, {}), whole, DType::kF64), "")
          << c.name();
    }
  }
}

// Frozen weights have no gradients, no moments and no master weights, in any ZeRO stage.
TEST(Lora, FrozenWeightsCostTheirValuesOnly) {
  for (const int stage : {0, 1, 2, 3}) {
    LayoutCase c = base_case();
    c.sizes.dp = 2;
    c.zero = stage;
    c.dtype = DType::kBF16;
    const RunConfig with = config_with(c, adapters());
    const LayoutResult got = run_training(with, false, {});
    int64_t adapted = 0, all = 0;
    for (const auto& [name, values] : got.parameters) {
      all += std::ssize(values);
      if (name.find(".lora_") != std::string::npos) adapted += std::ssize(values);
    }
    const LayoutResult::Stored& rank = got.stored.front();
    const int64_t padding = 64 * 2 * 7 * with.model.num_layers * 2;  // elements, a generous bound
    const int64_t share = stage >= 1 ? 2 : 1, gradient_share = stage >= 2 ? 2 : 1;
    EXPECT_LT(rank.gradients, 4 * (adapted / gradient_share + padding)) << stage;
    EXPECT_LT(rank.states, 12 * (adapted / share + padding)) << stage;
    EXPECT_GE(rank.values, 2 * all / (stage == 3 ? 2 : 1)) << stage;
    EXPECT_LT(4 * (adapted + padding), 2 * all) << "the test would not notice";
  }
}

// Completes derivatives that treat the row norms n of V = W + s B A as constants: the derivative by
// V[j] has the further term -m[j] dm[j] / n[j]^2 V[j].
void add_through_lengths(const ParameterStore& store, const Tensor& values, const Tensor& gradient,
                         double s) {
  std::map<std::string, ParamHandle> handles;
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h)
    handles[store.specs()[static_cast<size_t>(h)].name] = h;
  for (const auto& [name, handle] : handles) {
    if (!name.ends_with(kMagnitudeSuffix)) continue;
    const std::string layer = name.substr(0, name.rfind(".lora_"));
    const auto of = [&](const Tensor& flat, const char* suffix) {
      return store.view_in(flat, handles.at(layer + suffix));
    };
    const Tensor w = of(values, ".weight"), a = of(values, ".lora_A.weight"),
                 b = of(values, ".lora_B.weight"), da = of(gradient, ".lora_A.weight"),
                 db = of(gradient, ".lora_B.weight");
    const auto* m = of(values, kMagnitudeSuffix).as<double>();
    const auto* dm = of(gradient, kMagnitudeSuffix).as<double>();
    const int64_t out = w.size(0), in = w.size(1), rank = a.size(0);
    const auto at = [](const Tensor& t, int64_t i, int64_t j) -> double& {
      return t.as<double>()[i * t.size(1) + j];
    };
    for (int64_t j = 0; j < out; ++j) {
      std::vector<double> v(static_cast<size_t>(in));
      double squares = 0;
      for (int64_t i = 0; i < in; ++i) {
        double& e = v[static_cast<size_t>(i)] = at(w, j, i);
        for (int64_t k = 0; k < rank; ++k) e += s * at(b, j, k) * at(a, k, i);
        squares += e * e;
      }
      for (int64_t k = 0; k < rank; ++k)
        for (int64_t i = 0; i < in; ++i) {
          const double more = -s * m[j] * dm[j] / squares * v[static_cast<size_t>(i)];
          at(db, j, k) += more * at(a, k, i);
          at(da, k, i) += more * at(b, j, k);
        }
    }
  }
}

void expect_gradient(const LoraConfig& lora, int least) {
  RunConfig config = config_with(base_case(), lora);
  config.model.num_layers = 2;
  config.train_steps = 2;
  const auto complete = [&](const ParameterStore& store, const Tensor& values,
                            const Tensor& gradient) {
    add_through_lengths(store, values, gradient, lora.scale());
  };
  EXPECT_GT(expect_slopes(config, {.complete = complete}), least);
}
TEST(Lora, FiniteDifferences) { expect_gradient(adapters(), 20); }
TEST(Dora, FiniteDifferences) { expect_gradient(with_magnitudes(), 30); }
TEST(Dora, FiniteDifferencesThroughDropout) { expect_gradient(with_magnitudes(0.2), 30); }

}  // namespace
}  // namespace trireme::test::test_lora
