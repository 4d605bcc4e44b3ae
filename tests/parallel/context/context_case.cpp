#include "tests/parallel/context/context_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace trireme::test {

std::string ContextCase::describe() const {
  return concat(rows, " rows of ", length, ", ", cu.size() - 1, " documents, heads ", heads, "/",
                kv_heads, ", dropout ", dropout, ", window ", window, ", ",
                context_balance_name(balance), ", ", context_comm_type_name(type));
}

ContextCase packed(int64_t rows, int64_t length, const std::vector<int64_t>& documents) {
  ContextCase c;
  c.rows = rows;
  c.length = length;
  c.cu = {0};
  for (int64_t row = 0; row < rows; ++row) {
    int64_t used = 0;
    for (const int64_t d : documents) {
      if (used + d >= length) break;
      used += d;
      c.cu.push_back(static_cast<int32_t>(row * length + used));
    }
    c.cu.push_back(static_cast<int32_t>((row + 1) * length));
  }
  return c;
}

AttentionArgs args_of(const ContextCase& c) {
  AttentionArgs args;
  args.scale = 1.0 / std::sqrt(static_cast<double>(c.width));
  args.dropout = c.dropout;
  args.window = c.window;
  args.soft_cap = c.soft_cap;
  args.key = {91, stream_id("context")};
  return args;
}

std::vector<double> values_of(const ContextCase& c, const std::string& name, DType dtype) {
  const int64_t heads = name == "q" || name == "dout" ? c.heads : c.kv_heads;
  const int64_t n = c.tokens() * heads * c.width;
  return to_doubles(TestTensor(dtype, {n}, normals(name, n)));
}

std::vector<int64_t> global_rows_of(const ContextCase& c) {
  std::vector<int64_t> rows(static_cast<size_t>(c.tokens()));
  std::iota(rows.begin(), rows.end(), 5'000'000'000);
  return rows;
}

WholeResult attend_alone(const ContextCase& c, DType dtype) {
  const Shape queries{c.tokens(), c.heads, c.width}, keys{c.tokens(), c.kv_heads, c.width};
  const auto operand = [&](const char* name, const Shape& shape) {
    return TestTensor(DType::kF64, shape, values_of(c, name, dtype));
  };
  const TestTensor q = operand("q", queries), k = operand("k", keys), v = operand("v", keys);
  const TestTensor dout = operand("dout", queries), cu({std::ssize(c.cu)}, c.cu);
  const TestTensor out(DType::kF64, queries), dq(DType::kF64, queries), dk(DType::kF64, keys);
  const TestTensor dv(DType::kF64, keys), lse(DType::kF64, {c.heads, c.tokens()});
  const TestTensor rows({c.tokens()}, global_rows_of(c));
  AttentionArgs args = args_of(c);
  args.global_index = rows;
  Ctx ctx(1, "alone");
  attention_forward(ctx, out, lse, q, k, v, cu, cu, args);
  attention_backward(ctx, dq, dk, dv, dout, out, lse, q, k, v, cu, cu, args);
  return {to_doubles(out), to_doubles(dq), to_doubles(dk), to_doubles(dv)};
}

namespace {

int exchanging_ranks(const ContextCase& c, int ranks) {
  return ulysses_ranks(c.type, ranks, c.heads);
}

}  // namespace

ContextRank::ContextRank(const ContextCase& c, Communicator& cp, DType dtype)
    : q(DType::kF64, {0}),
      k(DType::kF64, {0}),
      v(DType::kF64, {0}),
      dout(DType::kF64, {0}),
      out(DType::kF64, {0}),
      dq(DType::kF64, {0}),
      dk(DType::kF64, {0}),
      dv(DType::kF64, {0}),
      case_(c),
      attention_(cp, exchanging_ranks(c, cp.size())),
      layout_(make_context_layout(c.rows, c.length, cp.size(), c.multiple, c.balance)),
      plan_(layout_, cp.rank(), attention_.ulysses(), {.windows = c.window > 0}) {
  const std::vector<int64_t> tokens = tokens_of_rank(layout_, cp.rank());
  const auto take = [&](const std::string& name, int64_t heads) {
    const std::vector<double> all = values_of(c, name, dtype);
    const auto row = static_cast<size_t>(heads * c.width);
    std::vector<double> mine(tokens.size() * row, std::nan(""));
    for (size_t t = 0; t < tokens.size(); ++t)
      if (tokens[t] >= 0)
        std::copy_n(all.begin() + tokens[t] * heads * c.width, row,
                    mine.begin() + static_cast<int64_t>(t * row));
    return TestTensor(dtype, {layout_.local_tokens(), heads, c.width}, mine);
  };
  const auto unset = [&](int64_t heads) {
    const Shape shape{layout_.local_tokens(), heads, c.width};
    return TestTensor(dtype, shape,
                      std::vector<double>(static_cast<size_t>(shape.numel()), std::nan("")));
  };
  q = take("q", c.heads);
  k = take("k", c.kv_heads);
  v = take("v", c.kv_heads);
  dout = take("dout", c.heads);
  out = unset(c.heads);
  dq = unset(c.heads);
  dk = unset(c.kv_heads);
  dv = unset(c.kv_heads);
  plan_.build(c.cu, global_rows_of(c));
}

void ContextRank::forward(Ctx& ctx) {
  attention_.forward(ctx, out, q, k, v, plan_, args_of(case_), &saved_);
}

void ContextRank::backward(Ctx& ctx) {
  attention_.backward(ctx, dq, dk, dv, dout, out, q, k, v, plan_, args_of(case_), saved_);
  saved_ = {};
}

std::string ContextRank::collect(WholeResult& whole, int rank) const {
  const std::vector<int64_t> tokens = tokens_of_rank(layout_, rank);
  std::string problem;
  const auto place = [&](const char* name, const TestTensor& t, std::vector<double>& all) {
    const std::vector<double> mine = to_doubles(t);
    const size_t row = mine.size() / tokens.size();
    for (size_t i = 0; i < mine.size(); ++i) {
      const int64_t token = tokens[i / row];
      if (token >= 0)
        all[static_cast<size_t>(token) * row + i % row] = mine[i];
      else if (mine[i] != 0)
        problem = concat(name, " of padding is ", mine[i]);
    }
    if (!t.guards_intact()) problem = concat(name, " was written outside");
  };
  place("out", out, whole.out);
  place("dq", dq, whole.dq);
  place("dk", dk, whole.dk);
  place("dv", dv, whole.dv);
  return problem;
}

WholeResult attend_together(const ContextCase& c, int ranks, DType dtype, const Inspect& inspect) {
  const auto nans = [&](int64_t heads) {
    return std::vector<double>(static_cast<size_t>(c.tokens() * heads * c.width), std::nan(""));
  };
  WholeResult whole{nans(c.heads), nans(c.heads), nans(c.kv_heads), nans(c.kv_heads)};
  run_threads(ranks, [&](Communicator& cp) {
    Ctx ctx(1, "context");
    ContextRank rank(c, cp, dtype);
    rank.forward(ctx);
    rank.backward(ctx);
    // Ranks own different tokens and write to different elements.
    EXPECT_EQ(rank.collect(whole, cp.rank()), "");
    EXPECT_EQ(ctx.arena.in_use(), 0);
    if (inspect) inspect(rank, cp);
  });
  return whole;
}

double worst_difference(const WholeResult& got, const WholeResult& want) {
  return std::max({worst_relative(got.out, want.out), worst_relative(got.dq, want.dq),
                   worst_relative(got.dk, want.dk), worst_relative(got.dv, want.dv)});
}

}  // namespace trireme::test
