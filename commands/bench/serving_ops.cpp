// The ops of a server's step for `bench ops`: attention over a paged KV cache and the sampler.
#include <cmath>
#include <numeric>

#include "commands/bench/op_timer.h"
#include "engine/ops/paged_attention.h"
#include "engine/ops/sample.h"

namespace trireme {
namespace {

// Llama 3.1 8B: heads of a layer and their width; tokens of a block.
constexpr int64_t kQueryHeads = 32, kKvHeads = 8, kWidth = 128, kBlock = 16;

// sequences, each of whose last `queries` tokens attend to all `context` keys of their own.
struct PagedCase {
  int64_t sequences, context, queries;
};

std::string name_of(const PagedCase& c) {
  return c.queries == 1 ? concat("paged attention, ", c.sequences, " x ", c.context, " keys")
                        : concat("prompt chunk, ", c.queries, " of ", c.context, " keys");
}

void time_case(OpTimer& timer, const PagedCase& c) {
  Ctx& ctx = timer.ctx();
  Operands m(ctx);
  const int64_t blocks = ceil_div(c.context, kBlock), tokens = c.sequences * c.queries;
  const Shape pool{c.sequences * blocks, kKvHeads, kBlock, kWidth};
  const Shape heads{tokens, kQueryHeads, kWidth};
  const Tensor k = m.make(timer.dtype(), pool), v = m.make(timer.dtype(), pool);
  const Tensor q = m.make(timer.dtype(), heads), out = m.make(timer.dtype(), heads);
  // Neighbouring blocks of a sequence lie apart, as in a cache that has been in use.
  const Tensor table = m.filled<int32_t>({c.sequences, blocks}, [&](int32_t* ids) {
    for (int64_t n = 0; n < c.sequences; ++n)
      for (int64_t b = 0; b < blocks; ++b)
        ids[n * blocks + b] = narrow<int32_t>(b * c.sequences + n);
  });
  const Tensor cu = m.filled<int32_t>({c.sequences + 1}, [&](int32_t* offsets) {
    for (int64_t n = 0; n <= c.sequences; ++n) offsets[n] = narrow<int32_t>(n * c.queries);
  });
  const Tensor lens = m.filled<int32_t>({c.sequences}, [&](int32_t* out_lens) {
    std::fill_n(out_lens, c.sequences, narrow<int32_t>(c.context));
  });
  const PagedAttentionArgs args{.scale = 1.0 / std::sqrt(static_cast<double>(kWidth)),
                                .most_queries = c.queries,
                                .longest_context = c.context};
  // Pairs of a query and a key that it sees, of one head.
  const double pairs = static_cast<double>(c.sequences * c.queries) *
                       (static_cast<double>(c.context) - static_cast<double>(c.queries - 1) / 2);
  const double bytes = timer.width() * static_cast<double>(2 * pool.numel() + 2 * heads.numel());
  timer.time(name_of(c), heads, bytes, 4 * pairs * static_cast<double>(kQueryHeads * kWidth),
             [&] { paged_attention(ctx, out, q, k, v, table, cu, lens, args); });
}

// Rows of one request for the sampler.
struct SamplerCase {
  const char* name;
  double temperature, top_p;
};

void time_rows(OpTimer& timer, const SamplerCase& c, int64_t rows, int64_t vocabulary) {
  Ctx& ctx = timer.ctx();
  Operands m(ctx);
  const Shape column{rows};
  const auto same = [&](double value) {
    return m.filled<double>(column, [&](double* out) { std::fill_n(out, rows, value); });
  };
  const auto whole = [&](bool ascending) {
    return m.filled<int64_t>(column, [&](int64_t* out) {
      if (ascending) return std::iota(out, out + rows, 0);
      std::fill_n(out, rows, 0);
    });
  };
  const Tensor logits = m.make(DType::kF32, {rows, vocabulary});
  const Tensor id = m.zeros(DType::kI32, column), logprob = m.zeros(DType::kF64, column);
  const Tensor temperature = same(c.temperature), top_p = same(c.top_p), min_p = same(0);
  const Tensor top_k = whole(false), seed = whole(true), position = whole(true);
  const SampleRows asked{temperature, top_p, min_p, top_k, seed, position};
  timer.time(concat("sampler, ", c.name, ", ", rows, rows == 1 ? " row" : " rows"),
             {rows, vocabulary}, 4 * static_cast<double>(rows * vocabulary), 0,
             [&] { sample_rows(ctx, id, logprob, logits, asked); });
}

}  // namespace

void time_paged_attention(OpTimer& timer, int64_t cached) {
  std::vector<PagedCase> cases;
  if (timer.ctx().gpu != nullptr && cached >= 65536) {
    cases = {{1, 2048, 1},   {1, 16384, 1},   {16, 2048, 1},    {32, 2048, 1},   {128, 2048, 1},
             {32, 16384, 1}, {1, 2048, 2048}, {1, 16384, 2048}, {1, 32768, 2048}};
  } else {
    const int64_t batch = std::min<int64_t>(8, cached);
    cases = {{1, cached, 1}, {batch, cached / batch, 1}, {1, cached, ceil_div(cached, 8)}};
  }
  for (const PagedCase& c : cases) time_case(timer, c);
}

void time_sampler(OpTimer& timer) {
  constexpr int64_t kVocabulary = 128256, kSmallVocabulary = 50257;
  const bool gpu = timer.ctx().gpu != nullptr;
  for (const SamplerCase& c : {SamplerCase{"greedy", 0, 1}, SamplerCase{"top_p 0.9", 1, 0.9}})
    for (const int64_t rows : gpu ? std::vector<int64_t>{1, 32, 128} : std::vector<int64_t>{1, 8})
      time_rows(timer, c, rows, gpu ? kVocabulary : kSmallVocabulary);
}

}  // namespace trireme
