// Block allocation of running sequences: gives each sequence blocks of the pool for its tables
// (serving/scheduler/block_table.h), drops those that no later token attends to, and finds and
// publishes prefixes.
//
// The chain of prefixes consists of the blocks of the first group of layers. A block of another
// group is published after the prefix that ends with the first group's block of the same tokens,
// with a key of its group in place of tokens.
#pragma once

#include <span>
#include <vector>

#include "serving/scheduler/kv_block_pool.h"
#include "serving/scheduler/scheduler_output.h"
#include "serving/scheduler/sequence.h"

namespace trireme {

class SequenceBlocks {
 public:
  // windows: of the groups of layers (transformer/pass/kv_groups.h); length: maximum tokens of a
  // sequence; step_tokens: maximum of a step.
  SequenceBlocks(KvBlockPool& pool, std::vector<int64_t> windows, int64_t length,
                 int64_t step_tokens);
  int64_t groups() const { return std::ssize(windows_); }
  int64_t max_blocks() const;  // maximum blocks of one sequence, in all groups together

  // Gives a sequence without blocks those of its longest cached prefix of at most `max_tokens`
  // tokens. Sets Sequence::computed, published and prefix; before the call, prefix is
  // KvBlockPool::root().
  void find_prefix(Sequence& sequence, int64_t max_tokens);
  // Publishes the full blocks of the first `computed` tokens, up to the first block that was
  // dropped before this call.
  void publish(Sequence& sequence, int64_t computed);
  // Drops the blocks that no later token attends to, then gives the sequence the blocks of its
  // first `tokens` tokens; in groups with a window or chunks, at most as many as the largest next
  // step needs. False: too few blocks are free, and none was given.
  bool give(Sequence& sequence, int64_t tokens);
  int64_t missing(const Sequence& sequence, int64_t tokens) const;  // number that give() takes
  // Appends the changes of the sequence's tables since its last plan to the plan.
  void append(SchedulerOutput& plan, Sequence& sequence) const;
  void release(Sequence& sequence);  // all blocks

 private:
  int64_t find_windows(Sequence& sequence, std::span<const PrefixId> prefixes);
  void drop(Sequence& sequence);
  int64_t table_end(const Sequence& sequence, size_t group, int64_t tokens) const;

  KvBlockPool& pool_;
  std::vector<int64_t> windows_;
  std::vector<int64_t> max_blocks_;         // of a table
  std::vector<std::vector<int32_t>> keys_;  // by group
};

}  // namespace trireme
