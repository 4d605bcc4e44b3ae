// Cache-aware load balancer. Sends a request to the server that has the longest prefix of its
// prompt cached; if several have, to the least loaded of them. If that prefix is short or the loads
// are out of balance, sends it to the least loaded of all servers. Rule and defaults are those of
// SGLang's router ("cache_aware"). The servers are those behind a router, or the replicas of the
// model in one server. A server's load is the number of requests or sequences that this process has
// in progress there.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "serving/load_balancer/prefix_table.h"

namespace trireme {

struct BalanceRule {
  // Minimum fraction of a prompt's blocks that a server must have cached to be preferred.
  double cache_threshold = 0.3;
  // Loads are out of balance if highest - lowest > absolute and highest > relative * lowest.
  // Prefixes are ignored then.
  int64_t absolute = 64;
  double relative = 1.5;
};

// Whether a cached prefix selected the server. kNone: the prompt has no full block to look up.
// kMiss: no prefix is long enough, or the loads are out of balance.
enum class Affinity { kNone, kHit, kMiss };

// Thread-safe.
class ServerChoice {
 public:
  // servers: number of servers, 1 to kMaxServers. All are down until set_up().
  ServerChoice(size_t servers, const BalanceRule& rule);

  struct Chosen {
    size_t server = 0;
    Affinity affinity = Affinity::kNone;
  };
  // Chooses a server that is up and not in `tried`, adds one to its load until end(), and records
  // the prompt as cached there. nullopt: there is none.
  std::optional<Chosen> begin(std::span<const uint64_t> blocks, ServerSet tried);
  void end(size_t server);

  // Sets whether a server is up. Returns whether that is a change. lost: the server has lost its
  // cache.
  bool set_up(size_t server, bool up, bool lost = false);
  bool is_up(size_t server) const;
  bool any_up() const;
  int64_t load(size_t server) const;

 private:
  size_t least_loaded(ServerSet among);

  const BalanceRule rule_;
  mutable std::mutex mutex_;
  std::vector<int64_t> loads_;
  ServerSet up_ = 0;
  size_t turn_ = 0;  // first candidate among servers with equal load
  PrefixTable prefixes_;
};

}  // namespace trireme
