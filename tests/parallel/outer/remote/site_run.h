// Run of sites that are jobs of their own, as threads of a test: a hub and sites.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <latch>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "parallel/comm/world.h"
#include "parallel/outer/outer_sync.h"
#include "parallel/outer/remote/hub_exchange.h"
#include "parallel/outer/remote/site_hub.h"
#include "tests/support/compare.h"

namespace trireme::test {

inline constexpr int64_t kSiteRows = 6, kSiteColumns = 37, kSiteLayers = 2, kSiteSteps = 12;
inline constexpr const char* kSiteSecret = "a secret of the sites";
inline constexpr uint64_t kSiteSeed = 5;
inline constexpr double kShortTimeout = 0.3, kLongTimeout = 60;

inline ParameterList two_layers() {
  ParameterList list;
  for (int layer = 0; layer < kSiteLayers; ++layer) {
    const std::string prefix = concat("model.layers.", layer, ".");
    list.add({.name = prefix + "mlp.up_proj.weight",
              .shape = {kSiteRows, kSiteColumns},
              .block = layer});
    list.add({.name = prefix + "input_layernorm.weight", .shape = {kSiteColumns}, .block = layer});
  }
  return list;
}

inline OuterConfig remote_config(int sites, int fragments = 1, int64_t overlap = 0) {
  OuterConfig config;
  config.sites = sites;
  config.period = 3;
  config.fragments = fragments;
  config.overlap_steps = overlap;
  config.mixing = overlap > 0 ? 0.5 : 0;
  config.compression.enabled = true;
  config.compression.options = {.method = "quantize", .bits = 8, .block = 16};
  config.compression.min_bytes = 512;
  return config;
}

inline std::unique_ptr<WholeModel> whole_model(const OuterConfig& config,
                                               OuterState::Holder holder) {
  auto model = std::make_unique<WholeModel>(config, two_layers(), DType::kF64, kSiteLayers,
                                            kSiteSeed, holder);
  model->allocate();
  return model;
}

// Hub on a free port of this machine, in a thread.
class HubThread {
 public:
  explicit HubThread(const OuterConfig& config, double timeout_s = kLongTimeout)
      : hub_(ControlListener::on_address("127.0.0.1", 0, kSiteSecret, kSitePeers),
             {[config, timeout_s](const std::string& text) {
                if (text == "no run") fail_input("this is no run");
                return HubRun{whole_model(config, OuterState::kHub), kSiteSteps, timeout_s};
              },
              [](const std::string& first, const std::string& other) {
                return first == other ? std::string() : concat(other, " is not ", first);
              },
              [this](const HubRound& round) {
                const std::lock_guard lock(mutex_);
                rounds_.push_back(round);
                reported_.notify_all();
              }}) {
    const std::string& where = hub_.address().where;
    port_ = std::stoi(where.substr(where.rfind(':') + 1));
    ended_ = std::async(std::launch::async, [this] { return hub_.run(stop_); });
  }
  ~HubThread() { stop(); }
  void stop() { stop_ = true; }
  int port() const { return port_; }
  bool has_ended() {  // waits until the hub ends
    if (!result_) result_ = ended_.get();
    return *result_;
  }
  std::vector<HubRound> rounds() {
    const std::lock_guard lock(mutex_);
    return rounds_;
  }
  // Waits for a round that fits.
  HubRound await_round(const std::function<bool(const HubRound&)>& fits) {
    std::unique_lock lock(mutex_);
    std::optional<HubRound> found;
    reported_.wait(lock, [&] {
      const auto round = std::ranges::find_if(rounds_, fits);
      if (round != rounds_.end()) found = *round;
      return found.has_value();
    });
    return *found;
  }
  HubRound await_step(int64_t step) {
    return await_round([=](const HubRound& round) { return round.step >= step; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable reported_;
  std::vector<HubRound> rounds_;
  SiteHub hub_;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::future<bool> ended_;
  std::optional<bool> result_;
};

// Condition that a test sets, once.
class Gate {
 public:
  void open() { opened_.set_value(); }
  void pass() const { is_open_.wait(); }

 private:
  std::promise<void> opened_;
  std::shared_future<void> is_open_{opened_.get_future()};
};

// Thrown by SiteOptions::before: closes the connection.
struct SiteKilled : std::runtime_error {
  SiteKilled() : std::runtime_error("killed") {}
};

struct SiteOptions {
  std::string join = "the run", secret = kSiteSecret;
  int ranks = 1;
  int64_t step = 0;  // of the weights that it starts from
  double added = 0;  // to these
  int64_t last_step = kSiteSteps;
  double timeout_s = kLongTimeout;
  int64_t shown_after = 0;             // step after which SiteEnd::shown is read
  std::function<bool()> stops = {};    // HubExchange, without patience
  std::function<void()> started = {};  // after the hub's start message
  // Called on each rank before a step. If it returns true, the next update is not finite.
  std::function<bool(int64_t step)> before = {};
};

struct SiteEnd {
  std::vector<double> weights, shown;  // own, and shared ones
  int64_t started_at = -1;
  std::vector<int64_t> steps;      // that it has taken
  std::vector<OuterRound> rounds;  // that ended
  bool was_replaced() const { return std::ranges::any_of(rounds, &OuterRound::replaced); }
};

inline double site_change(int site, int64_t step, int64_t i) {
  return static_cast<double>((i * 7919 + step * 104729 + site * 1299709) % 2003 - 1001) / 8192;
}

// Without the padding between parameters.
inline std::vector<double> weights_of(const ParameterStore& store) {
  std::vector<double> weights;
  for (ParamHandle h = 0; h < std::ssize(store.specs()); ++h) {
    const std::vector<double> parameter = to_doubles(store.value(h));
    weights.insert(weights.end(), parameter.begin(), parameter.end());
  }
  return weights;
}

// Trains a rank: every step changes the weights by numbers that depend on the site.
inline SiteEnd train_site(OuterSync& sync, ParameterStore& store, const ArenaPlan& plan, int site,
                          const SiteOptions& options) {
  SiteEnd end;
  const Tensor values = store.flat_values();
  double* const weights = values.as<double>();
  for (int64_t i = 0; i < values.numel(); ++i)
    weights[i] = static_cast<double>(i % 11) / 16 + options.added;
  int64_t step = sync.begin({values, &store.value_map(), false}, plan, options.step).step;
  end.started_at = step;
  if (options.started) options.started();
  while (step < options.last_step) {
    end.steps.push_back(++step);
    const bool breaks = options.before && options.before(step);
    for (int64_t i = 0; i < values.numel(); ++i)
      weights[i] += breaks ? std::numeric_limits<double>::quiet_NaN() : site_change(site, step, i);
    OuterRound round = sync.after_step(step, kSiteSteps);
    step = std::max(step, round.newest_step);
    if (round.fragments > 0) end.rounds.push_back(std::move(round));
    if (step == options.shown_after)
      sync.with_shared_weights([&] { end.shown = weights_of(store); });
  }
  end.weights = weights_of(store);
  return end;
}

inline SiteEnd run_site(const OuterConfig& config, int site, int port,
                        const SiteOptions& options = {}) {
  SiteEnd end;
  run_threads(options.ranks, [&](Communicator& world) {
    const Groups groups(world, {.dp = options.ranks});
    Ctx ctx(1, "test");
    ParameterStore store(two_layers(), DType::kF64);
    store.allocate(ctx, true);
    OuterState state(config, store, groups.layout, {}, kSiteLayers, false, kSiteSeed,
                     OuterState::kRemoteSite);
    state.allocate(ctx);
    std::unique_ptr<WholeModel> whole;
    if (world.rank() == 0) whole = whole_model(config, OuterState::kSender);
    auto exchange = std::make_unique<HubExchange>(
        world, GroupCoord{config.sites, site}, state, store, whole.get(),
        HubAddress{"127.0.0.1", port, options.secret, kLongTimeout, options.timeout_s, 0},
        options.join, ctx, options.stops);
    HubExchange& hub = *exchange;
    OuterSync sync(groups, std::move(exchange), store, state, ctx);
    const ArenaPlan plan = sync.plan();
    ctx.arena.reserve(plan.capacity);
    SiteOptions own = options;
    if (world.rank() != 0) own.started = nullptr;
    const SiteEnd its = train_site(sync, store, plan, site, own);
    hub.leave(options.last_step == kSiteSteps);
    if (world.rank() == 0) end = its;
  });
  return end;
}

inline std::future<SiteEnd> start_site(const OuterConfig& config, int site, const HubThread& hub,
                                       SiteOptions options = {}) {
  return std::async(std::launch::async,
                    [=, port = hub.port()] { return run_site(config, site, port, options); });
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks\n" << part;
}

// Starts a site again, until the hub knows that its last connection is closed.
inline std::future<SiteEnd> restart_site(const OuterConfig& config, int site, const HubThread& hub,
                                         const SiteOptions& options) {
  return std::async(std::launch::async, [=, port = hub.port()] {
    for (;;) try {
        return run_site(config, site, port, options);
      } catch (const InputError& e) {
        expect_contains(e.what(), "is in the run already");
      }
  });
}

// Ends of several sites, which must have the same weights.
inline std::vector<SiteEnd> ends_of(std::vector<std::future<SiteEnd>>& sites) {
  std::vector<SiteEnd> ends;
  for (auto& site : sites) ends.push_back(site.get());
  for (const SiteEnd& end : ends) EXPECT_EQ(end.weights, ends.front().weights);
  return ends;
}

// Message of the error by which a site ends.
inline std::string error_of(std::future<SiteEnd> site) {
  try {
    site.get();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace trireme::test
