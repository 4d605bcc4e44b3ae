#include "serving/structured/token_masks.h"

#include <algorithm>
#include <bit>

namespace trireme {
namespace {

constexpr int64_t kMostStateBytes = int64_t{32} << 20, kMostMaskBytes = int64_t{16} << 20;
constexpr int64_t kMostAutomatonBytes = int64_t{32} << 20;

void set_bit(std::span<uint32_t> mask, int32_t id) {
  mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

}  // namespace

TokenMasks::TokenMasks(const PushdownAutomaton& automaton, const TokenTrie& trie)
    : automaton_(automaton),
      trie_(trie),
      states_(automaton),
      way_(static_cast<size_t>(trie.depth()) + 1) {}

// Tokens below `node` that can be read from `state`, which is what reading up to the node has led to. at_end(n): of
// each node below where a whole text has been read.
template <class Visit>
void TokenMasks::walk(int32_t state, int32_t node, std::vector<int32_t>& found, Visit&& at_end) {
  const int32_t end = trie_.end(node);
  way_[trie_.depth(node)] = state;
  for (int32_t n = node + 1; n < end;) {
    const uint16_t depth = trie_.depth(n);
    const int32_t next = states_.step(way_[static_cast<size_t>(depth) - 1], trie_.byte(n));
    if (next == GrammarStates::kDead) {
      n = trie_.end(n);
      continue;
    }
    way_[depth] = next;
    const std::span<const int32_t> tokens = trie_.tokens(n);
    found.insert(found.end(), tokens.begin(), tokens.end());
    if (states_.is_whole(next)) at_end(n);
    ++n;
  }
}

TokenMasks::Tokens TokenMasks::packed(const std::vector<int32_t>& ids) const {
  Tokens tokens;
  if (std::ssize(ids) <= trie_.words()) {
    tokens.few = ids;
    return tokens;
  }
  tokens.bits.assign(static_cast<size_t>(trie_.words()), 0);
  for (const int32_t id : ids) set_bit(tokens.bits, id);
  return tokens;
}

void TokenMasks::unite(const Tokens& tokens, std::span<uint32_t> mask) {
  for (const int32_t id : tokens.few) set_bit(mask, id);
  for (size_t i = 0; i < tokens.bits.size(); ++i) mask[i] |= tokens.bits[i];
}

const TokenMasks::StateTokens& TokenMasks::of_automaton(int32_t state) {
  const auto found = of_automaton_.find(state);
  if (found != of_automaton_.end()) return found->second;
  if (automaton_bytes_ > kMostAutomatonBytes) {
    of_automaton_.clear();
    automaton_bytes_ = 0;
  }
  StateTokens tokens;
  std::vector<int32_t> ids;
  walk(states_.at(state), 0, ids, [&](int32_t node) {
    if (trie_.end(node) > node + 1) tokens.ends.push_back(node);
  });
  tokens.inside = packed(ids);
  automaton_bytes_ += tokens.inside.bytes() + 4 * std::ssize(tokens.ends);
  return of_automaton_.emplace(state, std::move(tokens)).first->second;
}

bool TokenMasks::add(int32_t state, std::span<uint32_t> mask) {
  const auto known = of_reader_.find(state);
  if (known != of_reader_.end()) {
    unite(known->second, mask);
    return !known->second.few.empty() || !known->second.bits.empty();
  }
  const std::vector<GrammarStates::Configuration> ways(states_.configurations(state).begin(),
                                                       states_.configurations(state).end());
  std::vector<uint32_t> bits(static_cast<size_t>(trie_.words()), 0);
  std::vector<int32_t> ids;
  for (const auto& [at, stack] : ways) {
    const StateTokens& tokens = of_automaton(at);
    unite(tokens.inside, bits);
    if (stack == 0) continue;
    const int32_t behind = states_.behind(stack);
    for (const int32_t node : tokens.ends) walk(behind, node, ids, [](int32_t) {});
  }
  for (const int32_t id : ids) set_bit(bits, id);
  ids.clear();
  for (size_t word = 0; word < bits.size(); ++word)
    for (uint32_t rest = bits[word]; rest != 0; rest &= rest - 1)
      ids.push_back(static_cast<int32_t>(word * 32) + std::countr_zero(rest));
  Tokens tokens = packed(ids);
  unite(tokens, mask);
  kept_bytes_ += tokens.bytes();
  of_reader_.emplace(state, std::move(tokens));
  return !ids.empty();
}

void TokenMasks::prepare(std::chrono::steady_clock::time_point end) {
  std::vector<std::pair<int32_t, int32_t>> order;  // bytes that lead on, state
  for (size_t s = 0; s < automaton_.states().size(); ++s) {
    int32_t width = 0;
    for (const auto& edge : automaton_.states()[s].edges) width += edge.last - edge.first + 1;
    if (width > 0) order.emplace_back(-width, static_cast<int32_t>(s));
  }
  std::ranges::sort(order);
  for (const auto& [width, state] : order) {
    if (std::chrono::steady_clock::now() > end || automaton_bytes_ > kMostAutomatonBytes / 2)
      return;
    of_automaton(state);
    if (is_full()) clear();
  }
}

bool TokenMasks::is_full() const {
  return states_.bytes() > kMostStateBytes || kept_bytes_ > kMostMaskBytes;
}

void TokenMasks::clear() {
  states_.clear();
  of_reader_.clear();
  kept_bytes_ = 0;
}

}  // namespace trireme
