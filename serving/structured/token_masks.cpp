#include "serving/structured/token_masks.h"

#include <algorithm>
#include <bit>

namespace trireme {
namespace {

constexpr int64_t kMaxStateBytes = int64_t{32} << 20, kMaxMaskBytes = int64_t{16} << 20;
constexpr int64_t kMaxAutomatonBytes = int64_t{32} << 20;
// Limit for states during a walk; between walks they can be forgotten.
constexpr int64_t kMaxBytesOfAWalk = int64_t{160} << 20;
constexpr int64_t kWorkOfReading = 8;  // cost of a visited configuration, in trie nodes
constexpr int64_t kWordsOfWork = 16;   // mask words written at the cost of a trie node
// Charged in advance: the memory that a step takes for states is known only after it.
constexpr int64_t kChargedAhead = 64 << 10;

void set_bit(std::span<uint32_t> mask, int32_t id) {
  mask[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
}

}  // namespace

TokenMasks::TokenMasks(const PushdownAutomaton& automaton, const TokenTrie& trie, int64_t max_work,
                       Charge charge)
    : automaton_(automaton),
      trie_(trie),
      max_work_(max_work),
      work_left_(max_work),
      charge_(std::move(charge)),
      states_(automaton, trie.depth()),
      way_(static_cast<size_t>(trie.depth()) + 1) {}

void TokenMasks::begin(int64_t max_work) {
  max_work_ = work_left_ = max_work;
  lacks_memory_ = false;
}

int64_t TokenMasks::bytes() const {
  return states_.bytes() + kept_bytes_ + automaton_bytes_ + hash_map_bytes(of_automaton_) +
         hash_map_bytes(of_reader_);
}

// Charges `more` additional bytes; false: refused.
bool TokenMasks::has_room(int64_t more) {
  const int64_t wanted = bytes() + more;
  if (!charge_ || wanted <= charged_) return true;
  if (!charge_(wanted + kChargedAhead)) return false;
  charged_ = wanted + kChargedAhead;
  return true;
}

// Accounts for a step that may have created states.
void TokenMasks::charge_states(int64_t looked_at_before) {
  const int64_t looked_at = states_.looked_at() - looked_at_before;
  if (looked_at == 0) return;
  work_left_ -= kWorkOfReading * looked_at;
  if (states_.bytes() > kMaxBytesOfAWalk) work_left_ = -1;
  if (has_room(0)) return;
  lacks_memory_ = true;
  work_left_ = -1;
}

int32_t TokenMasks::step(int32_t state, uint8_t byte) {
  if (states_.knows_step(state, byte)) return states_.step(state, byte);
  if (work_left_ <= 0) work_left_ = -1;
  if (gave_up()) return GrammarStates::kDead;
  const int64_t before = states_.looked_at();
  const int32_t next = states_.step(state, byte);
  charge_states(before);
  return gave_up() ? GrammarStates::kDead : next;
}

int32_t TokenMasks::restore(const GrammarStates::Snapshot& saved) {
  const int64_t before = states_.looked_at();
  const int32_t state = states_.restore(saved);
  charge_states(before);
  return gave_up() ? GrammarStates::kDead : state;
}

// Calls visit(n, s) for each node n below `node` that can be read from `state`, the reader state at
// `node`; s is the reader state at n.
template <class Visit>
void TokenMasks::walk(int32_t state, int32_t node, Visit&& visit) {
  const int32_t end = trie_.end(node);
  way_[trie_.depth(node)] = state;
  for (int32_t n = node + 1; n < end;) {
    if (--work_left_ < 0) return;
    const uint16_t depth = trie_.depth(n);
    const int64_t before = states_.looked_at();
    const int32_t next = states_.step(way_[static_cast<size_t>(depth) - 1], trie_.byte(n));
    charge_states(before);
    if (next == GrammarStates::kDead) {
      n = trie_.end(n);
      continue;
    }
    way_[depth] = next;
    visit(n, next);
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

const TokenMasks::StateTokens& TokenMasks::of_automaton(int32_t state, int32_t count) {
  const int64_t key = int64_t{count} << 32 | state;
  const auto found = of_automaton_.find(key);
  if (found != of_automaton_.end()) return found->second;
  if (work_left_ <= 0) work_left_ = -1;
  if (gave_up()) return given_up_;
  if (automaton_bytes_ > kMaxAutomatonBytes) {
    release_memory(of_automaton_);
    automaton_bytes_ = 0;
  }
  StateTokens tokens;
  std::vector<int32_t> ids;
  walk(states_.on_edges_of(state, count), 0, [&](int32_t node, int32_t next) {
    const std::span<const int32_t> here = trie_.tokens(node);
    ids.insert(ids.end(), here.begin(), here.end());
    if (!here.empty()) tokens.furthest = std::max(tokens.furthest, states_.bytes_to_end(next));
    if (states_.is_whole(next) && trie_.end(node) > node + 1) tokens.ends.push_back(node);
  });
  if (gave_up()) return given_up_;
  tokens.inside = packed(ids);
  tokens.ends.shrink_to_fit();
  const int64_t bytes = tokens.inside.bytes() + heap_bytes(tokens.ends);
  if (!has_room(bytes)) {
    lacks_memory_ = true;
    work_left_ = -1;
    return given_up_;
  }
  const StateTokens& kept = of_automaton_.emplace(key, std::move(tokens)).first->second;
  automaton_bytes_ += bytes;
  return kept;
}

TokenMasks::ReaderTokens TokenMasks::of_reader(int32_t state) {
  const std::vector<GrammarStates::Configuration> ways(states_.configurations(state).begin(),
                                                       states_.configurations(state).end());
  ReaderTokens out;
  std::vector<uint32_t> bits(static_cast<size_t>(trie_.words()), 0);
  std::vector<int32_t> ids;
  for (const auto& [at, stack, count] : ways) {
    const StateTokens& tokens = of_automaton(at, count);
    unite(tokens.inside, bits);
    work_left_ -=
        1 + (std::ssize(tokens.inside.few) + std::ssize(tokens.inside.bits)) / kWordsOfWork;
    if (gave_up()) return out;
    out.furthest =
        std::max(out.furthest, sum_of_bytes(tokens.furthest, states_.bytes_after_return(stack)));
    if (stack == 0) continue;
    const int32_t after_return = states_.after_return(stack);
    for (const int32_t node : tokens.ends)
      walk(after_return, node, [&](int32_t n, int32_t next) {
        const std::span<const int32_t> here = trie_.tokens(n);
        ids.insert(ids.end(), here.begin(), here.end());
        if (!here.empty()) out.furthest = std::max(out.furthest, states_.bytes_to_end(next));
      });
    if (gave_up()) return out;
  }
  for (const int32_t id : ids) set_bit(bits, id);
  ids.clear();
  for (size_t word = 0; word < bits.size(); ++word)
    for (uint32_t rest = bits[word]; rest != 0; rest &= rest - 1)
      ids.push_back(static_cast<int32_t>(word * 32) + std::countr_zero(rest));
  out.tokens = packed(ids);
  return out;
}

bool TokenMasks::add(int32_t state, int64_t most, std::span<uint32_t> mask) {
  const int64_t before = states_.looked_at();
  state = states_.alike(state);
  charge_states(before);
  const auto known = of_reader_.find(state);
  if (known != of_reader_.end()) return add_of(known->second, state, most, mask);
  if (work_left_ <= 0) work_left_ = -1;
  if (gave_up()) return false;
  ReaderTokens tokens = of_reader(state);
  if (gave_up()) return false;
  const int64_t bytes = tokens.tokens.bytes();
  if (!has_room(bytes)) return add_of(tokens, state, most, mask);  // not kept
  const ReaderTokens& kept = of_reader_.emplace(state, std::move(tokens)).first->second;
  kept_bytes_ += bytes;
  return add_of(kept, state, most, mask);
}

bool TokenMasks::add_of(const ReaderTokens& of, int32_t state, int64_t most,
                        std::span<uint32_t> mask) {
  if (of.furthest > most) return add_near(state, most, mask);
  unite(of.tokens, mask);
  return !of.tokens.few.empty() || !of.tokens.bits.empty();
}

// As add(), for a state where some token leads too far from the end.
bool TokenMasks::add_near(int32_t state, int64_t most, std::span<uint32_t> mask) {
  std::vector<std::pair<int64_t, int32_t>> found;  // bytes missing after a node, and the node
  int64_t min_bytes = kNeverEnds;
  walk(state, 0, [&](int32_t node, int32_t next) {
    if (trie_.tokens(node).empty()) return;
    found.emplace_back(states_.bytes_to_end(next), node);
    min_bytes = std::min(min_bytes, found.back().first);
  });
  if (gave_up()) return false;
  if (!states_.is_whole(state)) most = std::max(most, min_bytes);
  for (const auto& [bytes, node] : found)
    if (bytes <= most)
      for (const int32_t id : trie_.tokens(node)) set_bit(mask, id);
  return !found.empty() && min_bytes <= most;
}

bool TokenMasks::prepare(int64_t max_work) {
  std::vector<std::pair<int32_t, int32_t>> order;  // minus the number of accepted bytes, state
  for (size_t s = 0; s < automaton_.states().size(); ++s) {
    int32_t width = 0;
    for (const auto& edge : automaton_.states()[s].edges) width += edge.last - edge.first + 1;
    if (width > 0) order.emplace_back(-width, static_cast<int32_t>(s));
  }
  std::ranges::sort(order);
  for (const auto& [width, state] : order) {
    if (max_work < 0 || automaton_bytes_ > kMaxAutomatonBytes / 2) return true;
    begin(kMaxWork);
    of_automaton(state, 0);
    max_work -= work();
    if (lacks_memory()) return true;
    if (gave_up()) return false;
    if (is_full()) clear();
  }
  return true;
}

bool TokenMasks::is_full() const {
  return states_.bytes() > kMaxStateBytes || kept_bytes_ > kMaxMaskBytes;
}

void TokenMasks::clear() noexcept {
  states_.clear();
  release_memory(of_reader_);
  kept_bytes_ = 0;
  if (lacks_memory_) {
    release_memory(of_automaton_);
    automaton_bytes_ = 0;
  }
  if (!charge_) return;
  charged_ = std::min(charged_, bytes() + kChargedAhead);
  (void)charge_(charged_);  // never refused: not more than before
}

}  // namespace trireme
