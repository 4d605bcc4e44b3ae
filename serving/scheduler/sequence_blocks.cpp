#include "serving/scheduler/sequence_blocks.h"

#include <algorithm>
#include <numeric>

#include "engine/core/error.h"

namespace trireme {

SequenceBlocks::SequenceBlocks(KvBlockPool& pool, std::vector<int64_t> windows, int64_t length,
                               int64_t step_tokens)
    : pool_(pool), windows_(std::move(windows)) {
  TRIREME_CHECK(!windows_.empty(), "no group of layers");
  for (const int64_t window : windows_) {
    max_blocks_.push_back(max_table_blocks(length, window, pool.block_tokens(), step_tokens));
    // Token ids are not negative: no block of the first group has such a key.
    keys_.emplace_back(static_cast<size_t>(pool.block_tokens()),
                       -1 - static_cast<int32_t>(keys_.size()));
  }
}

int64_t SequenceBlocks::max_blocks() const {
  return std::accumulate(max_blocks_.begin(), max_blocks_.end(), int64_t{0});
}

void SequenceBlocks::find_prefix(Sequence& s, int64_t max_tokens) {
  const int64_t size = pool_.block_tokens();
  std::vector<int32_t>& blocks = s.tables.front().blocks;
  std::vector<PrefixId> prefixes = {s.prefix};
  for (int64_t at = 0; at + size <= max_tokens; at += size) {
    const std::span<const int32_t> tokens(s.tokens.data() + at, static_cast<size_t>(size));
    const int32_t block = pool_.find(prefixes.back(), tokens, s.prefix);
    if (block < 0) break;
    blocks.push_back(block);
    prefixes.push_back(s.prefix);
  }
  s.published = find_windows(s, prefixes);
  s.prefix = prefixes[static_cast<size_t>(s.published)];
  while (std::ssize(blocks) > s.published) {
    pool_.release(blocks.back());
    blocks.pop_back();
  }
  s.computed = s.published * size;
  drop(s);
}

// Fills the tables of all groups but the first with published blocks, for as long a part of the
// found prefixes as its windows have such blocks. prefixes[n]: with n blocks. Returns the number of
// blocks of that part.
int64_t SequenceBlocks::find_windows(Sequence& s, std::span<const PrefixId> prefixes) {
  int64_t found = std::ssize(prefixes) - 1;
  const auto first_of = [&](size_t group) {
    return dropped_blocks(found * pool_.block_tokens(), windows_[group], pool_.block_tokens());
  };
  for (int64_t n = found; n > 0; --n) {
    bool needed = false;
    for (size_t group = 1; group < s.tables.size(); ++group) {
      if (n <= first_of(group)) continue;
      needed = true;
      PrefixId unused = 0;
      const int32_t block = pool_.find(prefixes[static_cast<size_t>(n)], keys_[group], unused);
      if (block >= 0) {
        s.tables[group].blocks.push_back(block);  // the last one first
        continue;
      }
      for (size_t g = 1; g < s.tables.size(); ++g) {
        for (const int32_t later : s.tables[g].blocks) pool_.release(later);
        s.tables[g].blocks.clear();
      }
      found = n - 1;
      break;
    }
    if (!needed) break;
  }
  for (size_t group = 1; group < s.tables.size(); ++group) {
    s.tables[group].first = first_of(group);
    std::ranges::reverse(s.tables[group].blocks);
  }
  return found;
}

// Drops the blocks that no token after the computed ones attends to.
void SequenceBlocks::drop(Sequence& s) {
  for (size_t group = 0; group < s.tables.size(); ++group) {
    Sequence::Table& table = s.tables[group];
    const int64_t count =
        dropped_blocks(s.computed, windows_[group], pool_.block_tokens()) - table.first;
    for (int64_t n = 0; n < count; ++n) pool_.release(table.blocks[static_cast<size_t>(n)]);
    table.blocks.erase(table.blocks.begin(), table.blocks.begin() + count);
    table.first += count;
    table.known = std::max<int64_t>(table.known - count, 0);
  }
}

// End of a table for the sequence's first `tokens` tokens, as far as the next step may need it.
int64_t SequenceBlocks::table_end(const Sequence& s, size_t group, int64_t tokens) const {
  return std::min(ceil_div(tokens, pool_.block_tokens()),
                  s.tables[group].first + max_blocks_[group]);
}

int64_t SequenceBlocks::missing(const Sequence& s, int64_t tokens) const {
  int64_t count = 0;
  for (size_t group = 0; group < s.tables.size(); ++group)
    count += std::max<int64_t>(table_end(s, group, tokens) - s.tables[group].end(), 0);
  return count;
}

bool SequenceBlocks::give(Sequence& s, int64_t tokens) {
  drop(s);
  if (missing(s, tokens) > pool_.free()) return false;
  for (size_t group = 0; group < s.tables.size(); ++group)
    while (s.tables[group].end() < table_end(s, group, tokens))
      s.tables[group].blocks.push_back(pool_.take());
  return true;
}

void SequenceBlocks::append(SchedulerOutput& plan, Sequence& s) const {
  for (Sequence::Table& table : s.tables) {
    plan.tables.push_back({.first = static_cast<int32_t>(table.first),
                           .kept_blocks = static_cast<int32_t>(table.known),
                           .first_block = static_cast<int32_t>(plan.blocks.size()),
                           .blocks = static_cast<int32_t>(std::ssize(table.blocks) - table.known)});
    plan.blocks.insert(plan.blocks.end(), table.blocks.begin() + table.known, table.blocks.end());
    table.known = std::ssize(table.blocks);
  }
}

void SequenceBlocks::publish(Sequence& s, int64_t computed) {
  const int64_t size = pool_.block_tokens();
  // The chain of prefixes ends where a block was dropped before its tokens were computed.
  while ((s.published + 1) * size <= computed && s.tables.front().has(s.published)) {
    const auto at = static_cast<size_t>(s.published * size);
    s.prefix = pool_.publish(s.tables.front().block(s.published), s.prefix,
                             std::span(s.tokens).subspan(at, static_cast<size_t>(size)));
    for (size_t group = 1; group < s.tables.size(); ++group)
      if (s.tables[group].has(s.published))
        pool_.publish(s.tables[group].block(s.published), s.prefix, keys_[group]);
    ++s.published;
  }
}

void SequenceBlocks::release(Sequence& s) {
  // Last block first, so that prefixes stay cached longest: later blocks are unusable without them.
  int64_t end = 0;
  for (const Sequence::Table& table : s.tables) end = std::max(end, table.end());
  for (int64_t n = end; n-- > 0;)
    for (const Sequence::Table& table : s.tables)
      if (table.has(n)) pool_.release(table.block(n));
  for (Sequence::Table& table : s.tables) table = {};
  s.computed = s.published = 0;
}

}  // namespace trireme
