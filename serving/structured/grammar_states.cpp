#include "serving/structured/grammar_states.h"

#include <algorithm>
#include <unordered_set>

#include "engine/core/heap_bytes.h"
#include "serving/structured/shortest_texts.h"

namespace trireme {
namespace {

uint64_t hash_of(const GrammarStates::Configuration& c) {
  uint64_t hash = uint64_t{static_cast<uint32_t>(c.state)} << 32 | static_cast<uint32_t>(c.stack);
  hash = (hash ^ static_cast<uint64_t>(c.count) << 17) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

}  // namespace

size_t GrammarStates::Hash::operator()(const Configuration& c) const {
  return static_cast<size_t>(hash_of(c));
}

GrammarStates::GrammarStates(const PushdownAutomaton& automaton, int32_t reach)
    : automaton_(automaton), reach_(reach), class_of_(256, 0) {
  std::vector<char> begins(257, 0);
  for (const auto& state : automaton.states())
    for (const auto& edge : state.edges) begins[edge.first] = begins[edge.last + 1] = 1;
  for (size_t b = 0; b < 256; ++b) {
    if (b > 0 && begins[b] != 0) ++classes_;
    class_of_[b] = static_cast<uint8_t>(classes_);
  }
  ++classes_;
}

void GrammarStates::clear() noexcept {
  for (auto* numbers : {&after_return_, &stack_alike_, &alike_, &steps_}) release_memory(*numbers);
  for (auto* numbers : {&bytes_after_return_, &to_end_}) release_memory(*numbers);
  for (auto* pairs : {&stacks_, &members_}) release_memory(*pairs);
  release_memory(first_member_);
  release_memory(whole_);
  release_memory(stack_ids_);
  release_memory(at_);
  release_memory(ids_);
}

void GrammarStates::make_bottom() {
  if (!stacks_.empty()) return;
  stacks_.emplace_back();
  after_return_.push_back(kUnknown);
  stack_alike_.push_back(0);
  bytes_after_return_.push_back(0);
  first_member_.push_back(0);
}

int64_t GrammarStates::bytes() const {
  int64_t bytes = heap_bytes(first_member_) + heap_bytes(whole_);
  for (const auto* numbers : {&after_return_, &stack_alike_, &alike_, &steps_})
    bytes += heap_bytes(*numbers);
  for (const auto* numbers : {&bytes_after_return_, &to_end_}) bytes += heap_bytes(*numbers);
  for (const auto* pairs : {&stacks_, &members_}) bytes += heap_bytes(*pairs);
  return bytes + hash_map_bytes(stack_ids_) + hash_map_bytes(at_) + hash_map_bytes(ids_);
}

std::span<const GrammarStates::Configuration> GrammarStates::configurations(int32_t state) const {
  const size_t begin = first_member_[static_cast<size_t>(state)];
  return std::span(members_).subspan(begin, first_member_[static_cast<size_t>(state) + 1] - begin);
}

int32_t GrammarStates::at(int32_t state) {
  const auto found = at_.find(state);
  if (found != at_.end()) return found->second;
  make_bottom();
  const int32_t id = id_of({{state, 0}});
  at_.emplace(state, id);
  return id;
}

int32_t GrammarStates::on_edges_of(int32_t state, int32_t count) {
  make_bottom();
  return number_of({{state, 0, count}}, false);
}

int32_t GrammarStates::after_return(int32_t stack) {
  const auto i = static_cast<size_t>(stack);
  if (after_return_[i] == kUnknown) {
    const int32_t id = id_of({stacks_[i]});  // may make stacks
    after_return_[i] = id;
  }
  return after_return_[i];
}

int32_t GrammarStates::make_step(int32_t state, uint8_t byte) {
  std::vector<Configuration> reached;
  for (const Configuration& c : configurations(state)) {
    const auto& edges = automaton_.states()[static_cast<size_t>(c.state)].edges;
    const auto edge = std::ranges::lower_bound(edges, byte, {}, &PushdownAutomaton::Edge::last);
    Configuration to;
    if (edge != edges.end() && edge->first <= byte && follow(c, *edge, to)) reached.push_back(to);
  }
  const int32_t next = reached.empty() ? kDead : id_of(std::move(reached));
  steps_[static_cast<size_t>(state) * classes_ + class_of_[byte]] = next;
  return next;
}

bool GrammarStates::follow(const Configuration& from, const PushdownAutomaton::Edge& edge,
                           Configuration& to) {
  const auto& state = automaton_.states()[static_cast<size_t>(from.state)];
  to = {edge.target, from.stack, 0};
  switch (state.counter) {
    case StateCounter::kNone: return true;
    case StateCounter::kInLoop: to.count = from.count; return true;
    case StateCounter::kLoop:
      if (edge.begins_turn) to.count = from.count + 1;
      return to.count <= state.max_count;
    case StateCounter::kBytes:
      to.count = from.count + 1;
      return to.count + automaton_.bytes_to_end(edge.target) <= state.max_count;
  }
  return false;
}

// True if some edge may be followed.
bool GrammarStates::leads_on(const Configuration& c) const {
  const auto& state = automaton_.states()[static_cast<size_t>(c.state)];
  if (state.counter != StateCounter::kLoop || c.count < state.max_count)
    return !state.edges.empty();
  return std::ranges::any_of(state.edges, [](const auto& edge) { return !edge.begins_turn; });
}

// Count of the representative: 0 if no edge is forbidden within reach.
int32_t GrammarStates::count_alike(int32_t state, int32_t count) const {
  const auto& s = automaton_.states()[static_cast<size_t>(state)];
  return int64_t{count} + reach_ <= s.free_count ? 0 : count;
}

int32_t GrammarStates::push(const Configuration& frame) {
  // Tail call: a frame with nothing left to read is replaced by the one below it.
  if (automaton_.ends(frame.state)) return frame.stack;
  const auto next = static_cast<int32_t>(stacks_.size());
  const auto [at, is_new] = stack_ids_.try_emplace(frame, next);
  if (!is_new) return at->second;
  stacks_.push_back(frame);
  after_return_.push_back(kUnknown);
  stack_alike_.push_back(next);
  bytes_after_return_.push_back(
      sum_of_bytes(automaton_.bytes_to_end(frame.state), bytes_after_return(frame.stack)));
  const Configuration alike = {frame.state, stack_alike_[static_cast<size_t>(frame.stack)],
                               count_alike(frame.state, frame.count)};
  if (alike != frame) {
    const int32_t id = push(alike);  // its own representative
    stack_alike_[static_cast<size_t>(next)] = id;
  }
  return next;
}

int32_t GrammarStates::alike(int32_t state) {
  if (!automaton_.counts()) return state;
  const auto i = static_cast<size_t>(state);
  if (alike_[i] != kUnknown) return alike_[i];
  std::vector<Configuration> members(configurations(state).begin(), configurations(state).end());
  for (Configuration& c : members) {
    c.stack = stack_alike_[static_cast<size_t>(c.stack)];
    c.count = count_alike(c.state, c.count);
  }
  std::ranges::sort(members);
  const auto [first, last] = std::ranges::unique(members);
  members.erase(first, last);
  looked_at_ += std::ssize(members);
  const int32_t id = number_of(std::move(members), is_whole(state));
  alike_[i] = alike_[static_cast<size_t>(id)] = id;
  return id;
}

GrammarStates::Snapshot GrammarStates::save(int32_t state) const {
  Snapshot saved{.whole = is_whole(state)};
  std::unordered_map<int32_t, int32_t> numbers = {{0, 0}};
  for (Configuration c : configurations(state)) {
    std::vector<int32_t> chain;
    for (int32_t at = c.stack; !numbers.contains(at); at = stacks_[static_cast<size_t>(at)].stack)
      chain.push_back(at);
    for (; !chain.empty(); chain.pop_back()) {
      Configuration frame = stacks_[static_cast<size_t>(chain.back())];
      frame.stack = numbers.at(frame.stack);
      saved.frames.push_back(frame);
      numbers.emplace(chain.back(), static_cast<int32_t>(saved.frames.size()));
    }
    c.stack = numbers.at(c.stack);
    saved.configurations.push_back(c);
  }
  return saved;
}

int32_t GrammarStates::restore(const Snapshot& saved) {
  make_bottom();
  std::vector<int32_t> stacks = {0};
  for (Configuration frame : saved.frames) {
    frame.stack = stacks[static_cast<size_t>(frame.stack)];
    stacks.push_back(push(frame));
  }
  std::vector<Configuration> members = saved.configurations;
  for (Configuration& c : members) c.stack = stacks[static_cast<size_t>(c.stack)];
  std::ranges::sort(members);
  looked_at_ += std::ssize(members) + std::ssize(saved.frames);
  return number_of(std::move(members), saved.whole);
}

// State of everything that these configurations reach without a byte, by calls and returns.
int32_t GrammarStates::id_of(std::vector<Configuration> work) {
  std::unordered_set<Configuration, Hash> seen;
  std::vector<Configuration> kept;
  bool whole = false;
  while (!work.empty()) {
    const Configuration c = work.back();
    work.pop_back();
    if (!seen.insert(c).second) continue;
    if (seen.size() > kMaxConfigurations) break;
    const auto& state = automaton_.states()[static_cast<size_t>(c.state)];
    if (leads_on(c)) kept.push_back(c);
    if (state.final && c.stack == 0) whole = true;
    if (state.final && c.stack != 0) work.push_back(stacks_[static_cast<size_t>(c.stack)]);
    const int32_t count = state.counter == StateCounter::kInLoop ? c.count : 0;
    for (const auto& call : state.calls)
      work.push_back({automaton_.start(call.rule), push({call.target, c.stack, count})});
  }
  looked_at_ += std::ssize(seen);
  std::ranges::sort(kept);
  return number_of(std::move(kept), whole);
}

// kept: sorted.
int32_t GrammarStates::number_of(std::vector<Configuration> kept, bool whole) {
  uint64_t hash = whole ? 1 : 0;
  for (const Configuration& c : kept)
    hash = (hash ^ hash_of(c)) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
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
    to_end = std::min(to_end,
                      sum_of_bytes(automaton_.bytes_to_end(c.state), bytes_after_return(c.stack)));
  to_end_.push_back(to_end);
  alike_.push_back(kUnknown);
  steps_.resize(steps_.size() + classes_, kUnknown);
  return id;
}

}  // namespace trireme
