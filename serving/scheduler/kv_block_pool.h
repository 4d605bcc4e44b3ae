// Allocator and prefix index of the blocks of a paged KV cache (PagedAttention, Kwon et al., SOSP
// 2023). Has no keys or values, only the number of users of each block, the tokens of each
// published block, and the free list.
//
// A block holds the keys and values of block_tokens tokens and may have any number of users
// (sequences). When the last user releases it, the block joins the free list; the block released
// longest ago is reused first. Until a published block is reused, sequences with the same prefix
// can find it (prefix caching). Its key is the id of the prefix before it plus its own tokens;
// SequenceBlocks replaces the tokens by a group number for further groups of layers. Tokens are
// compared one by one, so that equal hashes never confuse two prefixes. Prefixes with different
// salts share nothing.
//
// No copy on write: only published blocks are shared, which are full and no longer written. A
// sequence that continues from a shared prefix (a sample of the same prompt, or a beam) recomputes
// the tokens of that prefix after its last shared block. These are fewer than block_tokens, or
// block_tokens where all blocks of the prefix are cached, because its last token must be computed
// to get the logits. They add at most block_tokens rows to a step, which reads all weights anyway.
//
// All operations are O(1) per block. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trireme {

// Identity of a published block and thus of the prefix that ends with it, or of an empty prefix
// (KvBlockPool::root()). Never reused.
using PrefixId = uint64_t;

class KvBlockPool {
 public:
  // secret: seed of the hashes, so that clients cannot construct collisions.
  KvBlockPool(int64_t blocks, int64_t block_tokens, uint64_t secret);

  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t block_tokens() const { return block_tokens_; }
  int64_t free() const { return free_; }  // blocks without users, published or not
  int64_t used() const { return blocks() - free_; }
  int64_t users(int32_t block) const { return blocks_[index(block)].users; }

  // Allocates a block with one user, unpublished and with undefined content. Requires free() > 0.
  int32_t take();
  void share(int32_t block);    // adds a user to a block that has users
  void release(int32_t block);  // removes a user

  // Id of the empty prefix of this salt: a hash with the secret. forget_all() changes it.
  PrefixId root(std::string_view salt) const;
  // Finds the published block with these tokens after prefix `before` and adds a user; sets `id` to
  // the id of the extended prefix. -1 if there is none: `id` is unchanged.
  int32_t find(PrefixId before, std::span<const int32_t> tokens, PrefixId& id);
  // Publishes a block that has users: it holds these block_tokens tokens after prefix `before`.
  // Returns the id of the extended prefix. If another block is already published for it, this one
  // stays unpublished.
  PrefixId publish(int32_t block, PrefixId before, std::span<const int32_t> tokens);
  // Unpublishes all blocks, after the weights have changed. Earlier prefix ids are never found
  // again: the roots change as well.
  void forget_all();

 private:
  static constexpr int32_t kNone = -1;
  struct KvBlock {
    int64_t users = 0;
    PrefixId id = 0, before = 0;             // 0: not published
    int32_t earlier = kNone, later = kNone;  // neighbours in the free list
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
  std::vector<KvBlock> blocks_;
  std::vector<int32_t> tokens_;  // (blocks, block_tokens), of published blocks
  std::unordered_multimap<uint64_t, int32_t> by_hash_;  // published blocks
  int32_t first_free_ = kNone, last_free_ = kNone;
};

}  // namespace trireme
