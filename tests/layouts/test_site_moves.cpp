// Runs whose sites are parts of one job continue as sites that are jobs of their own, and the
// reverse: what these get of residuals, states of compressors and open rounds.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>

#include "parallel/outer/remote/hub_exchange.h"
#include "parallel/outer/remote/site_hub.h"
#include "tests/layouts/resumed_run.h"
#include "tests/support/compare.h"
#include "tests/support/scratch_directory.h"
#include "training/checkpoint/train_checkpoint.h"
#include "transformer/checkpoint/find_checkpoint.h"

namespace trireme::test::test_site_moves {
namespace {

using Values = std::vector<double>;

constexpr int kSites = 2;
constexpr const char* kMovesSecret = "a secret of the moved sites";

// Rounds begin after steps 2, 4 and 5, the last one; with overlap they end one step later, and
// those of fragment 1 begin after steps 1, 3 and 5.
LayoutCase sites_of_one_job(const CompressionConfig& compression, int64_t overlap) {
  LayoutCase c = layout(1, 1, 1, 1);
  c.outer.sites = kSites;
  c.outer.period = 2;
  c.outer.compression = compression;
  if (overlap == 0) return c;
  c.outer.algorithm = "streaming_diloco";
  c.outer.fragments = 2;
  c.outer.overlap_steps = overlap;
  c.outer.mixing = 0.5;
  return c;
}

LayoutCase remote_site(LayoutCase c, int site) {
  c.outer.site = site;
  c.outer.rendezvous = "127.0.0.1:1";
  c.outer.secret_file = "secret";
  return c;
}

CompressionConfig four_bits() { return compression({.bits = 4, .block = 8}); }

std::vector<CompressionConfig> compressions() {
  return {{},
          four_bits(),
          compression({.method = "top_k", .ratio = 0.25, .block = 8}),
          compression({.method = "powersgd", .rank = 2})};
}

class MovesHub {
 public:
  explicit MovesHub(const LayoutCase& c)
      : hub_(ControlListener::on_address("127.0.0.1", 0, kMovesSecret, kSitePeers),
             {[config = config_of(remote_site(c, 0))](const std::string&) {
                HubRun run{make_whole_model(config, OuterState::kHub), config.train_steps, 60};
                run.model->allocate();
                return run;
              },
              [](const std::string&, const std::string&) { return std::string(); },
              [](const HubRound&) {}}) {
    const std::string& where = hub_.address().where;
    port_ = std::stoi(where.substr(where.rfind(':') + 1));
    ended_ = std::async(std::launch::async, [this] { return hub_.run(stop_); });
  }
  ~MovesHub() { stop_ = true; }
  int port() const { return port_; }

 private:
  SiteHub hub_;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::future<bool> ended_;
};

LayoutRunOptions through_hub(int port) {
  LayoutRunOptions options;
  options.exchange = [port](Communicator& world, TrainState& state, Ctx& ctx) {
    return std::make_unique<HubExchange>(
        world, state.data_site, *state.outer, state.store, state.whole.get(),
        HubAddress{"127.0.0.1", port, kMovesSecret, 60, 60}, "the run", ctx);
  };
  return options;
}

// Steps [from, to) of all sites, each a job of its own that continues a checkpoint of its own and
// saves one.
std::vector<RunPart> run_remote(const LayoutCase& c, int64_t from, int64_t to,
                                const std::function<std::string(int site)>& load,
                                const std::function<std::string(int site)>& save) {
  const MovesHub hub(c);
  std::vector<std::future<RunPart>> sites;
  for (int site = 0; site < kSites; ++site)
    sites.push_back(std::async(std::launch::async, [&, site] {
      return run_part(remote_site(c, site), from, to, load(site), save(site), {},
                      through_hub(hub.port()));
    }));
  std::vector<RunPart> parts;
  for (auto& site : sites) parts.push_back(site.get());
  return parts;
}

std::string nowhere(int /*site*/) { return ""; }

// State of the exchange with other sites, of one site of one rank: what it has not sent of its
// updates and of the sums, by flat element, and the states of its compressors.
struct Held {
  Values residual, sums, compressors;
  std::vector<int> own;  // OpenRound::own of open rounds
};

Held held_by(const TrainState& state) {
  Held held;
  const ParameterStore& store = state.whole != nullptr ? state.whole->store() : state.store;
  const auto place = [&](Values& into, const Tensor& from, const ShardMap& map) {
    into.resize(static_cast<size_t>(store.flat_size()));
    const Values values = to_doubles(from);
    map.for_each({0, store.flat_size()}, [&](const FlatRange& part, int64_t at) {
      std::copy_n(values.begin() + at, part.size(), into.begin() + part.begin);
    });
  };
  const auto add_state = [&](const CompressionState& s, const CompressionState::Encoder& e) {
    const Values values = to_doubles(s.state_of(e));
    held.compressors.insert(held.compressors.end(), values.begin(), values.end());
  };
  const OuterState& outer =
      state.whole != nullptr ? std::as_const(*state.whole).state() : std::as_const(*state.outer);
  for (const auto& unit : outer.units()) {
    const CompressionState& s = unit->exchange;
    if (s.residual().present()) {
      place(held.residual, s.residual(), s.residual_map());
      place(held.sums, s.sum_residual(), s.sum_residual_map());
    }
    for (const CompressionState::Piece& piece : s.pieces())
      for (const CompressionState::Encoder& e : piece) add_state(s, e);
  }
  for (const OuterState::OpenRound& round : state.outer->open)
    if (round.begun >= 0) held.own.push_back(round.own);
  return held;
}

// State of each site of a job after loading a checkpoint, before it continues.
std::vector<Held> loaded(const LayoutCase& c, const std::string& checkpoint) {
  std::vector<Held> sites(static_cast<size_t>(c.outer.sites_in_job()));
  std::mutex mutex;
  on_ranks(config_of(c), through_hub(0), [&](LayoutRank& rank) {
    load_train_checkpoint(rank.ctx, CheckpointReader(find_checkpoint(checkpoint).directory),
                          rank.state);
    const std::lock_guard lock(mutex);
    sites[static_cast<size_t>(rank.state.site.index)] = held_by(rank.state);
  });
  return sites;
}

Held loaded_remotely(const LayoutCase& c, int site, const std::string& checkpoint) {
  return loaded(remote_site(c, site), checkpoint).front();
}

Values combined(const Values& a, double factor, const Values& b) {
  Values out = a;
  for (size_t i = 0; i < out.size(); ++i) out[i] += factor * b[i];
  return out;
}

double norm_of(const Values& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

void expect_near(const Values& got, const Values& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-13) << i;
}

size_t count_of(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Each site continues its own residual and an equal part of that of the sums, which the hub lacks.
TEST(SiteMoves, RemoteSitesDivideTheResidualsOfOneJob) {
  for (const CompressionConfig& compression : compressions()) {
    if (!compression.enabled) continue;
    for (const int64_t overlap : {0, 1}) {
      const LayoutCase c = sites_of_one_job(compression, overlap);
      const ScratchDirectory scratch;
      run_part(c, 0, 3, "", scratch.path());
      const std::vector<Held> saved = loaded(c, scratch.path());
      const Values sums = combined(saved[0].sums, 1, saved[1].sums);
      EXPECT_GT(norm_of(sums), 0);
      EXPECT_NE(saved[0].residual, saved[1].residual);
      for (int site = 0; site < kSites; ++site) {
        const Held& own = saved[static_cast<size_t>(site)];
        const Held got = loaded_remotely(c, site, scratch.path());
        expect_near(got.residual, combined(own.residual, 0.5, sums));
        EXPECT_EQ(norm_of(got.sums), 0);
        EXPECT_EQ(got.compressors, own.compressors);
        EXPECT_EQ(got.own, std::vector<int>(overlap == 0 ? 0 : 1, site));
      }
    }
  }
}

TEST(SiteMoves, MoreRemoteSitesDivideAllResidualsOfOneJob) {
  LayoutCase c = sites_of_one_job(four_bits(), 0);
  const ScratchDirectory scratch;
  run_part(c, 0, 3, "", scratch.path());
  const std::vector<Held> saved = loaded(c, scratch.path());
  Values all = combined(saved[0].residual, 1, saved[1].residual);
  for (const Held& site : saved) all = combined(all, 1, site.sums);
  c.outer.sites = 4;
  for (const int site : {0, 3})
    expect_near(loaded_remotely(c, site, scratch.path()).residual, combined(all, -0.75, all));
}

// A site has its own residual in its checkpoint, and no other.
TEST(SiteMoves, OneJobDividesTheResidualOfARemoteSite) {
  for (const CompressionConfig& compression : compressions()) {
    if (!compression.enabled) continue;
    for (const int64_t overlap : {0, 1}) {
      const LayoutCase c = sites_of_one_job(compression, overlap);
      const ScratchDirectory scratch;
      const auto folder = [&](int site) { return scratch / concat("site-", site); };
      run_remote(c, 0, 3, nowhere, folder);
      const Held saved = loaded_remotely(c, 1, folder(1));
      EXPECT_GT(norm_of(saved.residual), 0);
      const Held of_other = loaded_remotely(c, 1, folder(0));
      EXPECT_EQ(norm_of(of_other.residual), 0);
      EXPECT_NE(of_other.compressors.empty(), compression.options.method == "powersgd");
      ::testing::internal::CaptureStderr();
      const std::vector<Held> got = loaded(c, folder(1));
      const std::string shown = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(count_of("is the checkpoint of site 1 alone: what the other sites and the "
                         "rendezvous had not yet sent is lost",
                         shown),
                1u)
          << shown;
      for (const Held& site : got) {
        expect_near(site.residual, combined(saved.residual, -0.5, saved.residual));
        EXPECT_EQ(norm_of(site.sums), 0);
        EXPECT_EQ(site.compressors, saved.compressors);
        EXPECT_EQ(site.own, std::vector<int>(overlap == 0 ? 0 : 1, 1));
      }
    }
  }
}

TEST(SiteMoves, ResidualsThatARunDoesNotKeepAreReported) {
  LayoutCase c = sites_of_one_job(four_bits(), 0);
  const ScratchDirectory scratch;
  run_part(c, 0, 2, "", scratch.path());
  c.outer.compression.error_feedback = false;
  ::testing::internal::CaptureStderr();
  loaded(c, scratch.path());
  const std::string shown = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count_of("are dropped: what its sites had not yet sent is lost", shown), 1u) << shown;
}

const RunPart::Tensors& weights_of(const RunPart& part, const std::string& site = "") {
  return part.tensors.at("param" + site);
}

// Sites of one job continue as jobs of their own. Without residuals and open rounds they are the
// same run, bit for bit.
TEST(SiteMoves, RemoteSitesContinueOneJob) {
  std::vector<CompressionConfig> all = compressions();
  all.push_back(four_bits());
  all.back().error_feedback = false;
  for (const CompressionConfig& compression : all)
    for (const int64_t overlap : {0, 1})
      for (const int64_t step : {2, 3}) {
        const LayoutCase c = sites_of_one_job(compression, overlap);
        const ScratchDirectory scratch;
        run_part(c, 0, step, "", scratch.path());
        const RunPart straight = run_part(c, step, 5, scratch.path(), "");
        const std::vector<RunPart> moved = run_remote(
            c, step, 5, [&](int) { return scratch.path(); }, nowhere);
        EXPECT_TRUE(weights_of(moved[0]) == weights_of(moved[1]));
        if (overlap > 0) continue;
        const bool exact = !compression.enabled || !compression.error_feedback;
        EXPECT_EQ(weights_of(moved[0]) == weights_of(straight), exact)
            << compression.options.method << " at " << step;
      }
}

// Site 0 and all others continue with the weights and the optimizer state of the site that saved.
TEST(SiteMoves, OneJobContinuesARemoteSite) {
  for (const CompressionConfig& compression : compressions())
    for (const int64_t overlap : {0, 1})
      for (const int64_t step : {2, 3}) {
        const LayoutCase c = sites_of_one_job(compression, overlap);
        const ScratchDirectory scratch;
        const auto folder = [&](int site) { return scratch / concat("site-", site); };
        const std::vector<RunPart> saved = run_remote(c, 0, step, nowhere, folder);
        const RunPart begun = run_part(c, step, step, folder(1), "");
        for (const std::string kind : {"param", "exp_avg", "exp_avg_sq"}) {
          const RunPart::Tensors& its = saved[1].tensors.at(kind);
          EXPECT_TRUE(begun.tensors.at(kind) == its) << kind;
          EXPECT_TRUE(begun.tensors.at(kind + " of site 1") == its) << kind;
        }
        const RunPart moved = run_part(c, step, 5, folder(1), "");
        EXPECT_EQ(moved.replica, "");
        EXPECT_TRUE(weights_of(moved) == weights_of(moved, " of site 1"));
      }
}

// Sites without a state of the optimizer are equal after a round.
TEST(SiteMoves, OneJobContinuesARemoteSiteWithoutAStateBitForBit) {
  LayoutCase c = sites_of_one_job({}, 0);
  c.optimizer = "SGD";
  const ScratchDirectory scratch;
  const auto folder = [&](int site) { return scratch / concat("site-", site); };
  const std::vector<RunPart> straight = run_remote(c, 0, 5, nowhere, nowhere);
  run_remote(c, 0, 4, nowhere, folder);
  EXPECT_TRUE(weights_of(run_part(c, 4, 5, folder(1), "")) == weights_of(straight[0]));
}

}  // namespace
}  // namespace trireme::test::test_site_moves
