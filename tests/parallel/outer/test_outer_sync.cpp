// Rounds of sites against their replay in numpy (tests/golden/make_outer.py).
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <latch>
#include <limits>
#include <nlohmann/json.hpp>

#include "parallel/comm/world.h"
#include "parallel/outer/outer_algorithms.h"
#include "parallel/outer/outer_sync.h"
#include "parallel/outer/peer_exchange.h"
#include "parallel/outer/sites.h"
#include "tests/support/compare.h"
#include "tests/support/json_file.h"
#include "tests/support/source_folder.h"

namespace trireme::test::test_outer_sync {
namespace {

using Json = nlohmann::json;

constexpr int64_t kRows = 6, kColumns = 37;
constexpr int kSites = 3, kRounds = 20;

// Element i of the matrix number `step` of tests/golden/make_compression.py.
double element(int64_t step, int64_t i) {
  const int64_t x = (i * 7919 + step * 104729) % 2003;
  return static_cast<double>(x * x % 2003 - 1001) / 512;
}

using Matrices = std::array<std::vector<double>, 2>;

// A matrix for each layer.
ParameterList matrices(int layers) {
  ParameterList list;
  for (int l = 0; l < layers; ++l)
    list.add({.name = concat("model.layers.", l, ".mlp.up_proj.weight"),
              .shape = {kRows, kColumns},
              .block = l});
  return list;
}

// One rank of a run, ready for OuterSync::begin().
struct SiteRank {
  const Sites& sites;
  ParameterStore& store;
  OuterSync& sync;
  const ArenaPlan& plan;

  int site() const { return sites.position().index; }
  void begin() const { sync.begin({store.flat_values(), &store.value_map(), false}, plan); }
};

void on_sites(const OuterConfig& config, DType dtype,
              const std::function<void(const SiteRank&)>& body, int ranks_per_site = 1,
              const CommOptions& options = {}, int layers_per_fragment = 1) {
  const int layers = config.fragments * layers_per_fragment;
  const auto run_rank = [&](Communicator& world) {
    const Sites sites(world, config.sites);
    ParallelSizes sizes;
    sizes.dp = ranks_per_site;
    const Groups groups(sites.ranks(), sizes);
    Ctx ctx(1, "test");
    ParameterStore store(matrices(layers), dtype);
    store.allocate(ctx, true);
    OuterState state(config, store, groups.layout, sites.position(), layers, false, 1);
    state.allocate(ctx);
    OuterSync sync(groups, std::make_unique<PeerExchange>(sites, store, state, ctx), store, state,
                   ctx);
    const ArenaPlan plan = sync.plan();
    ctx.arena.reserve(plan.capacity);
    body({sites, store, sync, plan});
  };
  run_threads(config.sites * ranks_per_site, run_rank, options);
}

OuterConfig config_of(const Json& golden) {
  OuterConfig config;
  config.sites = golden.value("sites", kSites);
  config.period = golden.value("period", 1);
  config.fragments = golden.value("fragments", 1);
  config.overlap_steps = golden.value("overlap_steps", 0);
  config.mixing = golden.value("mixing", 0.0);
  config.algorithm = golden["algorithm"].get<std::string>();
  config.lr = golden["lr"].get<double>();
  config.momentum = golden["momentum"].get<double>();
  config.nesterov = golden["nesterov"].get<bool>();
  config.warmup_steps = golden["warmup_steps"].get<int64_t>();
  if (!golden.contains("top_k")) return config;
  config.compression.enabled = true;
  config.compression.options = {
      .method = "top_k", .ratio = golden["top_k"].get<double>(), .block = 16};
  config.compression.min_bytes = 0;
  return config;
}

// Shared weights of all fragments after `steps` steps, the last of which is that of the run.
std::vector<double> after_steps(const OuterConfig& config, int64_t steps) {
  std::vector<double> shared;
  on_sites(config, DType::kF64, [&](const SiteRank& rank) {
    const auto for_each_weight = [&](const auto& use) {
      for (int f = 0; f < config.fragments; ++f)
        for (int64_t i = 0; i < kRows * kColumns; ++i)
          use(rank.store.value(f).as<double>()[i], int64_t{1000} * f, i);
    };
    for_each_weight(
        [](double& weight, int64_t first, int64_t i) { weight = element(first + 999, i); });
    rank.begin();
    for (int64_t step = 0; step < steps; ++step) {
      for_each_weight([&](double& weight, int64_t first, int64_t i) {
        const double by = element(first + step * config.sites + rank.site(), i);
        weight += by / 8 * (1 + static_cast<double>(i) / 1021);
      });
      rank.sync.after_step(step + 1, steps);
    }
    if (rank.site() == 0)
      for_each_weight([&](double weight, int64_t, int64_t) { shared.push_back(weight); });
  });
  return shared;
}

TEST(OuterSync, AgreesWithNumpy) {
  size_t cases = 0;
  for (const Json& golden : read_json_file<Json>(source_folder() + "/tests/golden/outer.json")) {
    const std::vector<double> got =
        after_steps(config_of(golden), golden.value("steps", int64_t{kRounds}));
    const auto want = golden["shared"].get<std::vector<double>>();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i], want[i], 1e-6) << golden["algorithm"] << " " << ++cases << " " << i;
    ++cases;
  }
  EXPECT_EQ(cases, 31u);
}

TEST(OuterSync, EveryAlgorithmHasDefaultsInRange) {
  for (const OuterAlgorithm& row : outer_algorithms()) {
    EXPECT_EQ(find_outer_algorithm(row.name), &row);
    EXPECT_GT(row.lr, 0);
    for (const int sites : {2, 3, 1000}) {
      EXPECT_GE(row.momentum(sites), 0);
      EXPECT_LT(row.momentum(sites), 1);
    }
  }
  EXPECT_EQ(find_outer_algorithm("sgd"), nullptr);
}

OuterConfig adasum(int sites) {
  OuterConfig config;
  config.sites = sites;
  config.algorithm = "adasum";
  config.period = 1;
  config.lr = 1;
  config.momentum = 0;
  config.nesterov = false;
  return config;
}

// One round of a fragment with two tensors. Those of the first one move by equal amounts, those of
// the second one in orthogonal directions.
OuterRound moved_together_and_apart(OuterConfig config, Matrices& shared) {
  config.warmup_steps = 0;
  OuterRound of_first;
  on_sites(
      config, DType::kF64,
      [&](const SiteRank& rank) {
        for (int m = 0; m < 2; ++m)
          std::fill_n(rank.store.value(m).as<double>(), kRows * kColumns, 1.);
        rank.begin();
        for (int64_t i = 0; i < kRows * kColumns; ++i)
          rank.store.value(0).as<double>()[i] += static_cast<double>(i % 5 + 1);
        rank.store.value(1).as<double>()[rank.site()] += 2;
        const OuterRound round = rank.sync.after_step(1, 1);
        if (rank.site() != 0) return;
        of_first = round;
        for (int m = 0; m < 2; ++m)
          shared[static_cast<size_t>(m)] = to_doubles(rank.store.value(m));
      },
      1, {}, 2);
  return of_first;
}

TEST(OuterSync, AdasumAveragesEqualUpdatesAndAddsOrthogonalOnes) {
  for (const int sites : {2, 4}) {
    OuterConfig average = adasum(sites);
    average.algorithm = "average";
    Matrices combined, averaged;
    const OuterRound round = moved_together_and_apart(adasum(sites), combined);
    const OuterRound mean = moved_together_and_apart(average, averaged);
    EXPECT_EQ(combined[0], averaged[0]);
    for (size_t i = 0; i < combined[1].size(); ++i) {
      const bool moved = i < static_cast<size_t>(sites);
      EXPECT_EQ(combined[1][i], moved ? 3 : 1) << i;
      EXPECT_EQ(averaged[1][i], moved ? 1 + 2.0 / sites : 1) << i;
    }
    // |d_s - d|^2 of the second tensor: all elements but the site's own.
    EXPECT_NEAR(round.drift, 2 * std::sqrt(sites - 1), 1e-9);
    EXPECT_NEAR(mean.drift, 2 * std::sqrt(1 - 1.0 / sites), 1e-9);
    EXPECT_GT(round.update_norm, mean.update_norm);
    const int64_t pairs = sites * (sites + 1) / 2, float64 = 8;
    EXPECT_EQ(round.sent_bytes, mean.sent_bytes + (sites - 1) * 2 * pairs * float64);
  }
}

// The coefficients are those of the sites that remain.
TEST(OuterSync, AdasumLeavesOutAnUpdateThatIsNotFinite) {
  on_sites(adasum(4), DType::kF64, [](const SiteRank& rank) {
    double* const weights = rank.store.value(0).as<double>();
    std::fill_n(weights, kRows * kColumns, 0.0);
    rank.begin();
    weights[0] = rank.site() == 0 ? std::numeric_limits<double>::quiet_NaN() : 8;
    EXPECT_EQ(rank.sync.after_step(1, 2).left_out, std::vector<int>{0});
    EXPECT_EQ(weights[0], 8);
    weights[0] += rank.site() == 2 ? 0 : 4;  // of 4, 4, 0 and 4: (4, then 0 and 4), then 4
    EXPECT_EQ(rank.sync.after_step(2, 2).left_out, std::vector<int>());
    EXPECT_EQ(weights[0], 12);
  });
}

// The shared weights are shown and hidden again, bit for bit.
TEST(OuterSync, ShowsTheSharedWeights) {
  OuterConfig config;
  config.sites = kSites;
  on_sites(config, DType::kF32, [](const SiteRank& rank) {
    const Tensor matrix = rank.store.value(0);
    float* const weights = matrix.as<float>();
    for (int64_t i = 0; i < kRows * kColumns; ++i) weights[i] = 1.0f / static_cast<float>(i + 1);
    const std::vector<double> shared = to_doubles(matrix);
    rank.begin();
    weights[5] += 0.1f * static_cast<float>(rank.site() + 1);
    rank.sync.after_step(1, 100);
    const std::vector<double> own = to_doubles(matrix);
    rank.sync.with_shared_weights([&] { EXPECT_EQ(to_doubles(matrix), shared); });
    EXPECT_EQ(to_doubles(matrix), own);
  });
}

// Counts down once, at the latest when the rank ends, so that a failure does not block the others.
class CountDown {
 public:
  explicit CountDown(std::latch& latch) : latch_(latch) {}
  CountDown(const CountDown&) = delete;
  CountDown& operator=(const CountDown&) = delete;
  ~CountDown() { now(); }
  void now() {
    if (!std::exchange(counted_, true)) latch_.count_down();
  }

 private:
  std::latch& latch_;
  bool counted_ = false;
};

// A site does not wait for the others before the second phase of a round, and its messages need
// none of its operations.
TEST(OuterSync, ExchangesWhileTheSiteTrains) {
  OuterConfig config;
  config.sites = 2;
  config.period = 4;  // the round begins after step 4, its second phase after step 6
  config.overlap_steps = 3;
  config.lr = 1;
  config.momentum = 0;
  config.compression.enabled = true;  // exact, and divides the matrix between all ranks
  config.compression.options = {.method = "top_k", .ratio = 1, .block = 16};
  config.compression.min_bytes = 0;
  CommOptions options;
  options.timeout_s = 30;  // of a rank that waits for another site too early, which then fails
  std::latch in_round(2), in_second_phase(2);  // site 0 trains in the round; site 1 is in phase 2
  const auto train = [&](const SiteRank& rank) {
    CountDown reached(rank.site() == 0 ? in_round : in_second_phase);
    float* const weights = rank.store.value(0).as<float>();
    std::fill_n(weights, kRows * kColumns, 0.0f);
    rank.begin();
    for (int step = 1; step <= 7; ++step) {
      if (step == 4 && rank.site() == 1) in_round.wait();
      if (step == 6 && rank.site() == 0) in_second_phase.wait();
      if (step <= 4) weights[step * kColumns] = static_cast<float>(rank.site() + 1);
      const OuterRound round = rank.sync.after_step(step, 100);
      EXPECT_EQ(rank.sites.ranks().all_reduce_scalar(int64_t{1}, ReduceOp::kSum), 2);
      EXPECT_EQ(round.fragments, step == 7 ? 1 : 0);
      if (step == (rank.site() == 0 ? 5 : 6)) reached.now();
    }
    for (int step = 1; step <= 4; ++step) EXPECT_EQ(weights[step * kColumns], 1.5f);
  };
  on_sites(config, DType::kF32, train, 2, options);
}

TEST(Sites, AreConsecutiveRanks) {
  run_threads(6, [&](Communicator& world) {
    const Sites sites(world, 3);
    EXPECT_EQ(sites.position(), (GroupCoord{3, world.rank() / 2}));
    EXPECT_EQ(sites.ranks().size(), 2);
    EXPECT_EQ(sites.ranks().rank(), world.rank() % 2);
    EXPECT_EQ(sites.peers().size(), 3);
    EXPECT_EQ(sites.peers().rank(), world.rank() / 2);
    const Sites one(world, 1);
    EXPECT_EQ(&one.ranks(), &world);
  });
  EXPECT_THROW(site_position(6, 4, 0), CheckFailed);
}

}  // namespace
}  // namespace trireme::test::test_outer_sync
