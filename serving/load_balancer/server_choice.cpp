#include "serving/load_balancer/server_choice.h"

#include <algorithm>

#include "engine/core/error.h"

namespace trireme {
namespace {

ServerSet bit(size_t server) { return ServerSet{1} << server; }

}  // namespace

ServerChoice::ServerChoice(size_t servers, const BalanceRule& rule) : rule_(rule), loads_(servers) {
  TRIREME_CHECK(servers > 0 && servers <= kMaxServers, servers, " servers, expected 1 to ",
                kMaxServers);
}

size_t ServerChoice::least_loaded(ServerSet among) {
  size_t best = loads_.size();
  for (size_t i = 0; i < loads_.size(); ++i) {
    const size_t server = (turn_ + i) % loads_.size();
    if ((among & bit(server)) == 0) continue;
    if (best == loads_.size() || loads_[server] < loads_[best]) best = server;
  }
  turn_ = best + 1;
  return best;
}

std::optional<ServerChoice::Chosen> ServerChoice::begin(std::span<const uint64_t> blocks,
                                                        ServerSet tried) {
  const std::lock_guard lock(mutex_);
  const ServerSet among = up_ & ~tried;
  if (among == 0) return std::nullopt;
  int64_t least = INT64_MAX, most = 0;
  for (size_t i = 0; i < loads_.size(); ++i) {
    if ((among & bit(i)) == 0) continue;
    least = std::min(least, loads_[i]);
    most = std::max(most, loads_[i]);
  }
  const bool balanced = most - least <= rule_.absolute ||
                        static_cast<double>(most) <= rule_.relative * static_cast<double>(least);
  Chosen out;
  ServerSet candidates = among;
  if (!blocks.empty()) {
    const PrefixTable::Match match = prefixes_.find(blocks, among);
    const double share = static_cast<double>(match.blocks) / static_cast<double>(blocks.size());
    const bool hit = balanced && match.blocks > 0 && share >= rule_.cache_threshold;
    if (hit) candidates = match.servers;
    out.affinity = hit ? Affinity::kHit : Affinity::kMiss;
  }
  out.server = least_loaded(candidates);
  prefixes_.insert(blocks, out.server);
  ++loads_[out.server];
  return out;
}

void ServerChoice::end(size_t server) {
  const std::lock_guard lock(mutex_);
  --loads_[server];
}

bool ServerChoice::set_up(size_t server, bool up, bool lost) {
  const std::lock_guard lock(mutex_);
  const ServerSet before = up_;
  up_ = up ? up_ | bit(server) : up_ & ~bit(server);
  if (lost) prefixes_.forget(server);
  return up_ != before;
}

bool ServerChoice::is_up(size_t server) const {
  const std::lock_guard lock(mutex_);
  return (up_ & bit(server)) != 0;
}

bool ServerChoice::any_up() const {
  const std::lock_guard lock(mutex_);
  return up_ != 0;
}

int64_t ServerChoice::load(size_t server) const {
  const std::lock_guard lock(mutex_);
  return loads_[server];
}

}  // namespace trireme
