// Which servers have seen the beginning of a prompt, and so probably hold its keys and values in
// their caches. A server is one of those behind a router, or a replica of the model within one.
//
// A prompt's bytes (of its text, or of its token ids) are divided into blocks of kPrefixBlockBytes;
// a block is known by a hash of itself and all before it (as vLLM's prefix cache knows blocks of
// tokens), so that one look-up a block finds the longest beginning. What was looked for longest ago
// is forgotten first, half of the table at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme {

constexpr size_t kPrefixBlockBytes = 128;
constexpr size_t kMostPrefixBlocks = 4096;  // what is behind them does not count
constexpr size_t kMostServers = 64;
using ServerSet = uint64_t;  // bit i: server i

// Of what keeps beginnings apart (models, keys, salts).
uint64_t prefix_scope(std::string_view what);
// Hashes of the whole blocks.
std::vector<uint64_t> prefix_blocks(std::string_view text, uint64_t scope);

// For one thread at a time.
class PrefixTable {
 public:
  explicit PrefixTable(size_t most_blocks = 1 << 18) : most_blocks_(most_blocks) {}

  struct Match {
    ServerSet servers = 0;  // of those asked for, the ones that know the most
    size_t blocks = 0;      // how many of the first blocks
  };
  Match find(std::span<const uint64_t> blocks, ServerSet among) const;
  void insert(std::span<const uint64_t> blocks, size_t server);
  void forget(size_t server);  // its cache is gone
  size_t size() const { return young_.size() + old_.size(); }

 private:
  ServerSet servers_of(uint64_t block) const;

  size_t most_blocks_;
  std::unordered_map<uint64_t, ServerSet> young_, old_;
};

}  // namespace trireme
