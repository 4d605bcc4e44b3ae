// Block tables of a sequence, one for each group of layers in the KV cache. A group's `window` is
// that of kv_windows() (transformer/pass/kv_groups.h): 0, W > 0 or, for chunks, -C < 0.
//
// In a group with a window or chunks, a table holds the last blocks only: before a step computes
// the tokens from position `past` on, the blocks that neither these nor later tokens attend to are
// dropped. While a prompt is computed, the table has as many blocks as the largest step needs, so
// that the next part of the prompt reuses the dropped blocks, unless other sequences share them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/ops/attention/paged_attention.h"

namespace trireme {

struct BlockTable {
  int64_t first = 0;            // number of dropped blocks
  std::vector<int32_t> blocks;  // hold the tokens from first * block_tokens on

  int64_t end() const { return first + std::ssize(blocks); }
  bool has(int64_t number) const { return number >= first && number < end(); }
  // The block with this number in the sequence. Requires has(number).
  int32_t block(int64_t number) const { return blocks[static_cast<size_t>(number - first)]; }
};

// Number of blocks dropped before the tokens from position `past` on are computed. With a window
// the dropped tokens are a multiple of kPagedDropAlignment, so that attention on the CPU gives the
// same bits as without the drop. With chunks all blocks before the chunk of `past` are dropped:
// chunks are computed independently of each other.
inline int64_t dropped_blocks(int64_t past, int64_t window, int64_t block_tokens) {
  if (window < 0) return past / -window * -window / block_tokens;
  if (window == 0 || past < window) return 0;
  const int64_t alignment = std::lcm(block_tokens, kPagedDropAlignment);
  return (past + 1 - window) / alignment * alignment / block_tokens;
}

// Maximum blocks of a table, for sequences of at most `length` tokens, of which a step computes at
// most step_tokens.
inline int64_t max_table_blocks(int64_t length, int64_t window, int64_t block_tokens,
                                int64_t step_tokens) {
  const int64_t all = ceil_div(length, block_tokens);
  if (window == 0 || window > length) return all;
  if (window < 0) return std::min(all, ceil_div(-window - 1 + step_tokens, block_tokens));
  const int64_t alignment = std::lcm(block_tokens, kPagedDropAlignment);
  return std::min(all, ceil_div(window + alignment - 2 + step_tokens, block_tokens));
}

}  // namespace trireme
