// Ranks as threads of this process.
#include <algorithm>
#include <exception>
#include <thread>

#include "parallel/comm/rank_state.h"
#include "parallel/comm/world.h"

namespace trireme {
namespace {

// Result of one rank.
struct Outcome {
  std::exception_ptr error;
  bool consequence = false;  // caused by another rank's failure
};

Outcome run_rank(const std::shared_ptr<ThreadHub>& hub, int rank,
                 const std::function<void(World&)>& fn, const CommOptions& options) {
  std::unique_ptr<World> world;
  const auto failed = [&](const std::string& what, bool consequence) {
    const std::string reason = concat("rank ", rank, " failed: ", what);
    if (world) world->world().abort(reason);
    return Outcome{std::current_exception(), consequence};
  };
  try {
    world = std::make_unique<World>(
        connect_rank(make_thread_transport(hub, rank), options, std::string()));
    fn(*world);
    world.reset();
    return {};
  } catch (const Error& e) {
    return failed(e.what(), e.code() == ExitCode::kLostRank);
  } catch (const std::exception& e) {
    return failed(e.what(), false);
  } catch (...) {
    return failed("an unknown exception", false);
  }
}

}  // namespace

void run_thread_worlds(int ranks, const std::function<void(World&)>& fn,
                       const CommOptions& options) {
  TRIREME_CHECK(ranks >= 1, "run_thread_worlds() with ", ranks, " ranks, expected at least 1");
  const std::shared_ptr<ThreadHub> hub = make_thread_hub(ranks);
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back(
        [&, r] { outcomes[static_cast<size_t>(r)] = run_rank(hub, r, fn, options); });
  for (std::thread& t : threads) t.join();
  const auto report = [&](bool consequences) {
    for (const Outcome& o : outcomes)
      if (o.error && o.consequence == consequences) std::rethrow_exception(o.error);
  };
  report(false);
  report(true);
}

void run_threads(int ranks, const std::function<void(Communicator&)>& fn,
                 const CommOptions& options) {
  run_thread_worlds(
      ranks, [&](World& world) { fn(world.world()); }, options);
}

}  // namespace trireme
