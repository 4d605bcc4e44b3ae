#include "engine/ops/loss/cross_entropy.h"
#include "engine/ops/moe/router_loss.h"
#include "engine/ops/moe/router_noise.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

struct Size {
  int64_t tokens, experts, k;
  int64_t groups = 1, kept = 1;
  bool large = false;
};
const std::vector<Size> kSizes = {
    {0, 8, 2},         {1, 1, 1},          {5, 7, 7},        {9, 33, 4},
    {33, 64, 6, 8, 3}, {7, 80, 5, 40, 34}, {6, 12, 3, 6, 3}, {16384, 256, 8, 8, 4, true}};

std::string describe(const Size& s) {
  return concat(s.tokens, " tokens ", s.experts, " experts k ", s.k, " groups ", s.kept, " of ",
                s.groups);
}

RouterArgs router_args(const Size& s, bool sigmoid) {
  return {.score = sigmoid ? RouterScore::kSigmoid : RouterScore::kSoftmax,
          .normalize = !sigmoid,
          .scale = 1.5,
          .groups = s.groups,
          .kept_groups = s.kept,
          .choose_by_logits = sigmoid && s.k % 2 == 1};
}

// Every fifth token is padding.
std::vector<double> valid_tokens(int64_t tokens) {
  std::vector<double> out;
  for (int64_t t = 0; t < tokens; ++t) out.push_back(t % 5 == 3 ? 0 : 1);
  return out;
}

// Different experts for each token, -1 for padding.
std::vector<double> choices(const Size& s) {
  std::vector<double> out;
  for (int64_t t = 0; t < s.tokens; ++t)
    for (int64_t j = 0; j < s.k; ++j)
      out.push_back(t % 5 == 3 ? -1.0 : static_cast<double>((t * 11 + j) % s.experts));
  return out;
}

std::vector<double> segments(const Size& s, int64_t count) {
  std::vector<double> out;
  for (int64_t t = 0; t < s.tokens; ++t) out.push_back(static_cast<double>(t * 3 % count));
  return out;
}

enum class Logits { kRandom, kTies, kNan, kInfiniteBiases };

// Scores have magnitude one, weights magnitude `scale`.
OpCase forward_case(const Size& s, DType dtype, bool sigmoid, bool biased, Logits kind) {
  const auto body = [=](OpRun& run) {
    const Shape wide{s.tokens, s.experts}, chosen{s.tokens, s.k};
    std::vector<double> holes;
    for (int64_t i = 0; i < s.tokens * s.experts; ++i)
      holes.push_back(i % 23 == 5 ? static_cast<double>(NAN)
                                  : static_cast<double>(i * 37 % 41) / 16);
    std::vector<double> infinite(static_cast<size_t>(s.experts), 0.25);
    for (size_t e = 0; e < infinite.size(); ++e)
      if (e % 3 != 2) infinite[e] = e % 3 == 0 ? INFINITY : -INFINITY;
    const ConstTensor logits = kind == Logits::kNan    ? run.values("logits", dtype, wide, holes)
                               : kind == Logits::kTies ? run.integers("logits", dtype, wide, -1, 2)
                                                       : run.random("logits", dtype, wide, -4, 4);
    const ConstTensor bias = !biased ? ConstTensor()
                             : kind == Logits::kInfiniteBiases
                                 ? run.values("bias", dtype, {s.experts}, infinite)
                                 : run.random("bias", dtype, {s.experts}, -0.5, 0.5);
    const Tensor scores = run.updated("scores", dtype, wide, whole(s.experts));
    const Tensor experts = run.output("experts", DType::kI32, chosen, exact());
    const Tensor weights = run.updated("weights", dtype, chosen, whole(s.experts));
    router_forward(run.ctx, scores, experts, weights, logits, bias,
                   biased ? run.values("valid", DType::kU8, {s.tokens}, valid_tokens(s.tokens))
                          : ConstTensor(),
                   router_args(s, sigmoid));
  };
  constexpr const char* kNames[] = {"", " ties", " NaN", " infinite biases"};
  const char* what = kNames[static_cast<size_t>(kind)];
  return {
      .op = "router_forward",
      .shape = concat(describe(s), sigmoid ? " sigmoid" : " softmax", biased ? " bias" : "", what),
      .dtype = dtype,
      .body = body,
      .bytes = static_cast<double>(2 * s.tokens * s.experts * dtype_size(dtype)),
      .large = s.large};
}

OpCase backward_case(const Size& s, DType dtype, bool sigmoid, bool losses) {
  const auto body = [=](OpRun& run) {
    constexpr int64_t kSegments = 3;
    const Shape wide{s.tokens, s.experts}, chosen{s.tokens, s.k};
    RouterLossGradients by_losses;
    if (losses) {
      by_losses.probability = run.random("probability", DType::kF64, {kSegments, s.experts});
      by_losses.segments = run.values("segments", DType::kI32, {s.tokens}, segments(s, kSegments));
      by_losses.importance = run.random("importance", DType::kF64, {s.experts});
      by_losses.z = run.values("z", DType::kF64, {1}, {0.125});
    }
    router_backward(
        run.ctx, run.output("d_logits", dtype, wide, whole(s.experts)),
        run.random("d_weights", dtype, chosen), run.random("scores", dtype, wide, 0.01, 0.5),
        run.random("logits", dtype, wide, -4, 4),
        run.values("experts", DType::kI32, chosen, choices(s)), by_losses, router_args(s, sigmoid));
  };
  return {.op = "router_backward",
          .shape = concat(describe(s), sigmoid ? " sigmoid" : " softmax", losses ? " losses" : ""),
          .dtype = dtype,
          .body = body,
          .bytes = static_cast<double>(2 * s.tokens * s.experts * dtype_size(dtype)),
          .large = s.large};
}

OpCase statistics_case(const Size& s, DType dtype, int64_t segment_count) {
  const auto body = [=](OpRun& run) {
    const Shape wide{s.tokens, s.experts}, chosen{s.tokens, s.k};
    const Tensor flat =
        run.output("sums", DType::kF64, {RouterSums::size(segment_count, s.experts)},
                   whole(s.tokens + s.experts));
    RouterTokens tokens;
    if (segment_count > 1) {
      std::vector<double> targets;
      for (int64_t t = 0; t < s.tokens; ++t)
        targets.push_back(static_cast<double>(t % 3 == 1 ? kIgnoredTarget : t));
      tokens.segments = run.values("segments", DType::kI32, {s.tokens}, segments(s, segment_count));
      tokens.targets = run.values("targets", DType::kI32, {s.tokens}, targets);
    }
    router_statistics(run.ctx, RouterSums(flat, segment_count, s.experts),
                      run.random("scores", dtype, wide, 0.01, 0.5),
                      run.random("logits", dtype, wide, -4, 4),
                      run.values("experts", DType::kI32, chosen, choices(s)),
                      run.random("weights", dtype, chosen), tokens);
  };
  return {.op = "router_statistics",
          .shape = concat(describe(s), " segments ", segment_count),
          .dtype = dtype,
          .body = body,
          .large = s.large};
}

OpCase losses_case(int64_t segment_count, int64_t experts, bool shares, bool empty) {
  const auto body = [=](OpRun& run) {
    const int64_t size = RouterSums::size(segment_count, experts);
    // No segment has tokens, or all except the first have.
    std::vector<double> sums;
    const int64_t tokens = 2 * segment_count * experts;
    for (int64_t i = 0; i < size; ++i) {
      const bool none = i >= tokens && i < tokens + segment_count && (empty || i == tokens);
      sums.push_back(none && segment_count > 1 ? 0 : 1 + static_cast<double>(i * 37 % 23));
    }
    if (empty) std::fill_n(sums.begin() + tokens, segment_count, 0.0);
    const ConstTensor flat = run.values("sums", DType::kF64, {size}, sums);
    const Tensor read(const_cast<void*>(flat.raw()), DType::kF64, {size}, run.ctx.device());
    const Close close = whole(segment_count * experts);
    router_losses(
        run.ctx, run.updated("values", DType::kF64, {4}, close),
        {.d_probability = run.output("d_probability", DType::kF64, {segment_count, experts}, close),
         .d_importance = run.output("d_importance", DType::kF64, {experts}, close),
         .d_load = run.output("d_load", DType::kF64, {experts}, close),
         .d_z = run.output("d_z", DType::kF64, {1}, close)},
        RouterSums(read, segment_count, experts), run.values("scale", DType::kF64, {1}, {0.375}),
        {.k = 2,
         .balance = 0.5,
         .z = 0.25,
         .importance = 0.75,
         .load = 0.125,
         .shares = shares ? run.random("shares", DType::kF64, {experts}) : ConstTensor()});
  };
  return {.op = "router_losses",
          .shape = concat(segment_count, " segments ", experts, " experts", shares ? " shares" : "",
                          empty ? " empty" : ""),
          .dtype = DType::kF64,
          .body = body};
}

OpCase noisy_logits_case(const Size& s, DType dtype) {
  const auto body = [=](OpRun& run) {
    const Shape wide{s.tokens, s.experts};
    // A small value is a cosine near its zero, of an angle that the CPU rounds.
    noisy_logits(run.ctx, run.output("noisy", dtype, wide, whole(1)),
                 run.output("noise", dtype, wide, whole(1)),
                 run.random("logits", dtype, wide, -4, 4), run.random("raw", dtype, wide, -2, 40),
                 run.integers("rows", DType::kI64, {s.tokens}, 0, 1 << 30), {7, 11});
  };
  return {
      .op = "noisy_logits", .shape = describe(s), .dtype = dtype, .body = body, .large = s.large};
}

ConstTensor some_valid(OpRun& run, const Size& s, bool padded) {
  return padded ? run.values("valid", DType::kU8, {s.tokens}, valid_tokens(s.tokens))
                : ConstTensor();
}

OpCase noisy_load_case(const Size& s, DType dtype, bool padded) {
  const auto body = [=](OpRun& run) {
    const Shape wide{s.tokens, s.experts};
    noisy_load(run.ctx, run.updated("load", DType::kF64, {s.experts}, whole(s.tokens)),
               run.random("noisy", dtype, wide, -4, 4), run.random("logits", dtype, wide, -4, 4),
               run.random("raw", dtype, wide, -2, 2), some_valid(run, s, padded), s.k);
  };
  return {.op = "noisy_load",
          .shape = concat(describe(s), padded ? " padded" : ""),
          .dtype = dtype,
          .body = body,
          .large = s.large};
}

OpCase noisy_backward_case(const Size& s, DType dtype, bool padded) {
  const auto body = [=](OpRun& run) {
    const Shape wide{s.tokens, s.experts};
    const Close close = whole(s.experts);
    noisy_backward(run.ctx, run.updated("d_logits", dtype, wide, close),
                   run.output("d_raw", dtype, wide, close), run.random("noise", dtype, wide, -2, 2),
                   run.random("noisy", dtype, wide, -4, 4),
                   run.random("logits", dtype, wide, -4, 4), run.random("raw", dtype, wide, -2, 2),
                   run.random("d_load", DType::kF64, {s.experts}), some_valid(run, s, padded), s.k);
  };
  return {.op = "noisy_backward",
          .shape = concat(describe(s), padded ? " padded" : ""),
          .dtype = dtype,
          .body = body,
          .large = s.large};
}

}  // namespace

std::vector<OpCase> router_cases() {
  std::vector<OpCase> cases;
  for (const Size& s : kSizes)
    for (DType dtype : {DType::kF64, DType::kF32}) {
      cases.push_back(noisy_logits_case(s, dtype));
      for (int64_t segment_count : {1, 3})
        cases.push_back(statistics_case(s, dtype, segment_count));
      for (bool flag : {false, true}) {
        cases.push_back(noisy_load_case(s, dtype, flag));
        cases.push_back(noisy_backward_case(s, dtype, flag));
        for (bool sigmoid : {false, true}) {
          cases.push_back(backward_case(s, dtype, sigmoid, flag));
          cases.push_back(forward_case(s, dtype, sigmoid, flag, Logits::kRandom));
          if (s.large) continue;
          cases.push_back(forward_case(s, dtype, sigmoid, flag, Logits::kTies));
          cases.push_back(forward_case(s, dtype, sigmoid, flag, Logits::kNan));
          if (sigmoid && flag)
            cases.push_back(forward_case(s, dtype, sigmoid, flag, Logits::kInfiniteBiases));
        }
      }
    }
  for (DType dtype : {DType::kF64, DType::kF32})  // more than one row block
    cases.push_back(statistics_case({200, 5, 2}, dtype, 3));
  for (bool shares : {false, true})
    for (bool empty : {false, true}) {
      cases.push_back(losses_case(1, 1, shares, empty));
      cases.push_back(losses_case(5, 300, shares, empty));
    }
  return cases;
}

}  // namespace trireme::test
