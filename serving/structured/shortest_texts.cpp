#include "serving/structured/shortest_texts.h"

#include <queue>
#include <utility>

namespace trireme {
namespace {

using State = AutomatonState;

size_t index(int32_t i) { return static_cast<size_t>(i); }

class Search {
 public:
  Search(std::span<const State> states, std::span<const int32_t> starts)
      : starts_(starts),
        bytes_(states.size(), kNeverEnds),
        known_(states.size(), 0),
        before_(states.size()),
        calls_before_(states.size()),
        rules_of_(states.size()),
        callers_(starts.size()) {
    for (size_t s = 0; s < states.size(); ++s) {
      const auto from = static_cast<int32_t>(s);
      for (const auto& edge : states[s].edges) before_[index(edge.target)].push_back(from);
      for (const auto& call : states[s].calls) {
        calls_before_[index(call.target)].push_back({call.rule, from});
        callers_[index(call.rule)].push_back({call.target, from});
      }
    }
    for (size_t r = 0; r < starts.size(); ++r)
      rules_of_[index(starts[r])].push_back(static_cast<int32_t>(r));
    for (size_t s = 0; s < states.size(); ++s)
      if (states[s].final) reach(static_cast<int32_t>(s), 0);
  }

  std::vector<int64_t> run() {
    while (!work_.empty()) {
      const int32_t s = work_.top().second;
      work_.pop();
      if (std::exchange(known_[index(s)], 1) == 0) spread(s);
    }
    return std::move(bytes_);
  }

 private:
  void reach(int32_t s, int64_t bytes) {
    if (bytes >= bytes_[index(s)]) return;
    bytes_[index(s)] = bytes;
    work_.emplace(bytes, s);
  }
  // The distance of `s` is final: all states still queued are at least as far away.
  void spread(int32_t s) {
    const int64_t bytes = bytes_[index(s)];
    for (const int32_t from : before_[index(s)]) reach(from, sum_of_bytes(bytes, 1));
    for (const auto& [called, from] : calls_before_[index(s)])
      if (const int32_t start = starts_[index(called)]; known_[index(start)] != 0)
        reach(from, sum_of_bytes(bytes, bytes_[index(start)]));
    for (const int32_t rule : rules_of_[index(s)])
      for (const auto& [target, from] : callers_[index(rule)])
        if (known_[index(target)] != 0) reach(from, sum_of_bytes(bytes, bytes_[index(target)]));
  }

  std::span<const int32_t> starts_;
  std::vector<int64_t> bytes_;
  std::vector<char> known_;
  std::vector<std::vector<int32_t>> before_;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> calls_before_;
  std::vector<std::vector<int32_t>> rules_of_;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> callers_;
  std::priority_queue<std::pair<int64_t, int32_t>, std::vector<std::pair<int64_t, int32_t>>,
                      std::greater<>>
      work_;
};

}  // namespace

std::vector<int64_t> bytes_to_end(std::span<const State> states, std::span<const int32_t> starts) {
  return Search(states, starts).run();
}

}  // namespace trireme
