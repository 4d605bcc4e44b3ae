// The blocks of a paged KV cache by their numbers: who uses them, which hold the keys of which
// tokens, and which may be taken (PagedAttention, Kwon et al., SOSP 2023).
//
// A block holds the keys and values of block_tokens tokens. It is used by any number of sequences;
// when the last gives it back, it may be taken again, the one given back longest ago first. Until
// then a block that was published is found by sequences with the same beginning (prefix caching):
// the key of a block is the published block before it and its own tokens, compared token by token,
// so that equal hashes never mix two texts up. Beginnings with different salts have nothing in
// common.
//
// Nothing is copied on write: shared are published blocks, which are full and not written to any
// more. What follows the last of them, fewer tokens than a block has or (so that there are logits)
// a whole block, is computed again by each who goes on from there, the texts of one prompt and
// beams: at most block_tokens rows of a step, which reads all weights in any case.
//
// Costs: everything is O(1) per block. Not for several threads.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme {

// What a published block, and the beginning of the text that ends with it, is named by; never used
// twice.
using PrefixId = uint64_t;

class BlockPool {
 public:
  // secret: keys the hashes, so that nobody outside can make collisions.
  BlockPool(int64_t blocks, int64_t block_tokens, uint64_t secret);

  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t block_tokens() const { return block_tokens_; }
  int64_t free() const { return free_; }  // may be taken, published or not
  int64_t used() const { return blocks() - free_; }
  int64_t users(int32_t block) const { return blocks_[index(block)].users; }

  // A block with one user and unknown content; it is no longer published. There must be a free one.
  int32_t take();
  void share(int32_t block);    // one user more; of a block with users
  void release(int32_t block);  // one user less

  // The empty beginning, of texts with this salt.
  PrefixId root(std::string_view salt) const;
  // The published block whose tokens follow `before`, with one user more; -1: there is none. `id`
  // is then its name.
  int32_t find(PrefixId before, std::span<const int32_t> tokens, PrefixId& id);
  // Says that a block with users holds these tokens, block_tokens of them, after `before`. Returns
  // the name of that beginning. Where another block is published under it already, this one stays
  // unpublished.
  PrefixId publish(int32_t block, PrefixId before, std::span<const int32_t> tokens);
  // Nothing is published any more, since the weights have changed, and what follows beginnings of
  // before will not be found: roots are others.
  void forget_all();

 private:
  static constexpr int32_t kNone = -1;
  struct Block {
    int64_t users = 0;
    PrefixId id = 0, before = 0;             // 0: not published
    int32_t earlier = kNone, later = kNone;  // among the free
  };
  static size_t index(int32_t block) { return static_cast<size_t>(block); }
  uint64_t hash(PrefixId before, std::span<const int32_t> tokens) const;
  std::span<int32_t> tokens_of(int32_t block);
  int32_t published(PrefixId before, std::span<const int32_t> tokens, uint64_t key);
  void forget(int32_t block);
  void append_free(int32_t block);
  void remove_free(int32_t block);

  int64_t block_tokens_, free_ = 0;
  uint64_t secret_;
  PrefixId next_id_ = 1;
  std::vector<Block> blocks_;
  std::vector<int32_t> tokens_;                         // (blocks, block_tokens) of the published
  std::unordered_multimap<uint64_t, int32_t> by_hash_;  // the published
  int32_t first_free_ = kNone, last_free_ = kNone;
};

}  // namespace trireme
