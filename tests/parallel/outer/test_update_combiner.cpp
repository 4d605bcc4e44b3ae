// Dot products and weighted sums of updates of large tensors, which are cut, against float64.
#include <gtest/gtest.h>

#include "parallel/outer/scratch_step.h"
#include "parallel/outer/update_combiner.h"
#include "tests/support/compare.h"

namespace trireme::test::test_update_combiner {
namespace {

constexpr int kSites = 3;
constexpr std::array<int64_t, 2> kElements{700'001, 5};

float element(int site, int tensor, int64_t i) {
  return static_cast<float>((i * 7919 + site * 104729 + tensor * 1299709) % 2003 - 990) / 512;
}

// A vector of each size, on the hub.
struct HubUpdates {
  HubUpdates() {
    for (size_t t = 0; t < kElements.size(); ++t)
      list.add({.name = concat("model.layers.0.bias_", t), .shape = {kElements[t]}, .block = 0});
    config.sites = kSites;
    config.algorithm = "adasum";
    store.emplace(list, DType::kF32);
    state.emplace(config, *store, layout_of({}, 0), GroupCoord{}, 1, false, 1, OuterState::kHub);
    state->allocate(ctx);
    combiner.emplace(*store, *state, kSites, nullptr, ctx);
    const OuterState::Unit& unit = *state->units().front();
    for (int site = 0; site < kSites; ++site) {
      std::vector<float> code;
      for (const CompressionState::Encoder& e : unit.exchange.own_piece()) {
        const auto tensor = static_cast<int>(code.empty() ? 0 : 1);
        for (int64_t i = 0; i < e.part.elements(); ++i) code.push_back(element(site, tensor, i));
        code.resize(code.size() + code.size() % 2);  // codes have whole words of 8 bytes
      }
      codes.push_back(code);
    }
  }

  ConstTensor code_of(int site) const {
    const std::vector<float>& code = codes[static_cast<size_t>(site)];
    return {code.data(), DType::kU8, Shape{std::ssize(code) * int64_t{sizeof(float)}}};
  }

  // Combines the updates of the sites that count.
  void combine(const std::vector<bool>& counts) {
    const OuterState::Unit& unit = *state->units().front();
    const auto codes_of = [&](int site) { return code_of(site); };
    const auto work = [&] {
      combiner->begin(0, counts, 1);
      combiner->add_products(unit, codes_of);
      combiner->weigh_by_products();
      combiner->combine(unit, codes_of);
    };
    const ArenaPlan plan = plan_scratch_step(ctx, work);
    ctx.arena.reserve(plan.capacity);
    in_scratch_step(ctx, plan, work);
  }

  ParameterList list;
  OuterConfig config;
  Ctx ctx{2, "test"};
  std::optional<ParameterStore> store;
  std::optional<OuterState> state;
  std::optional<UpdateCombiner> combiner;
  std::vector<std::vector<float>> codes;
};

double product_of(int a, int b, int tensor) {
  double sum = 0;
  for (int64_t i = 0; i < kElements[static_cast<size_t>(tensor)]; ++i)
    sum += static_cast<double>(element(a, tensor, i)) * static_cast<double>(element(b, tensor, i));
  return sum;
}

TEST(UpdateCombiner, AddsProductsOfAllParts) {
  HubUpdates updates;
  updates.combine(std::vector<bool>(kSites, true));
  const std::vector<double>& got = updates.combiner->products();
  ASSERT_EQ(updates.combiner->product_bytes(0), 2 * 6 * 8);
  ASSERT_EQ(got.size(), 12u);
  size_t pair = 0;
  for (int tensor = 0; tensor < 2; ++tensor)
    for (int a = 0; a < kSites; ++a)
      for (int b = 0; b <= a; ++b)
        EXPECT_NEAR(got[pair++] / product_of(a, a, tensor),
                    product_of(a, b, tensor) / product_of(a, a, tensor), 1e-12)
            << tensor << " " << a << " " << b;
}

// One of two updates that count; the difference of squares is that of its definition.
TEST(UpdateCombiner, WeighsUpdatesByTensor) {
  HubUpdates updates;
  updates.combine({true, false, true});
  double squares_of_d = 0, apart = 0, squares_of_sites = 0;
  const std::vector<double> got = to_doubles(updates.state->units().front()->update);
  for (int tensor = 0; tensor < 2; ++tensor) {
    const double product = product_of(0, 2, tensor);
    const double of_first = 1 - product / (2 * product_of(0, 0, tensor));
    const double of_last = 1 - product / (2 * product_of(2, 2, tensor));
    const int64_t begin = updates.store->range(tensor).begin;
    for (int64_t i = 0; i < kElements[static_cast<size_t>(tensor)]; ++i) {
      const double first = element(0, tensor, i), last = element(2, tensor, i);
      const double want = of_first * first + of_last * last;
      ASSERT_NEAR(got[static_cast<size_t>(begin + i)], want, 1e-6) << tensor << " " << i;
      squares_of_d += want * want;
      squares_of_sites += first * first + last * last;
      apart += (first - want) * (first - want) + (last - want) * (last - want);
    }
  }
  EXPECT_NEAR(updates.combiner->squares_of_combination() / squares_of_sites,
              (2 * squares_of_d + apart - squares_of_sites) / squares_of_sites, 1e-8);
}

TEST(UpdateCombiner, NoUpdateThatCountsIsZero) {
  HubUpdates updates;
  updates.combine(std::vector<bool>(kSites, false));
  const Tensor& update = updates.state->units().front()->update;
  EXPECT_EQ(to_doubles(update), std::vector<double>(static_cast<size_t>(update.numel())));
  EXPECT_EQ(updates.combiner->squares_of_combination(), 0);
}

}  // namespace
}  // namespace trireme::test::test_update_combiner
