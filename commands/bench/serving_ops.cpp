// Ops of a server's step for `bench ops`: attention over a paged KV cache, and the sampler.
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <string_view>

#include "commands/bench/op_timer.h"
#include "engine/ops/attention/paged_attention.h"
#include "engine/ops/sampling/sample.h"
#include "serving/engine/sampler.h"

namespace trireme {
namespace {

// Llama 3.1 8B: heads of a layer and their width; tokens of a KV block.
constexpr int64_t kQueryHeads = 32, kKvHeads = 8, kWidth = 128, kBlock = 16;

// Sequences whose last `queries` tokens attend to the `context` keys of their sequence.
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
  // Neighbouring blocks of a sequence are apart, as in a cache that has been in use.
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
                                .max_queries = c.queries,
                                .max_context_len = c.context};
  // Pairs of a query and a key that it sees, in one head.
  const double pairs = static_cast<double>(c.sequences * c.queries) *
                       (static_cast<double>(c.context) - static_cast<double>(c.queries - 1) / 2);
  const double bytes = timer.width() * static_cast<double>(2 * pool.numel() + 2 * heads.numel());
  timer.time(name_of(c), heads, bytes, 4 * pairs * static_cast<double>(kQueryHeads * kWidth),
             [&] { paged_attention(ctx, out, q, k, v, table, cu, lens, args); });
}

// Rows of one request for the sampler.
struct SamplerCase {
  const char* name;
  RowSamplingParams params;
};

void time_rows(OpTimer& timer, const SamplerCase& c, int64_t rows, int64_t vocabulary) {
  Ctx& ctx = timer.ctx();
  Operands m(ctx);
  const Shape column{rows};
  const auto same = [&](double value) {
    return m.filled<double>(column, [&](double* out) { std::fill_n(out, rows, value); });
  };
  const auto whole = [&](int64_t value, int64_t step) {
    return m.filled<int64_t>(column, [&](int64_t* out) {
      for (int64_t r = 0; r < rows; ++r) out[r] = value + r * step;
    });
  };
  const Tensor logits = m.make(DType::kF32, {rows, vocabulary});
  const Tensor id = m.zeros(DType::kI32, column), logprob = m.zeros(DType::kF64, column);
  const RowSamplingParams& p = c.params;
  const Tensor temperature = same(p.temperature), top_p = same(p.top_p), min_p = same(p.min_p);
  const Tensor top_k = whole(p.top_k, 0), seed = whole(0, 1), position = whole(0, 1);
  const SampleRows asked{temperature, top_p, min_p, top_k, seed, position};
  const std::span<const float> first(ctx.gpu == nullptr ? logits.as<float>() : nullptr,
                                     static_cast<size_t>(vocabulary));
  const std::string of = ctx.gpu == nullptr ? concat(" of ", vocabulary) : "";
  timer.time(concat("sampler, ", c.name, ", ", rows, rows == 1 ? " row" : " rows", of),
             {rows, vocabulary}, 4 * static_cast<double>(rows * vocabulary), 0, [&] {
               if (p.typical_p < 1)
                 sample_row(p, first, 0);
               else
                 sample_rows(ctx, id, logprob, logits, asked);
             });
}

// Greedy token of a sequence with further request options, after as many output tokens as the
// vocabulary has.
void time_choice(OpTimer& timer, const char* name, SamplingParams params, bool masked,
                 int64_t vocabulary) {
  Operands m(timer.ctx());
  const Tensor row = m.make(DType::kF32, {1, vocabulary});
  const std::span<const float> logits(row.as<float>(), static_cast<size_t>(vocabulary));
  const std::vector<uint32_t> mask(static_cast<size_t>(ceil_div(vocabulary, 32)), 0x5a3c96e1);
  params.sampling.temperature = 0;
  SlotStart start;
  if (params.needs_history()) start.history.resize(static_cast<size_t>(vocabulary));
  std::iota(start.history.begin(), start.history.end(), 0);
  start.generated = vocabulary;
  start.sampling_params = std::make_shared<const SamplingParams>(std::move(params));
  Sampler sampler(1, vocabulary);
  sampler.start(start);
  timer.time(concat("choice, ", name, ", 1 row of ", vocabulary), {1, vocabulary},
             4 * static_cast<double>(vocabulary), 0,
             [&] { sampler.sample(0, 0, logits, masked ? mask.data() : nullptr); });
}

void time_choices(OpTimer& timer, int64_t vocabulary) {
  time_choice(timer, "greedy", {}, false, vocabulary);
  SamplingParams with_logprobs, penalized, biased, forbidding;
  with_logprobs.top_logprobs = 20;
  penalized.repetition_penalty = 1.1;
  penalized.frequency_penalty = 0.5;
  time_choice(timer, "mask", {}, true, vocabulary);
  for (int32_t i = 0; i < 1024; ++i) {
    biased.logit_bias.emplace_back(i * 7, 1.0);
    forbidding.bad_words.push_back({i, i + 1, i + 2});
  }
  time_choice(timer, "logprobs 20", std::move(with_logprobs), false, vocabulary);
  time_choice(timer, "penalties", std::move(penalized), false, vocabulary);
  time_choice(timer, "1024 biases", std::move(biased), false, vocabulary);
  time_choice(timer, "1024 bad words", std::move(forbidding), false, vocabulary);
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
  const SamplerCase greedy{"greedy", {.temperature = 0}}, top_p{"top_p 0.9", {.top_p = 0.9}};
  if (timer.ctx().gpu != nullptr) {
    for (const SamplerCase& c : {greedy, top_p})
      for (const int64_t rows : {1, 32, 128}) time_rows(timer, c, rows, 128256);
    return;
  }
  if (timer.dtype() != DType::kF32) return;  // logits are float32 for every model type
  // Temperature 100 makes most of a vocabulary about equally probable.
  const std::vector<SamplerCase> cases = {
      greedy,
      {"temperature 2", {.temperature = 2}},
      {"temperature 100", {.temperature = 100}},
      {"top_k 40", {.top_k = 40}},
      {"top_k 3/4", {}},
      top_p,
      {"top_p 0.9 at 100", {.temperature = 100, .top_p = 0.9}},
      {"min_p 0.05", {.min_p = 0.05}},
      {"typical_p 0.5", {.typical_p = 0.5}},
      {"typical_p 0.5 at 100", {.temperature = 100, .typical_p = 0.5}},
  };
  for (const int64_t vocabulary : {32000, 128256, 256000})
    for (SamplerCase c : cases) {
      if (c.name == std::string_view("top_k 3/4")) c.params.top_k = vocabulary / 4 * 3;
      time_rows(timer, c, 1, vocabulary);
    }
  for (const SamplerCase& c : {greedy, top_p}) time_rows(timer, c, 8, 128256);
  time_choices(timer, 128256);
}

}  // namespace trireme
