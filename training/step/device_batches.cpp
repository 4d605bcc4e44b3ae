#include "training/step/device_batches.h"

#include <algorithm>
#include <bit>

#include "engine/ops/rows/transfer.h"

namespace trireme {
namespace {

template <class T>
ConstTensor view(const std::vector<T>& v) {
  return ConstTensor(v.data(), dtype_of<T>, Shape{std::ssize(v)});
}

constexpr int64_t kAlign = 256;

int64_t padded(int64_t elements, DType dtype) {
  return round_up(elements * dtype_size(dtype), kAlign);
}

// Maximum number of cu_seqlens offsets: at most one document per token, one document of padding,
// and one more offset than documents.
int64_t max_offsets(int64_t tokens) { return tokens + 2; }

int64_t bytes_of(int64_t t, int64_t chunk) {
  const int64_t lists = chunk > 0 ? 2 : 1;
  return 3 * padded(t, DType::kI32) + padded(t, DType::kI64) +
         lists * padded(max_offsets(t), DType::kI32);
}

int64_t bytes_of(const MicroBatch& batch, int64_t chunk) {
  return bytes_of(std::ssize(batch.tokens), chunk);
}

// Length of the samples if each is one sequence and they fill the batch, else 0. Other lengths,
// even if all are equal, would be additional shapes for the attention library.
int64_t uniform_length(const MicroBatch& batch, int64_t length) {
  const std::vector<int32_t>& cu = batch.cu_seqlens;
  if (cu.empty() || cu.back() != std::ssize(batch.tokens)) return 0;
  for (size_t i = 0; i + 1 < cu.size(); ++i)
    if (cu[i + 1] - cu[i] != length) return 0;
  return length;
}

// Upper bound of the longest sequence, rounded up to few different values: each value is another
// shape for the attention library, and another CUDA graph (training/step/micro_batch_graphs.h).
int64_t max_seqlen_bound(const MicroBatch& batch, int64_t sequence_length) {
  constexpr uint32_t kShortest = 128;
  const auto most = std::max(kShortest, static_cast<uint32_t>(batch.max_seqlen));
  return std::min(sequence_length, static_cast<int64_t>(std::bit_ceil(most)));
}

Tokens tokens_of(const MicroBatch& batch, int64_t sequence_length) {
  Tokens tokens;
  tokens.count = std::ssize(batch.tokens);
  tokens.ids = view(batch.tokens);
  tokens.targets = view(batch.targets);
  tokens.positions = view(batch.positions);
  tokens.position_end = sequence_length;
  tokens.global_index = view(batch.global_index);
  tokens.cu_q = view(batch.cu_seqlens);
  tokens.uniform_length = uniform_length(batch, sequence_length);
  tokens.max_seqlen = max_seqlen_bound(batch, sequence_length);
  tokens.context = batch.context.get();
  return tokens;
}

// Chunks of the documents, whose offsets are given.
ChunkTokens chunks_of(const Tokens& tokens, const std::vector<int32_t>& offsets, int64_t chunk) {
  ChunkTokens chunks;
  chunks.cu_q = view(offsets);
  const int64_t uniform = tokens.uniform_length;
  chunks.uniform_length = uniform <= chunk ? uniform : uniform % chunk == 0 ? chunk : 0;
  chunks.max_seqlen = std::min(tokens.max_seqlen, chunk);
  return chunks;
}

// Calls f(array, capacity in elements) in the order of the arrays in the block.
template <class F>
void for_each_array(Tokens& tokens, F&& f) {
  for (ConstTensor* t : {&tokens.ids, &tokens.targets, &tokens.positions, &tokens.global_index})
    f(*t, tokens.count);
  f(tokens.cu_q, max_offsets(tokens.count));
  if (tokens.chunks.cu_q.present()) f(tokens.chunks.cu_q, max_offsets(tokens.count));
}

}  // namespace

int64_t DeviceBatches::bytes(int64_t tokens, int64_t micro_batches, int64_t chunk) {
  return checked_mul(bytes_of(tokens, chunk), micro_batches + 1);
}

Tokens DeviceBatches::host_tokens(int i) const {
  Tokens tokens = tokens_of(batch(i), sequence_length_);
  if (chunk_ > 0) tokens.chunks = chunks_of(tokens, chunks_[static_cast<size_t>(i)], chunk_);
  return tokens;
}

void DeviceBatches::place(const std::vector<MicroBatch>& batches) {
  batches_ = &batches;
  placed_.clear();
  chunks_.clear();
  if (chunk_ > 0)
    for (const MicroBatch& batch : batches)
      chunks_.push_back(chunk_offsets(batch.cu_seqlens, chunk_));
  if (ctx_.gpu == nullptr || ctx_.planning()) return;
  int64_t bytes = 0;
  largest_ = 0;
  for (const MicroBatch& batch : batches) {
    largest_ = std::max(largest_, bytes_of(batch, chunk_));
    bytes = checked_add(bytes, bytes_of(batch, chunk_));
  }
  bytes = checked_add(bytes, largest_);
  if (bytes > block_.bytes()) {
    block_ = Buffer();  // frees the old one first
    block_ = Buffer("micro-batches", bytes, ctx_.memory());
  }
  int64_t at = largest_;
  for (int i = 0; i < static_cast<int>(batches.size()); ++i) {
    Tokens tokens = host_tokens(i);
    for_each_array(tokens, [&](ConstTensor& t, int64_t most) {
      const Tensor there = block_.tensor(t.dtype(), t.shape(), at);
      transfer(ctx_, there, t);
      t = there;
      at += padded(most, t.dtype());
    });
    if (batch(i).context != nullptr) batch(i).context->copy_to_device(ctx_);
    placed_.push_back(tokens);
  }
}

Tokens DeviceBatches::tokens(int i) const {
  return placed_.empty() ? host_tokens(i) : placed_[static_cast<size_t>(i)];
}

Tokens DeviceBatches::fixed_tokens(int i) const {
  Tokens tokens = placed_[static_cast<size_t>(i)];
  int64_t at = 0;
  for_each_array(tokens, [&](ConstTensor& t, int64_t most) {
    t = block_.tensor(t.dtype(), t.shape(), at);
    at += padded(most, t.dtype());
  });
  return tokens;
}

void DeviceBatches::fix(int i) const {
  // The arrays of a micro-batch are adjacent and in the same order in both buffers.
  cuda::copy_async(*ctx_.gpu, ctx_.gpu->main, block_.data(),
                   placed_[static_cast<size_t>(i)].ids.raw(), bytes_of(batch(i), chunk_));
}

}  // namespace trireme
