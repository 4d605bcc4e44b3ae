#include "serving/structured/grammar_states.h"

#include <algorithm>
#include <unordered_set>

#include "serving/structured/shortest_texts.h"

namespace trireme {
namespace {

uint64_t key_of(int32_t a, int32_t b) {
  return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
}

}  // namespace

GrammarStates::GrammarStates(const PushdownAutomaton& automaton)
    : automaton_(automaton), class_of_(256, 0) {
  std::vector<char> begins(257, 0);
  for (const auto& state : automaton.states())
    for (const auto& edge : state.edges) begins[edge.first] = begins[edge.last + 1] = 1;
  for (size_t b = 0; b < 256; ++b) {
    if (b > 0 && begins[b] != 0) ++classes_;
    class_of_[b] = static_cast<uint8_t>(classes_);
  }
  ++classes_;
  clear();
}

void GrammarStates::clear() {
  // Memory is freed before any is taken.
  for (auto* numbers : {&behind_, &steps_}) *numbers = {};
  for (auto* numbers : {&behind_end_, &to_end_}) *numbers = {};
  for (auto* pairs : {&stacks_, &members_}) *pairs = {};
  first_member_ = {};
  whole_ = {};
  stack_ids_ = {};
  at_ = {};
  ids_ = {};
  bytes_ = 0;
  stacks_.emplace_back();
  behind_.push_back(kUnknown);
  behind_end_.push_back(0);
  first_member_.push_back(0);
}

std::span<const GrammarStates::Configuration> GrammarStates::configurations(int32_t state) const {
  const size_t begin = first_member_[static_cast<size_t>(state)];
  return std::span(members_).subspan(begin, first_member_[static_cast<size_t>(state) + 1] - begin);
}

int32_t GrammarStates::at(int32_t state) {
  const auto found = at_.find(state);
  if (found != at_.end()) return found->second;
  const int32_t id = id_of({{state, 0}});
  at_.emplace(state, id);
  return id;
}

int32_t GrammarStates::on_edges_of(int32_t state) { return number_of({{state, 0}}, false); }

int32_t GrammarStates::behind(int32_t stack) {
  const auto i = static_cast<size_t>(stack);
  if (behind_[i] == kUnknown) {
    const int32_t id = id_of({stacks_[i]});  // may make stacks
    behind_[i] = id;
  }
  return behind_[i];
}

int32_t GrammarStates::make_step(int32_t state, uint8_t byte) {
  std::vector<Configuration> reached;
  for (const Configuration& c : configurations(state)) {
    const auto& edges = automaton_.states()[static_cast<size_t>(c.state)].edges;
    const auto edge = std::ranges::lower_bound(edges, byte, {}, &PushdownAutomaton::Edge::last);
    if (edge != edges.end() && edge->first <= byte) reached.push_back({edge->target, c.stack});
  }
  const int32_t next = reached.empty() ? kDead : id_of(std::move(reached));
  steps_[static_cast<size_t>(state) * classes_ + class_of_[byte]] = next;
  return next;
}

int32_t GrammarStates::push(int32_t state, int32_t stack) {
  // Where nothing is left to be done there, one returns to where that one would.
  if (automaton_.ends(state)) return stack;
  const auto [at, is_new] =
      stack_ids_.try_emplace(key_of(state, stack), static_cast<int32_t>(stacks_.size()));
  if (is_new) {
    stacks_.push_back({state, stack});
    behind_.push_back(kUnknown);
    behind_end_.push_back(sum_of_bytes(automaton_.bytes_to_end(state), bytes_behind(stack)));
    bytes_ += 72;
  }
  return at->second;
}

// All that is reached from these without a byte, calls and returns.
int32_t GrammarStates::id_of(std::vector<Configuration> work) {
  std::unordered_set<uint64_t> seen;
  std::vector<Configuration> kept;
  bool whole = false;
  while (!work.empty()) {
    const Configuration c = work.back();
    work.pop_back();
    if (!seen.insert(key_of(c.state, c.stack)).second) continue;
    if (seen.size() > kMostConfigurations) break;
    const auto& state = automaton_.states()[static_cast<size_t>(c.state)];
    if (!state.edges.empty()) kept.push_back(c);
    if (state.final && c.stack == 0) whole = true;
    if (state.final && c.stack != 0) work.push_back(stacks_[static_cast<size_t>(c.stack)]);
    for (const auto& call : state.calls)
      work.push_back({automaton_.start(call.rule), push(call.target, c.stack)});
  }
  looked_at_ += std::ssize(seen);
  std::ranges::sort(kept, {}, [](const Configuration& c) { return key_of(c.state, c.stack); });
  return number_of(kept, whole);
}

int32_t GrammarStates::number_of(const std::vector<Configuration>& kept, bool whole) {
  uint64_t hash = whole ? 1 : 0;
  for (const Configuration& c : kept)
    hash = (hash ^ key_of(c.state, c.stack)) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
  const auto [first, last] = ids_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (is_whole(at->second) == whole && std::ranges::equal(configurations(at->second), kept))
      return at->second;
  const auto id = static_cast<int32_t>(whole_.size());
  ids_.emplace(hash, id);
  members_.insert(members_.end(), kept.begin(), kept.end());
  first_member_.push_back(members_.size());
  whole_.push_back(whole ? 1 : 0);
  int64_t to_end = whole ? 0 : kNeverEnds;
  for (const Configuration& c : kept)
    to_end =
        std::min(to_end, sum_of_bytes(automaton_.bytes_to_end(c.state), bytes_behind(c.stack)));
  to_end_.push_back(to_end);
  steps_.resize(steps_.size() + classes_, kUnknown);
  bytes_ += static_cast<int64_t>(104 + kept.size() * sizeof(Configuration) + classes_ * 4);
  return id;
}

}  // namespace trireme
