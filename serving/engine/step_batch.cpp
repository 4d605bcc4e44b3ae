#include "serving/engine/step_batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace trireme {
namespace {

constexpr int64_t kSamplingBytes = 48;  // per row: sampling parameters and position

// Maximum number of chunks that the tokens of a step are in, with those of padding.
int64_t max_chunks(const StepLimits& limits, int64_t chunk) {
  return chunk == 0 ? 0 : limits.tokens / chunk + 2 * limits.sequences;
}

// Per token: slot, id, position, row, adapter columns and sampling parameters; per sequence:
// offset, length and its embedded token; per chunk: offset and length.
int64_t bytes_for(const StepLimits& limits, int64_t chunk) {
  return ((limits.adapters ? 28 : 20) + kSamplingBytes) * limits.tokens +
         4 * (3 * limits.sequences + 1) + 4 * (2 * max_chunks(limits, chunk) + 1) + 8;
}

Memory host_memory(const Ctx& ctx) { return ctx.gpu != nullptr ? Memory::kPinned : Memory::kHost; }

}  // namespace

StepBatch::Tables::Tables(Ctx& ctx, int64_t rows, int64_t columns)
    : width(columns),
      host("block tables", checked_mul(4 * rows, columns), host_memory(ctx)),
      written(static_cast<size_t>(rows)) {
  if (ctx.gpu != nullptr)
    device = Buffer("block tables", checked_mul(4 * rows, columns), Memory::kDevice);
}

// Stale blocks of earlier sequences after the end of a table in its row are never read.
void StepBatch::Tables::write(Ctx& ctx, size_t row, const Written& now,
                              std::span<const int32_t> blocks) {
  const Written before = std::exchange(written[row], now);
  const bool extends = now.name != 0 && before.name == now.name && before.first == now.first;
  const size_t from = extends ? std::min(before.blocks, blocks.size()) : 0;
  const std::span<const int32_t> fresh = blocks.subspan(from);
  if (fresh.empty()) return;
  const size_t at = (row * static_cast<size_t>(width) + from) * sizeof(int32_t);
  std::memcpy(host.data() + at, fresh.data(), fresh.size_bytes());
  if (ctx.gpu != nullptr)
    cuda::copy_async(*ctx.gpu, ctx.gpu->main, device.data() + at, host.data() + at,
                     static_cast<int64_t>(fresh.size_bytes()));
}

ConstTensor StepBatch::Tables::view(int64_t rows) const {
  return (device.data() != nullptr ? device : host).tensor(DType::kI32, {rows, width});
}

StepBatch::StepBatch(Ctx& ctx, const StepLimits& limits, int64_t chunk)
    : limits_(limits),
      chunk_(chunk),
      host_("step inputs", bytes_for(limits, chunk), host_memory(ctx)),
      tables_(ctx, limits.sequences, limits.blocks_of_sequence()) {
  tokens_.position_end = limits.length;
  if (chunk % limits.block_tokens != 0)
    fail_input("attention_chunk_size ", chunk, " is not a multiple of ", limits.block_tokens,
               ", the tokens of a block of the KV cache");
  if (chunk > 0)
    chunk_tables_.emplace(ctx, max_chunks(limits, chunk),
                          std::min(chunk / limits.block_tokens, limits.blocks_of_sequence()));
  if (ctx.gpu == nullptr) return;
  device_ = Buffer("step inputs", bytes_for(limits, chunk), Memory::kDevice);
  copied_ = cuda::make_event(*ctx.gpu);
}

template <class T, class F>
ConstTensor StepBatch::put(const Shape& shape, F&& value) {
  T* const to = host_.tensor(dtype_of<T>, shape, used_).template as<T>();
  const int64_t count = shape.numel();
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(value(i));
  const Buffer& where = device_.data() != nullptr ? device_ : host_;
  const ConstTensor view = where.tensor(dtype_of<T>, shape, used_);
  used_ += view.bytes();
  return view;
}

void StepBatch::write(Ctx& ctx, std::span<const Part> parts, std::span<const int32_t> rows,
                      int64_t padded, std::span<const int32_t> embedded,
                      std::span<const RowSampling> sampling) {
  // Does not wait if the caller has read the last pass's result.
  if (ctx.gpu != nullptr && !cuda::done(copied_)) cuda::synchronize(copied_);
  used_ = 0;
  put_tokens(parts, padded);
  put_sequences(parts, padded);
  for (size_t n = 0; n < parts.size(); ++n)
    tables_.write(ctx, n, {parts[n].table_name, 0, parts[n].table.size()}, parts[n].table);
  if (chunk_ > 0) put_chunks(ctx, parts, padded);
  row_count_ = std::ssize(rows);
  rows_ = {};
  // Rows of all tokens need no list, unless there are more than a step has sequences.
  if (row_count_ != tokens_.count || row_count_ > limits_.sequences)
    rows_ = put<int32_t>({row_count_}, [&](int64_t i) { return rows[static_cast<size_t>(i)]; });
  embedded_ = {};
  if (!embedded.empty())
    embedded_ = put<int32_t>({std::ssize(embedded)},
                             [&](int64_t i) { return embedded[static_cast<size_t>(i)]; });
  put_sampling(sampling);
  if (ctx.gpu == nullptr) return;
  cuda::copy_async(*ctx.gpu, ctx.gpu->main, device_.data(), host_.data(), used_);
  cuda::record(copied_, ctx.gpu->main);
}

void StepBatch::put_sampling(std::span<const RowSampling> sampling) {
  sampling_ = {};
  if (sampling.empty()) return;
  TRIREME_CHECK(std::ssize(sampling) == row_count_, sampling.size(),
                " sampling parameters, expected one for each row: ", row_count_);
  used_ = round_up(used_, int64_t{sizeof(double)});
  const auto column = [&]<class T>(T, auto&& of) {
    return put<T>({row_count_}, [&](int64_t i) { return of(sampling[static_cast<size_t>(i)]); });
  };
  sampling_.temperature =
      column(double{}, [](const RowSampling& r) { return r.params.temperature; });
  sampling_.top_p = column(double{}, [](const RowSampling& r) { return r.params.top_p; });
  sampling_.min_p = column(double{}, [](const RowSampling& r) { return r.params.min_p; });
  sampling_.top_k = column(int64_t{}, [](const RowSampling& r) { return r.params.top_k; });
  sampling_.seed = column(int64_t{}, [](const RowSampling& r) { return r.params.seed; });
  sampling_.position = column(int64_t{}, [](const RowSampling& r) { return r.position; });
}

void StepBatch::put_tokens(std::span<const Part> parts, int64_t padded) {
  int64_t count = 0;
  for (const Part& part : parts) {
    const int64_t length = part.past + std::ssize(part.ids);
    TRIREME_CHECK(!part.ids.empty() && part.past >= 0 && length <= limits_.length &&
                      std::ssize(part.table) * limits_.block_tokens >= length,
                  part.ids.size(), " tokens after ", part.past, " in ", part.table.size(),
                  " blocks of a sequence of at most ", limits_.length);
    count += std::ssize(part.ids);
  }
  TRIREME_CHECK(count + padded <= limits_.tokens, count, " tokens and ", padded,
                " of padding, expected together at most ", limits_.tokens);
  tokens_.count = count + padded;
  // Steps through the tokens: `part` is the token's part, `own` its index in it.
  size_t part = 0;
  int64_t own = -1;
  AdapterColumns from;
  const auto next = [&](int64_t i) {
    if (i == 0) part = 0, own = -1;
    if (part < parts.size() && ++own == std::ssize(parts[part].ids)) ++part, own = 0;
    return part < parts.size();
  };
  const int64_t size = limits_.block_tokens;
  tokens_.cached.slots = put<int64_t>({tokens_.count}, [&](int64_t i) -> int64_t {
    if (!next(i)) return -1;
    const int64_t at = parts[part].past + own;
    return parts[part].table[static_cast<size_t>(at / size)] * size + at % size;
  });
  tokens_.ids = put<int32_t>({tokens_.count}, [&](int64_t i) {
    return next(i) ? parts[part].ids[static_cast<size_t>(own)] : 0;
  });
  tokens_.positions = put<int32_t>(
      {tokens_.count}, [&](int64_t i) -> int64_t { return next(i) ? parts[part].past + own : 0; });
  if (!limits_.adapters) return;
  tokens_.adapter_columns = put<int32_t>({tokens_.count, 2}, [&](int64_t i) {
    const bool end = i % 2 == 1;
    if (!end) from = next(i / 2) ? parts[part].columns : AdapterColumns{};
    return end ? from.second : from.first;
  });
}

void StepBatch::put_sequences(std::span<const Part> parts, int64_t padded) {
  CachedTokens& cached = tokens_.cached;
  const int64_t sequences = std::ssize(parts) + padded;
  TRIREME_CHECK(sequences <= limits_.sequences, sequences, " sequences, expected at most ",
                limits_.sequences);
  const auto of = [&](int64_t n) {
    return std::cmp_less(n, parts.size()) ? parts[static_cast<size_t>(n)] : Part{};
  };
  int64_t offset = 0;
  tokens_.cu_q = put<int32_t>({sequences + 1}, [&](int64_t n) {
    return std::exchange(offset, n < sequences ? offset + std::ssize(of(n).ids) : offset);
  });
  cached.context_lens =
      put<int32_t>({sequences}, [&](int64_t n) { return of(n).past + std::ssize(of(n).ids); });
  cached.block_table = tables_.view(sequences);
  cached.max_queries = 1;
  cached.new_sequences = !limits_.deterministic && tokens_.count > sequences && padded == 0;
  int64_t longest = 1;
  for (const Part& part : parts) {
    cached.max_queries = std::max(cached.max_queries, std::ssize(part.ids));
    longest = std::max(longest, part.past + std::ssize(part.ids));
    cached.new_sequences &= part.past == 0;
  }
  cached.longest_context = paged_context_bound(longest);
  // Only whole prompts without cached tokens: a library's attention may compute them.
  tokens_.longest = cached.new_sequences ? cached.max_queries : 0;
}

// Sequences cut at multiples of the chunk's tokens, each with the blocks of its chunk. A sequence
// with one new token has one chunk, whatever its length.
void StepBatch::put_chunks(Ctx& ctx, std::span<const Part> parts, int64_t padded) {
  ChunkTokens& chunks = tokens_.chunks;
  std::vector<int32_t> lengths, offsets = {0};
  int64_t longest = 1, past_end = 0;
  for (const Part& part : parts) {
    const int64_t end = part.past + std::ssize(part.ids);
    longest = std::max(longest, end);
    for (int64_t at = part.past; at < end; at = past_end) {
      const int64_t begin = at / chunk_ * chunk_;
      past_end = std::min(end, begin + chunk_);
      const auto first = static_cast<size_t>(begin / limits_.block_tokens);
      const auto blocks = static_cast<size_t>(ceil_div(past_end - begin, limits_.block_tokens));
      chunk_tables_->write(ctx, lengths.size(), {part.table_name, first, blocks},
                           part.table.subspan(first, blocks));
      lengths.push_back(static_cast<int32_t>(past_end - begin));
      offsets.push_back(static_cast<int32_t>(offsets.back() + past_end - at));
    }
  }
  lengths.resize(lengths.size() + static_cast<size_t>(padded), 0);
  offsets.resize(lengths.size() + 1, offsets.back());
  const auto list = [&](const std::vector<int32_t>& from) {
    return put<int32_t>({std::ssize(from)},
                        [&](int64_t i) { return from[static_cast<size_t>(i)]; });
  };
  chunks.cu_q = list(offsets);
  chunks.context_lens = list(lengths);
  chunks.block_table = chunk_tables_->view(std::ssize(lengths));
  chunks.max_queries = std::min(tokens_.cached.max_queries, chunk_);
  chunks.longest_context = paged_context_bound(std::min(longest, chunk_));
  chunks.longest = std::min(tokens_.longest, chunk_);
}

}  // namespace trireme
