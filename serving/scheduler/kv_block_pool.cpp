#include "serving/scheduler/kv_block_pool.h"

#include <xxhash.h>

#include <algorithm>

#include "engine/core/error.h"

namespace trireme {
namespace {

// Marks the ids of roots; those of published blocks count from 1.
constexpr PrefixId kRoot = PrefixId{1} << 63;

}  // namespace

KvBlockPool::KvBlockPool(int64_t blocks, int64_t block_tokens, uint64_t secret)
    : block_tokens_(block_tokens), secret_(secret) {
  TRIREME_CHECK(blocks > 0 && blocks <= INT32_MAX && block_tokens > 0, blocks, " blocks of ",
                block_tokens, " tokens, expected at least 1 of each and at most 2^31 - 1 blocks");
  blocks_.resize(static_cast<size_t>(blocks));
  tokens_.resize(static_cast<size_t>(blocks * block_tokens));
  for (int32_t block = 0; block < blocks; ++block) append_free(block);
}

int32_t KvBlockPool::take() {
  TRIREME_CHECK(free_ > 0, "take() was called without a free block");
  const int32_t block = first_free_;
  remove_free(block);
  forget(block);
  blocks_[index(block)].users = 1;
  return block;
}

void KvBlockPool::share(int32_t block) {
  TRIREME_CHECK(users(block) > 0, "block ", block, " is shared, but has no users");
  ++blocks_[index(block)].users;
}

void KvBlockPool::release(int32_t block) {
  TRIREME_CHECK(users(block) > 0, "block ", block, " is released, but has no users");
  if (--blocks_[index(block)].users == 0) append_free(block);
}

PrefixId KvBlockPool::root(std::string_view salt) const {
  return kRoot | XXH3_64bits_withSeed(salt.data(), salt.size(), secret_);
}

int32_t KvBlockPool::find(PrefixId before, std::span<const int32_t> tokens, PrefixId& id) {
  const int32_t block = published(before, tokens, hash(before, tokens));
  if (block == kNone) return kNone;
  KvBlock& found = blocks_[index(block)];
  if (found.users++ == 0) remove_free(block);
  id = found.id;
  return block;
}

PrefixId KvBlockPool::publish(int32_t block, PrefixId before, std::span<const int32_t> tokens) {
  TRIREME_CHECK(users(block) > 0 && std::ssize(tokens) == block_tokens_, "block ", block, " of ",
                tokens.size(), " tokens with ", users(block),
                " users is published, expected a full block with users");
  const uint64_t key = hash(before, tokens);
  const int32_t other = published(before, tokens, key);
  if (other != kNone) return blocks_[index(other)].id;
  forget(block);
  std::ranges::copy(tokens, tokens_of(block).begin());
  by_hash_.emplace(key, block);
  KvBlock& now = blocks_[index(block)];
  now.before = before;
  return now.id = next_id_++;
}

void KvBlockPool::forget_all() {
  by_hash_.clear();
  for (KvBlock& block : blocks_) block.id = 0;
  ++secret_;
}

uint64_t KvBlockPool::hash(PrefixId before, std::span<const int32_t> tokens) const {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), secret_ ^ before);
}

std::span<int32_t> KvBlockPool::tokens_of(int32_t block) {
  return std::span(tokens_).subspan(index(block) * static_cast<size_t>(block_tokens_),
                                    static_cast<size_t>(block_tokens_));
}

int32_t KvBlockPool::published(PrefixId before, std::span<const int32_t> tokens, uint64_t key) {
  const auto [begin, end] = by_hash_.equal_range(key);
  for (auto at = begin; at != end; ++at)
    if (blocks_[index(at->second)].before == before &&
        std::ranges::equal(tokens_of(at->second), tokens))
      return at->second;
  return kNone;
}

void KvBlockPool::forget(int32_t block) {
  KvBlock& now = blocks_[index(block)];
  if (now.id == 0) return;
  const auto [begin, end] = by_hash_.equal_range(hash(now.before, tokens_of(block)));
  const auto at =
      std::find_if(begin, end, [&](const auto& entry) { return entry.second == block; });
  TRIREME_CHECK(at != end, "published block ", block, " is not in the index");
  by_hash_.erase(at);
  now.id = 0;
}

void KvBlockPool::append_free(int32_t block) {
  KvBlock& now = blocks_[index(block)];
  now.earlier = last_free_;
  now.later = kNone;
  (last_free_ == kNone ? first_free_ : blocks_[index(last_free_)].later) = block;
  last_free_ = block;
  ++free_;
}

void KvBlockPool::remove_free(int32_t block) {
  const KvBlock& now = blocks_[index(block)];
  (now.earlier == kNone ? first_free_ : blocks_[index(now.earlier)].later) = now.later;
  (now.later == kNone ? last_free_ : blocks_[index(now.later)].earlier) = now.earlier;
  --free_;
}

}  // namespace trireme
