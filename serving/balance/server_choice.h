// Which of several servers gets a request: the one that has the most of its prompt in its cache,
// unless that one has too much to do; else the one with the least to do. The rule and its defaults
// are those of SGLang's router ("cache_aware"). Servers are those behind a router, or the replicas
// of a model within one; a server's load is what whoever chooses has under way there: requests, or
// sequences.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "serving/balance/prefix_table.h"

namespace trireme {

struct BalanceRule {
  double cache_threshold =
      0.3;  // share of a prompt's blocks that a server must know to be preferred for it
  // Loads are out of balance where most - least > absolute and most > relative * least: then
  // prompts do not count.
  int64_t absolute = 64;
  double relative = 1.5;
};

enum class Affinity { kNone, kHit, kMiss };  // none: the prompt has no whole block

// Any thread may call.
class ServerChoice {
 public:
  // Servers are not up before set_up().
  ServerChoice(size_t servers, const BalanceRule& rule);

  struct Chosen {
    size_t server = 0;
    Affinity affinity = Affinity::kNone;
  };
  // One of the servers that are up and were not tried; its load is one more until end(). It now
  // counts as knowing the prompt. Absent: there is none.
  std::optional<Chosen> begin(std::span<const uint64_t> blocks, ServerSet tried);
  void end(size_t server);

  // True: it was otherwise before. lost: its cache is gone as well.
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
  size_t turn_ = 0;  // who comes first among equals
  PrefixTable prefixes_;
};

}  // namespace trireme
