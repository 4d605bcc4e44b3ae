// Table of the prompt prefixes that were sent to each server, which probably has them in its KV
// cache. The servers are those behind a router, or the replicas of the model in one server.
//
// A prompt's bytes (of its text, or of its token ids) are divided into blocks of kPrefixBlockBytes.
// A block is identified by a hash of itself and all blocks before it, as in vLLM's prefix cache, so
// that one look-up per block finds the longest prefix. When the table is full, the half of the
// blocks inserted longest ago is dropped.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme {

constexpr size_t kPrefixBlockBytes = 128;
constexpr size_t kMaxPrefixBlocks = 4096;  // later blocks of a prompt are ignored
constexpr size_t kMaxServers = 64;
using ServerSet = uint64_t;  // bit i: server i

// Hash of the values that separate prefixes: model, API key, salt. Part of every block's hash.
uint64_t prefix_scope(std::string_view what);
// Hashes of the full blocks of a prompt, at most kMaxPrefixBlocks.
std::vector<uint64_t> prefix_blocks(std::string_view text, uint64_t scope);

// Not thread-safe.
class PrefixTable {
 public:
  explicit PrefixTable(size_t max_blocks = 1 << 18) : max_blocks_(max_blocks) {}

  struct Match {
    ServerSet servers = 0;  // servers of `among` that have the longest prefix
    size_t blocks = 0;      // length of that prefix, in blocks
  };
  Match find(std::span<const uint64_t> blocks, ServerSet among) const;
  // Records that the prompt with these blocks was sent to a server.
  void insert(std::span<const uint64_t> blocks, size_t server);
  void forget(size_t server);  // the server has lost its cache
  // Number of blocks in the table.
  size_t size() const { return young_.size() + old_.size(); }

 private:
  ServerSet servers_of(uint64_t block) const;

  size_t max_blocks_;
  std::unordered_map<uint64_t, ServerSet> young_, old_;
};

}  // namespace trireme
