// What a model is told about the next tokens of some sequences, in one piece of memory where it
// computes.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/ops/kv_codes.h"
#include "engine/ops/sample.h"
#include "transformer/formats/peft/stacked_adapters.h"
#include "transformer/pass/tokens.h"

namespace trireme {

struct StepLimits {
  int64_t tokens = 0;     // of a step
  int64_t sequences = 0;  // of a step
  int64_t length = 0;     // tokens of a sequence
  int64_t blocks = 0;     // of the KV cache
  int64_t block_tokens = 16;
  std::optional<KvType> kv_type = {};  // of the cache; absent: the model's dtype
  // What comes of a sequence has the same bits whatever else is computed, in whatever chunks, and
  // whatever of it the cache holds: products are batch-invariant (GemmEngine), and prompts that a
  // step computes from their beginnings are attended like later chunks, not as in training. Slower.
  // On the CPU only.
  bool deterministic = false;
  bool adapters = false;  // tokens choose among adapters (Part::columns)
  int64_t blocks_of_sequence() const { return ceil_div(length, block_tokens); }
};

class StepBatch {
 public:
  StepBatch(Ctx& ctx, const StepLimits& limits);

  struct Part {
    std::span<const int32_t> ids;    // new tokens
    int64_t past = 0;                // tokens before them
    std::span<const int32_t> table;  // blocks of all of these
    // Of two tables with one name the shorter is the beginning of the longer: only what is new of
    // it is written where it already stands. 0: none.
    uint64_t table_name = 0;
    AdapterColumns columns = {};  // of the adapters', those that act
  };
  // rows: those of the tokens, in ascending order, that the next token's logits are wanted behind.
  // `padded` tokens and as many sequences without any are behind the real ones. On a GPU a copy
  // from pinned memory, and one of each sequence's new blocks, queued on the main stream; every
  // call with so many tokens, sequences and rows puts each number at the same address, so that
  // these copies are all that a recorded pass needs to run again while
  // tokens().cached.longest_context stays the same. embedded: those that are wanted themselves,
  // behind the final norm; at most StepLimits::sequences. sampling: of each of `rows`, whose tokens
  // are then chosen where the logits are; empty: by the host.
  struct RowSampling {
    SamplingParams params;
    int64_t position = 0;
  };
  void write(Ctx& ctx, std::span<const Part> parts, std::span<const int32_t> rows, int64_t padded,
             std::span<const int32_t> embedded = {}, std::span<const RowSampling> sampling = {});

  // What write() wrote; position_end is the limit, whatever has come of it.
  const Tokens& tokens() const { return tokens_; }
  // (R) int32; absent: each token's row, of at most StepLimits::sequences.
  const ConstTensor& rows() const { return rows_; }
  int64_t row_count() const { return row_count_; }
  const SampleRows& sampling() const { return sampling_; }
  bool samples() const { return sampling_.position.present(); }
  const ConstTensor& embedded() const { return embedded_; }  // (E) int32; absent: none
  int64_t embedded_count() const { return embedded_.present() ? embedded_.size(0) : 0; }

 private:
  // Writes number i as value(i) behind those written before; where the numbers will be.
  template <class T, class F>
  ConstTensor put(const Shape& shape, F&& value);
  void put_tokens(std::span<const Part> parts, int64_t padded);
  void put_sequences(std::span<const Part> parts, int64_t padded);
  void put_sampling(std::span<const RowSampling> sampling);
  void put_tables(Ctx& ctx, std::span<const Part> parts);

  StepLimits limits_;
  Buffer host_;                         // pinned on a GPU
  Buffer device_;                       // on a GPU: of the same layout
  Buffer host_tables_, device_tables_;  // (sequences, blocks of a sequence); the same
  struct Written {
    uint64_t name = 0;
    size_t blocks = 0;
  };
  std::vector<Written> written_;  // of each row of the tables
  int64_t used_ = 0;
  cuda::Event copied_;  // the last copy has run
  Tokens tokens_;
  ConstTensor rows_, embedded_;
  int64_t row_count_ = 0;
  SampleRows sampling_ = {};
};

}  // namespace trireme
