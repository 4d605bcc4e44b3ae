#include "engine/ops/attention/attention_sinks.h"
#include "tests/cuda/registry.h"

namespace trireme::test {
namespace {

// `others`: heads between a token's and the next one's, as in packed queries, keys and values.
struct Size {
  int64_t tokens, heads, width, others = 0;
  bool large = false;
};
const std::vector<Size> kSizes = {{0, 2, 8},      {1, 1, 1},    {5, 3, 7},
                                  {70, 4, 64, 2}, {333, 2, 80}, {16384, 64, 64, 16, true}};

Tensor heads_of(const Tensor& packed, const Size& s) { return packed.slice(1, 0, s.heads); }
ConstTensor heads_of(const ConstTensor& packed, const Size& s) {
  return packed.slice(1, 0, s.heads);
}
Shape packed(const Size& s) { return {s.tokens, s.heads + s.others, s.width}; }

OpCase named(const char* op, const Size& s, DType dtype) {
  return {.op = op,
          .shape = concat("(", s.tokens, ", ", s.heads, ", ", s.width, ")"),
          .dtype = dtype,
          .bytes = 2.0 * static_cast<double>(s.tokens * s.heads * s.width * dtype_size(dtype)),
          .large = s.large};
}

OpCase forward_case(const Size& s, DType dtype) {
  OpCase c = named("attention_sinks_forward", s, dtype);
  c.body = [=](OpRun& run) {
    const Tensor out = run.updated("out", dtype, packed(s), each(4));
    const Tensor lse = run.updated("lse", sum_dtype(dtype), {s.heads, s.tokens}, whole(4));
    attention_sinks_forward(run.ctx, heads_of(out, s), lse,
                            run.random("sinks", dtype, {s.heads}, -2.0, 2.0));
  };
  return c;
}

OpCase backward_case(const Size& s, DType dtype, bool accumulate) {
  OpCase c = named("attention_sinks_backward", s, dtype);
  if (accumulate) c.shape += " accumulate";
  c.body = [=](OpRun& run) {
    const DType sums = sum_dtype(dtype);
    const int64_t terms = s.tokens * s.width;
    const Tensor d_sinks = accumulate ? run.updated("d_sinks", sums, {s.heads}, whole(terms))
                                      : run.output("d_sinks", sums, {s.heads}, whole(terms));
    const ConstTensor dout = run.random("dout", dtype, packed(s), 0.1, 1.0);
    const ConstTensor out = run.random("out", dtype, packed(s), 0.1, 1.0);
    attention_sinks_backward(run.ctx, d_sinks, heads_of(dout, s), heads_of(out, s),
                             run.random("lse", sums, {s.heads, s.tokens}, 0.0, 2.0),
                             run.random("sinks", dtype, {s.heads}, -2.0, 2.0), accumulate);
  };
  return c;
}

}  // namespace

std::vector<OpCase> attention_sinks_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const Size& s : kSizes) {
      cases.push_back(forward_case(s, dtype));
      for (const bool accumulate : {false, true})
        cases.push_back(backward_case(s, dtype, accumulate));
    }
  return cases;
}

}  // namespace trireme::test
