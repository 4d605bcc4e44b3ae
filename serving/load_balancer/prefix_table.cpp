#include "serving/load_balancer/prefix_table.h"

#include <xxhash.h>

#include <algorithm>

namespace trireme {

uint64_t prefix_scope(std::string_view what) { return XXH3_64bits(what.data(), what.size()); }

std::vector<uint64_t> prefix_blocks(std::string_view text, uint64_t scope) {
  std::vector<uint64_t> out(std::min(text.size() / kPrefixBlockBytes, kMaxPrefixBlocks));
  uint64_t before = scope;
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = before =
        XXH3_64bits_withSeed(text.data() + i * kPrefixBlockBytes, kPrefixBlockBytes, before);
  return out;
}

ServerSet PrefixTable::servers_of(uint64_t block) const {
  ServerSet out = 0;
  for (const auto* table : {&young_, &old_})
    if (const auto at = table->find(block); at != table->end()) out |= at->second;
  return out;
}

PrefixTable::Match PrefixTable::find(std::span<const uint64_t> blocks, ServerSet among) const {
  Match out;
  for (const uint64_t block : blocks) {
    const ServerSet known = servers_of(block) & (out.blocks == 0 ? among : out.servers);
    if (known == 0) break;
    out.servers = known;
    ++out.blocks;
  }
  return out;
}

void PrefixTable::insert(std::span<const uint64_t> blocks, size_t server) {
  for (const uint64_t block : blocks) {
    if (young_.size() >= max_blocks_ / 2) {
      old_ = std::move(young_);
      young_.clear();
    }
    ServerSet& servers = young_[block];
    if (const auto at = old_.find(block); at != old_.end()) {
      servers |= at->second;
      old_.erase(at);
    }
    servers |= ServerSet{1} << server;
  }
}

void PrefixTable::forget(size_t server) {
  for (auto* table : {&young_, &old_})
    for (auto& [block, servers] : *table) servers &= ~(ServerSet{1} << server);
}

}  // namespace trireme
