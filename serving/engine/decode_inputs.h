// What a model is told about the next tokens of one text, in one piece of memory where it computes.
#pragma once

#include <span>

#include "transformer/tokens.h"

namespace trireme {

class DecodeInputs {
 public:
  // Of a text of at most max_tokens, of which at most most_new come at a time. Its blocks in a paged cache
  // with blocks of block_tokens are the pool's first, in order; 0: it is not in blocks.
  DecodeInputs(Ctx& ctx, int64_t max_tokens, int64_t most_new, int64_t block_tokens);

  // `ids` follow `past` others. On a GPU one copy from pinned memory, queued on the main stream. Every
  // call with so many ids puts each number at the same address, so that the copy is all that a recorded
  // pass needs to run again.
  void write(Ctx& ctx, std::span<const int32_t> ids, int64_t past);

  // What write() wrote; position_end is max_tokens, whatever has come of them. The first tokens are a new
  // sequence of the paged cache; a single one is not, so that all passes over one are alike.
  const Tokens& tokens() const { return tokens_; }

 private:
  // Writes number i as value(i) behind those written before; where the numbers will be.
  template <class T, class F>
  ConstTensor put(int64_t n, F&& value);

  int64_t max_tokens_, most_new_;
  Buffer host_;    // pinned on a GPU
  Buffer device_;  // on a GPU: of the same layout
  Buffer table_;   // (1, M) int32
  int64_t used_ = 0;
  cuda::Event copied_;  // the last copy has run
  Tokens tokens_;
};

}  // namespace trireme
