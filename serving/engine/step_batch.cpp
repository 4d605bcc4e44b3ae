#include "serving/engine/step_batch.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace trireme {
namespace {

constexpr int64_t kSamplingBytes = 48;  // per row: sampling parameters and position

// Per token: slot, id, position, row, adapter columns and sampling parameters; per sequence:
// offset, length and its embedded token.
int64_t bytes_for(const StepLimits& limits) {
  return ((limits.adapters ? 28 : 20) + kSamplingBytes) * limits.tokens +
         4 * (3 * limits.sequences + 1) + 8;
}

int64_t table_bytes(const StepLimits& limits) {
  return checked_mul(4 * limits.sequences, limits.blocks_of_sequence());
}

}  // namespace

StepBatch::StepBatch(Ctx& ctx, const StepLimits& limits)
    : limits_(limits),
      host_("step inputs", bytes_for(limits), ctx.gpu != nullptr ? Memory::kPinned : Memory::kHost),
      host_tables_("block tables", table_bytes(limits),
                   ctx.gpu != nullptr ? Memory::kPinned : Memory::kHost),
      written_(static_cast<size_t>(limits.sequences)) {
  tokens_.position_end = limits.length;
  if (ctx.gpu == nullptr) return;
  device_tables_ = Buffer("block tables", table_bytes(limits), Memory::kDevice);
  device_ = Buffer("step inputs", bytes_for(limits), Memory::kDevice);
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
  put_tables(ctx, parts);
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
  const Buffer& tables = device_tables_.data() != nullptr ? device_tables_ : host_tables_;
  cached.block_table = tables.tensor(DType::kI32, {sequences, limits_.blocks_of_sequence()});
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

// Stale blocks of earlier sequences after the end of a table in its row are never read.
void StepBatch::put_tables(Ctx& ctx, std::span<const Part> parts) {
  const auto width = static_cast<size_t>(limits_.blocks_of_sequence());
  for (size_t n = 0; n < parts.size(); ++n) {
    const Part& part = parts[n];
    Written& row = written_[n];
    const bool goes_on = part.table_name != 0 && row.name == part.table_name;
    const size_t from = goes_on ? std::min(row.blocks, part.table.size()) : 0;
    row = {part.table_name, part.table.size()};
    const std::span<const int32_t> fresh = part.table.subspan(from);
    if (fresh.empty()) continue;
    const size_t at = (n * width + from) * sizeof(int32_t);
    std::memcpy(host_tables_.data() + at, fresh.data(), fresh.size_bytes());
    if (ctx.gpu != nullptr)
      cuda::copy_async(*ctx.gpu, ctx.gpu->main, device_tables_.data() + at,
                       host_tables_.data() + at, static_cast<int64_t>(fresh.size_bytes()));
  }
}

}  // namespace trireme
