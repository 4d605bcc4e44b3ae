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

// Per token: id, position, row, adapter columns and sampling parameters; per sequence: offset and
// its embedded token; per group of layers a slot for each token and a length for each sequence; per
// chunk: offset, and a length for each group.
int64_t bytes_for(const StepLimits& limits, int64_t chunk) {
  const auto groups = std::ssize(limits.windows);
  return ((limits.adapters ? 20 : 12) + kSamplingBytes + 8 * groups) * limits.tokens +
         4 * ((2 + groups) * limits.sequences + 1) +
         4 * ((1 + groups) * max_chunks(limits, chunk) + 1) + 8;
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
      cached_others_(limits.windows.size() - 1) {
  for (size_t group = 0; group < limits.windows.size(); ++group)
    tables_.emplace_back(ctx, limits.sequences, limits.table_blocks(group));
  tokens_.position_end = limits.length;
  if (chunk % limits.block_tokens != 0)
    fail_input("attention_chunk_size ", chunk, " is not a multiple of ", limits.block_tokens,
               ", the tokens of a block of the KV cache");
  const auto add_chunk_tables = [&](size_t group) {
    const int64_t width = std::min(chunk / limits.block_tokens, limits.table_blocks(group));
    chunk_tables_.push_back({group, Tables(ctx, max_chunks(limits, chunk), width)});
  };
  for (size_t group = 0; group < limits.windows.size(); ++group)
    if (limits.windows[group] < 0) add_chunk_tables(group);
  if (chunk > 0 && chunk_tables_.empty()) add_chunk_tables(0);  // one group has all layers
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
  check(parts, padded);
  put_tokens(parts, padded);
  put_sequences(parts, padded);
  for (size_t group = 0; group < tables_.size(); ++group)
    if (group == 0 || limits_.windows[group] >= 0) put_cached(ctx, parts, padded, group);
  tokens_.cached_others = cached_others_;
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

void StepBatch::check(std::span<const Part> parts, int64_t padded) const {
  int64_t count = 0;
  for (const Part& part : parts) {
    const int64_t length = part.past + std::ssize(part.ids);
    TRIREME_CHECK(!part.ids.empty() && part.past >= 0 && length <= limits_.length, part.ids.size(),
                  " tokens after ", part.past, " of a sequence of at most ", limits_.length);
    TRIREME_CHECK(part.tables.size() == tables_.size(), part.tables.size(),
                  " block tables, expected ", tables_.size());
    for (size_t group = 0; group < tables_.size(); ++group) {
      const BlockTable& table = part.tables[group];
      TRIREME_CHECK(
          table.first == dropped_blocks(part.past, limits_.windows[group], limits_.block_tokens) &&
              table.end() * limits_.block_tokens >= length &&
              std::ssize(table.blocks) <= tables_[group].width,
          part.ids.size(), " tokens after ", part.past, " with the blocks from ", table.first,
          " to ", table.end(), ", at most ", tables_[group].width, ", each of ",
          limits_.block_tokens, " tokens");
    }
    count += std::ssize(part.ids);
  }
  TRIREME_CHECK(count + padded <= limits_.tokens, count, " tokens and ", padded,
                " of padding, expected together at most ", limits_.tokens);
  const int64_t sequences = std::ssize(parts) + padded;
  TRIREME_CHECK(sequences <= limits_.sequences, sequences, " sequences, expected at most ",
                limits_.sequences);
}

namespace {

// Steps through the tokens of a batch, from the first.
class Walk {
 public:
  explicit Walk(std::span<const StepBatch::Part> parts) : parts_(parts) {}
  // To the next token. False: it is padding.
  bool next() {
    if (part_ < parts_.size() && ++token_ == std::ssize(parts_[part_].ids)) ++part_, token_ = 0;
    return part_ < parts_.size();
  }
  const StepBatch::Part& part() const { return parts_[part_]; }
  int32_t id() const { return part().ids[static_cast<size_t>(token_)]; }
  int64_t position() const { return part().past + token_; }

 private:
  std::span<const StepBatch::Part> parts_;
  size_t part_ = 0;
  int64_t token_ = -1;
};

}  // namespace

// The slots come first: their numbers have 8 bytes.
void StepBatch::put_tokens(std::span<const Part> parts, int64_t padded) {
  tokens_.count = padded;
  for (const Part& part : parts) tokens_.count += std::ssize(part.ids);
  for (size_t group = 0; group < tables_.size(); ++group)
    cached_in(group).slots = put_slots(parts, group);
  Walk ids(parts), positions(parts), columns(parts);
  tokens_.ids = put<int32_t>({tokens_.count}, [&](int64_t) { return ids.next() ? ids.id() : 0; });
  tokens_.positions = put<int32_t>(
      {tokens_.count}, [&](int64_t) { return positions.next() ? positions.position() : 0; });
  if (!limits_.adapters) return;
  AdapterColumns from;
  tokens_.adapter_columns = put<int32_t>({tokens_.count, 2}, [&](int64_t i) {
    const bool end = i % 2 == 1;
    if (!end) from = columns.next() ? columns.part().columns : AdapterColumns{};
    return end ? from.second : from.first;
  });
}

ConstTensor StepBatch::put_slots(std::span<const Part> parts, size_t group) {
  const int64_t size = limits_.block_tokens;
  Walk token(parts);
  return put<int64_t>({tokens_.count}, [&](int64_t) -> int64_t {
    if (!token.next()) return -1;
    const int64_t at = token.position();
    return token.part().tables[group].block(at / size) * size + at % size;
  });
}

void StepBatch::put_sequences(std::span<const Part> parts, int64_t padded) {
  const int64_t sequences = std::ssize(parts) + padded;
  int64_t offset = 0;
  tokens_.cu_q = put<int32_t>({sequences + 1}, [&](int64_t n) {
    const bool padding = std::cmp_greater_equal(n, parts.size());
    return std::exchange(offset,
                         padding ? offset : offset + std::ssize(parts[static_cast<size_t>(n)].ids));
  });
}

// The block tables of a group of layers, and the sequences' lengths from the tables' first blocks
// on.
void StepBatch::put_cached(Ctx& ctx, std::span<const Part> parts, int64_t padded, size_t group) {
  CachedTokens& cached = cached_in(group);
  const int64_t sequences = std::ssize(parts) + padded;
  const auto length_of = [&](const Part& part) {
    return part.past + std::ssize(part.ids) - part.tables[group].first * limits_.block_tokens;
  };
  cached.context_lens = put<int32_t>({sequences}, [&](int64_t n) {
    return std::cmp_less(n, parts.size()) ? length_of(parts[static_cast<size_t>(n)]) : 0;
  });
  cached.max_queries = 1;
  cached.new_sequences = !limits_.deterministic && tokens_.count > sequences && padded == 0;
  int64_t longest = 1;
  for (size_t n = 0; n < parts.size(); ++n) {
    const Part& part = parts[n];
    const BlockTable& table = part.tables[group];
    tables_[group].write(ctx, n,
                         {part.table_name, static_cast<size_t>(table.first), table.blocks.size()},
                         table.blocks);
    cached.max_queries = std::max(cached.max_queries, std::ssize(part.ids));
    longest = std::max(longest, part.past + std::ssize(part.ids));
    cached.new_sequences &= part.past == 0;
  }
  cached.block_table = tables_[group].view(sequences);
  // The same whatever blocks were dropped, so that a recorded pass is replayed.
  const int64_t most = max_table_blocks(limits_.length, limits_.windows[group],
                                        limits_.block_tokens, cached.max_queries);
  cached.max_context_len = paged_context_bound(std::min(longest, most * limits_.block_tokens));
  // Only whole prompts without cached tokens: a library's attention may compute them.
  if (group == 0) tokens_.max_seqlen = cached.new_sequences ? cached.max_queries : 0;
}

int64_t StepBatch::max_context_len() const {
  int64_t longest = 1;
  for (int64_t group = 0; group < std::ssize(tables_); ++group) {
    const int64_t bound = tokens_.cached_in(group).max_context_len;
    if (bound == 0) return 0;  // any: the largest
    longest = std::max(longest, bound);
  }
  return longest;
}

struct StepBatch::Chunk {
  const Part* part;
  int64_t begin, first, end;  // its first token, its first new token and its end in the sequence
};

// Sequences cut at multiples of the chunk's tokens. A sequence with one new token has one chunk,
// whatever its length.
std::vector<StepBatch::Chunk> StepBatch::chunks_of(std::span<const Part> parts) const {
  std::vector<Chunk> chunks;
  for (const Part& part : parts) {
    const int64_t end = part.past + std::ssize(part.ids);
    for (int64_t at = part.past; at < end; at = chunks.back().end) {
      const int64_t begin = at / chunk_ * chunk_;
      chunks.push_back({&part, begin, at, std::min(end, begin + chunk_)});
    }
  }
  return chunks;
}

void StepBatch::put_chunks(Ctx& ctx, std::span<const Part> parts, int64_t padded) {
  const std::vector<Chunk> chunks = chunks_of(parts);
  const int64_t count = std::ssize(chunks) + padded;
  const auto at = [&](int64_t n) {
    return std::cmp_less(n, chunks.size()) ? chunks[static_cast<size_t>(n)] : Chunk{};
  };
  int64_t offset = 0, longest = 1;
  tokens_.chunks.cu_q = put<int32_t>({count + 1}, [&](int64_t n) {
    return std::exchange(offset, offset + at(n).end - at(n).first);
  });
  for (const Part& part : parts) longest = std::max(longest, part.past + std::ssize(part.ids));
  tokens_.chunks.max_seqlen = std::min(tokens_.max_seqlen, chunk_);
  for (ChunkTables& to : chunk_tables_) {
    CachedTokens& cached = to.group == 0 ? tokens_.chunks.cached : cached_in(to.group);
    cached.slots = cached_in(to.group).slots;
    cached.context_lens = put<int32_t>({count}, [&](int64_t n) { return at(n).end - at(n).begin; });
    for (size_t n = 0; n < chunks.size(); ++n) {
      const Chunk& chunk = chunks[n];
      const BlockTable& table = chunk.part->tables[to.group];
      const auto first = static_cast<size_t>(chunk.begin / limits_.block_tokens);
      const auto blocks =
          static_cast<size_t>(ceil_div(chunk.end - chunk.begin, limits_.block_tokens));
      to.tables.write(
          ctx, n, {chunk.part->table_name, first, blocks},
          std::span(table.blocks).subspan(first - static_cast<size_t>(table.first), blocks));
    }
    cached.block_table = to.tables.view(count);
    cached.max_queries = std::min(tokens_.cached.max_queries, chunk_);
    cached.max_context_len = paged_context_bound(std::min(longest, chunk_));
    cached.new_sequences = tokens_.cached.new_sequences;
  }
}

}  // namespace trireme
