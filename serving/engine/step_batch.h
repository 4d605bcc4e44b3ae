// Device batch of a step: the model's inputs for the next tokens of several sequences, in one
// buffer of the compute device.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/ops/attention/kv_codes.h"
#include "engine/ops/sampling/sample.h"
#include "serving/scheduler/block_table.h"
#include "transformer/formats/peft/stacked_adapters.h"
#include "transformer/pass/tokens.h"

namespace trireme {

struct StepLimits {
  int64_t tokens = 0;     // maximum of a step
  int64_t sequences = 0;  // maximum of a step
  int64_t length = 0;     // maximum tokens of a sequence
  int64_t blocks = 0;     // of the KV cache
  int64_t block_tokens = 16;
  // Window of each group of layers in the cache: kv_windows(), or {0}, one group that keeps all
  // tokens (transformer/pass/kv_groups.h).
  std::vector<int64_t> windows = {0};
  std::optional<KvType> kv_type = {};  // of the cache; absent: the model's dtype
  // Batch invariance: the results of a sequence are bit-identical whatever else the step computes,
  // and however its prompt is chunked or cached. Uses batch-invariant matrix products (GemmEngine).
  // An unchunked prompt uses the attention kernel of chunked prompts, not the training kernel.
  // Slower; CPU only.
  bool deterministic = false;
  bool adapters = false;  // tokens select LoRA adapters (Part::columns)
  // Maximum blocks of a sequence in a group, and in all groups together.
  int64_t table_blocks(size_t group) const {
    return max_table_blocks(length, windows[group], block_tokens, tokens);
  }
  int64_t blocks_of_sequence() const {
    int64_t all = 0;
    for (size_t group = 0; group < windows.size(); ++group) all += table_blocks(group);
    return all;
  }
};

class StepBatch {
 public:
  // chunk: ModelConfig::attention_chunk; 0: none. InputError unless it is a multiple of
  // limits.block_tokens.
  StepBatch(Ctx& ctx, const StepLimits& limits, int64_t chunk = 0);

  struct Part {
    std::span<const int32_t> ids;        // new tokens
    int64_t past = 0;                    // tokens before them
    std::span<const BlockTable> tables;  // by group of layers: of past and new tokens
    // Identity of the tables across calls. A table with the name and the number of dropped blocks
    // of an earlier one must extend that one or be a prefix of it: only new blocks are copied.
    // 0: no identity; whole tables are copied.
    uint64_t table_name = 0;
    // Inner columns of the stacked adapters that act on these tokens; empty range: none.
    AdapterColumns columns = {};
  };
  // Sampling parameters of a row, and the position of the sampled token.
  struct RowSampling {
    RowSamplingParams params;
    int64_t position = 0;
  };
  // Writes the tokens of `parts`, followed by `padded` padding tokens and as many empty sequences.
  //   rows      indices of tokens, ascending, after which the logits of the next token are needed
  //   embedded  indices of tokens whose hidden state after the final norm is needed; at most
  //             StepLimits::sequences
  //   sampling  for each row the parameters by which the GPU samples the next token; empty: the
  //             host samples
  // On a GPU this waits for the previous call's copies, then queues one copy from pinned memory,
  // and one of each table's new blocks, on the main stream. Calls with one token of each sequence
  // and equal numbers of sequences, rows and embedded tokens use the same addresses. A recorded
  // pass can then be replayed after these copies alone, while max_context_len() and samples() stay
  // the same.
  void write(Ctx& ctx, std::span<const Part> parts, std::span<const int32_t> rows, int64_t padded,
             std::span<const int32_t> embedded = {}, std::span<const RowSampling> sampling = {});

  // Batch as written. position_end is always StepLimits::length.
  const Tokens& tokens() const { return tokens_; }
  // The largest CachedTokens::max_context_len, which determines that of every group of layers; 0:
  // no bound.
  int64_t max_context_len() const;
  // (R) int32; absent: the rows are all tokens, at most StepLimits::sequences.
  const ConstTensor& rows() const { return rows_; }
  int64_t row_count() const { return row_count_; }
  const SampleRows& sampling() const { return sampling_; }
  // True if the GPU samples the next tokens.
  bool samples() const { return sampling_.position.present(); }
  const ConstTensor& embedded() const { return embedded_; }  // (E) int32; absent: none
  int64_t embedded_count() const { return embedded_.present() ? embedded_.size(0) : 0; }

 private:
  // Appends value(i) for each element i to the host buffer; returns the view on the device.
  template <class T, class F>
  ConstTensor put(const Shape& shape, F&& value);
  CachedTokens& cached_in(size_t group) {
    return group == 0 ? tokens_.cached : cached_others_[group - 1];
  }
  void check(std::span<const Part> parts, int64_t padded) const;
  void put_tokens(std::span<const Part> parts, int64_t padded);
  ConstTensor put_slots(std::span<const Part> parts, size_t group);
  void put_sequences(std::span<const Part> parts, int64_t padded);
  void put_cached(Ctx& ctx, std::span<const Part> parts, int64_t padded, size_t group);
  void put_sampling(std::span<const RowSampling> sampling);
  struct Chunk;
  std::vector<Chunk> chunks_of(std::span<const Part> parts) const;
  void put_chunks(Ctx& ctx, std::span<const Part> parts, int64_t padded);

  // Block tables of sequences.
  struct Tables {
    // Content of a row: the blocks of a named table, from block number `first` on.
    struct Written {
      uint64_t name = 0;
      size_t first = 0, blocks = 0;
    };
    Tables(Ctx& ctx, int64_t rows, int64_t width);
    // Writes a row; copies only the blocks that it does not have yet.
    void write(Ctx& ctx, size_t row, const Written& now, std::span<const int32_t> blocks);
    ConstTensor view(int64_t rows) const;
    int64_t width;
    Buffer host, device;  // (rows, width); device on a GPU only
    std::vector<Written> written;
  };

  StepLimits limits_;
  int64_t chunk_;
  Buffer host_;                 // pinned on a GPU
  Buffer device_;               // GPU only: same layout
  std::vector<Tables> tables_;  // by group of layers
  // Block tables with a row for each attention chunk, in the groups whose layers have chunks.
  struct ChunkTables {
    size_t group;
    Tables tables;
  };
  std::vector<ChunkTables> chunk_tables_;
  std::vector<CachedTokens> cached_others_;
  int64_t used_ = 0;
  cuda::Event copied_;  // recorded after the last copy
  Tokens tokens_;
  ConstTensor rows_, embedded_;
  int64_t row_count_ = 0;
  SampleRows sampling_ = {};
};

}  // namespace trireme
