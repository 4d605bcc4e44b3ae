#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "tests/parallel/context/context_case.h"

namespace trireme::test::test_context_attention {
namespace {

constexpr double kF64Tolerance = 1e-12;

// Odd lengths, packed documents, documents of one token, several rows, ranks with padding only.
std::vector<ContextCase> cases() {
  std::vector<ContextCase> all;
  all.push_back(packed(1, 64, {}));
  all.push_back(packed(2, 37, {}));
  all.push_back(packed(1, 150, {1, 40, 1, 1, 90}));
  all.push_back(packed(3, 61, {7, 1, 30}));
  all.push_back(packed(1, 3, {}));  // 5 of 8 ranks hold only padding
  all.push_back(packed(2, 5, {1, 1, 1, 1}));
  all.push_back(packed(1, 700, {300, 250}));  // blocks of 64 keys and more
  ContextCase alone = packed(1, 90, {20});
  alone.heads = 8;
  alone.kv_heads = 8;
  alone.multiple = 3;
  all.push_back(alone);
  ContextCase dropped = packed(2, 75, {6, 40});
  dropped.dropout = 0.3;
  all.push_back(dropped);
  dropped.soft_cap = 0.7;
  all.push_back(dropped);
  return all;
}

void expect_exact(const ContextCase& c, int ranks) {
  SCOPED_TRACE(concat(c.describe(), ", ", ranks, " ranks"));
  EXPECT_LT(worst_difference(attend_together(c, ranks, DType::kF64), attend_alone(c, DType::kF64)),
            kF64Tolerance);
}

TEST(ContextAttention, RingEqualsOneRank) {
  for (const ContextCase& c : cases())
    for (const int ranks : {1, 2, 3, 4, 8}) expect_exact(c, ranks);
}

TEST(ContextAttention, RingOverContiguousChunksEqualsOneRank) {
  for (ContextCase c : cases()) {
    c.balance = ContextBalance::kContiguous;
    for (const int ranks : {2, 4}) expect_exact(c, ranks);
  }
}

TEST(ContextAttention, UlyssesEqualsOneRank) {
  for (ContextCase c : cases())
    for (const ContextBalance balance : {ContextBalance::kZigzag, ContextBalance::kContiguous}) {
      c.type = ContextCommType::kA2A;
      c.balance = balance;
      for (const int ranks : {1, 4}) expect_exact(c, ranks);
    }
}

TEST(ContextAttention, UlyssesInsideARingEqualsOneRank) {
  for (ContextCase c : cases())
    for (const ContextBalance balance : {ContextBalance::kZigzag, ContextBalance::kContiguous}) {
      c.type = ContextCommType::kA2AP2P;
      c.balance = balance;
      for (const int ranks : {4, 8}) expect_exact(c, ranks);
    }
}

// Windows within a chunk, across several chunks and the gap between a rank's two, and longer than
// documents.
TEST(ContextAttention, WindowsEqualOneRank) {
  for (ContextCase c : cases())
    for (const int64_t window : {1, 5, 33, 1000}) {
      c.window = window;
      for (const ContextBalance balance : {ContextBalance::kZigzag, ContextBalance::kContiguous})
        for (const ContextCommType type :
             {ContextCommType::kP2P, ContextCommType::kA2A, ContextCommType::kA2AP2P}) {
          c.balance = balance;
          c.type = type;
          expect_exact(c, 4);
        }
      c.type = ContextCommType::kP2P;
      c.balance = ContextBalance::kZigzag;
      for (const int ranks : {1, 2, 3, 8}) expect_exact(c, ranks);
    }
}

// Numbers of key/value heads that the ranks do not divide: all pairs of heads that a rank's queries
// may straddle.
TEST(ContextAttention, RepeatedKeyHeadsSumTheirGradients) {
  for (const auto& [heads, kv_heads] :
       std::vector<std::pair<int64_t, int64_t>>{{8, 1}, {8, 2}, {12, 6}, {12, 3}, {24, 4}}) {
    ContextCase c = packed(2, 29, {4, 11});
    c.heads = heads;
    c.kv_heads = kv_heads;
    c.dropout = 0.1;
    c.type = ContextCommType::kA2A;
    expect_exact(c, 4);
    c.type = ContextCommType::kA2AP2P;
    expect_exact(c, 4);
  }
}

TEST(ContextAttention, ShorterFloatsStayWithinTheTable) {
  for (const ContextCommType type :
       {ContextCommType::kP2P, ContextCommType::kA2A, ContextCommType::kA2AP2P})
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      ContextCase c = packed(2, 101, {1, 30, 40});
      c.type = type;
      c.dropout = 0.2;
      c.kv_heads = 1;  // gradients of repeated heads are rounded twice
      SCOPED_TRACE(concat(c.describe(), ", ", dtype));
      const int64_t terms = c.width + c.length * c.heads;
      EXPECT_LT(worst_difference(attend_together(c, 4, dtype), attend_alone(c, dtype)),
                tolerance(dtype, terms).relative);
    }
}

// C = T Hkv D w: one rank's keys, or values. Gradient sums are sent in float32.
TEST(ContextAttention, RingSendsExactlyTheFormula) {
  for (const DType dtype : {DType::kF64, DType::kBF16})
    for (const int64_t kv_heads : {4, 1})
      for (const int ranks : {1, 2, 4, 8}) {
        ContextCase c = packed(2, 53, {9, 20});
        c.kv_heads = kv_heads;
        run_threads(ranks, [&](Communicator& cp) {
          Ctx ctx(1, "context");
          ContextRank rank(c, cp, dtype);
          cp.reset_traffic();
          const int64_t n = ranks, elements = rank.plan().local_tokens() * kv_heads * c.width;
          rank.forward(ctx);
          const int64_t keys = 2 * (n - 1) * elements * dtype_size(dtype);
          EXPECT_EQ(cp.traffic()[CommKind::kSend].sent_bytes, keys);
          rank.backward(ctx);
          const int64_t sums = n == 1 ? 0 : 2 * n * elements * dtype_size(sum_dtype(dtype));
          EXPECT_EQ(cp.traffic()[CommKind::kSend].sent_bytes, 2 * keys + sums);
          EXPECT_EQ(cp.traffic().total().sent_bytes, 2 * keys + sums);
        });
      }
}

TEST(ContextAttention, UlyssesSendsExactlyTheFormula) {
  for (const int64_t kv_heads : {8, 2})  // divided by the ranks, and repeated
    for (const int ranks : {2, 4}) {
      ContextCase c = packed(2, 53, {9, 20});
      c.heads = 8;
      c.kv_heads = kv_heads;
      c.type = ContextCommType::kA2A;
      run_threads(ranks, [&](Communicator& cp) {
        Ctx ctx(1, "context");
        ContextRank rank(c, cp, DType::kBF16);
        Communicator& group = rank.attention().ulysses_group();
        group.reset_traffic();
        const int64_t local = c.heads / ranks, slots = std::max<int64_t>(1, kv_heads / ranks);
        const int64_t each_way =
            (ranks - 1) * rank.plan().local_tokens() * (2 * local + 2 * slots) * c.width * 2;
        rank.forward(ctx);
        EXPECT_EQ(group.traffic()[CommKind::kAllToAll].sent_bytes, each_way);
        rank.backward(ctx);
        EXPECT_EQ(group.traffic()[CommKind::kAllToAll].sent_bytes, 2 * each_way);
        EXPECT_EQ(rank.attention().ring().traffic().total().sent_bytes, 0);
      });
    }
}

TEST(ContextAttention, RunsAreBitIdentical) {
  ContextCase c = packed(2, 101, {1, 30, 40});
  c.type = ContextCommType::kA2AP2P;
  const auto bits = [&](int threads) {
    std::vector<std::vector<double>> all(4);
    run_threads(4, [&](Communicator& cp) {
      Ctx ctx(threads, "context");
      ContextRank rank(c, cp, DType::kBF16);
      rank.forward(ctx);
      rank.backward(ctx);
      for (const TestTensor* t : {&rank.out, &rank.dq, &rank.dk, &rank.dv}) {
        const std::vector<double> values = to_doubles(*t);
        auto& mine = all[static_cast<size_t>(cp.rank())];
        mine.insert(mine.end(), values.begin(), values.end());
      }
    });
    return all;
  };
  const auto first = bits(1);
  EXPECT_TRUE(bits(1) == first);
  EXPECT_TRUE(bits(2) == first);
}

// One plan covers every packing: it is made before any document is known.
TEST(ContextAttention, RunsInThePlannedArena) {
  for (const ContextCommType type :
       {ContextCommType::kP2P, ContextCommType::kA2A, ContextCommType::kA2AP2P}) {
    ContextCase c = packed(2, 61, {1, 30});
    c.type = type;
    c.dropout = 0.1;
    WholeResult whole = attend_alone(c, DType::kF64);
    const WholeResult want = whole;
    run_threads(4, [&](Communicator& cp) {
      ContextRank rank(c, cp, DType::kF64);
      ContextCase long_document = packed(2, 61, {});
      long_document.type = type;
      long_document.dropout = c.dropout;
      ContextRank other(long_document, cp, DType::kF64);
      Ctx ctx(2, "planned");
      const int64_t sent = cp.traffic().total().sent_bytes;
      ctx.arena.begin_planning();
      other.forward(ctx);
      other.backward(ctx);
      const ArenaPlan plan = ctx.arena.end_planning();
      EXPECT_EQ(cp.traffic().total().sent_bytes, sent) << "a planning run talks to nobody";
      ctx.arena.reserve(plan.capacity);
      for (int step = 0; step < 2; ++step) {
        ctx.arena.begin_step(plan);
        rank.forward(ctx);
        rank.backward(ctx);
        ctx.arena.end_step();
        EXPECT_EQ(rank.collect(whole, cp.rank()), "");
      }
    });
    EXPECT_LT(worst_difference(whole, want), kF64Tolerance);
  }
}

// Bytes for attention over a row on one rank, forward and backward with the saved tensors, in
// bfloat16 with H query and G key/value heads of D elements.
constexpr int64_t kHeads = 8, kKvHeads = 2, kWidth = 16;

int64_t planned_bytes(Communicator& cp, int64_t length) {
  const ContextLayout layout =
      make_context_layout(1, length, cp.size(), 1, ContextBalance::kZigzag);
  const ContextPlan plan(layout, cp.rank(), 1);
  const ContextAttention attention(cp, 1);
  Ctx ctx(1, "counting");
  ctx.arena.begin_planning();
  {
    const int64_t t = layout.local_tokens();
    const Activation qkv =
        ctx.allocate("qkv", DType::kBF16, Shape{t, kHeads + 2 * kKvHeads, kWidth});
    const Activation out = ctx.allocate("out", DType::kBF16, Shape{t, kHeads, kWidth});
    const auto split = [&](const Tensor& all) {
      return std::array<Tensor, 3>{all.slice(1, 0, kHeads), all.slice(1, kHeads, kHeads + kKvHeads),
                                   all.slice(1, kHeads + kKvHeads, kHeads + 2 * kKvHeads)};
    };
    const auto [q, k, v] = split(qkv);
    ContextAttention::Saved saved;
    attention.forward(ctx, out, q, k, v, plan, {}, &saved);
    const Activation dout = ctx.allocate("dout", DType::kBF16, out->shape());
    const Activation d_qkv = ctx.allocate("d_qkv", DType::kBF16, qkv->shape());
    const auto [dq, dk, dv] = split(d_qkv);
    attention.backward(ctx, dq, dk, dv, dout, out, q, k, v, plan, {}, saved);
  }
  return ctx.arena.end_planning().capacity;
}

// Bytes for each of the T tokens of a rank, at the peak, in the backward pass:
//  2 (2 (H + 2 G) D + 2 H D)   q, k, v, the output, and the gradients of all
//  4 H                         log-sum-exp
//  4 H D                       sums of the gradient of q, before rounding
//  one rank     4 (2 G D)      sums of the gradients of k, v
//  more         2 (2 (2 G D))  two blocks of keys and values, one in use and one arriving
//               3 (4 (2 G D))  three blocks of their gradients: in work, arriving, leaving
//  16                          assignment of parts to threads (engine/ops/attention/attention.cpp)
int64_t bytes_per_token(int ranks) {
  const int64_t h = kHeads * kWidth, g = kKvHeads * kWidth;
  const int64_t keys = ranks == 1 ? 4 * 2 * g : 2 * 2 * 2 * g + 3 * 4 * 2 * g;
  return 2 * (2 * (h + 2 * g) + 2 * h) + 4 * kHeads + 4 * h + keys + 16;
}

// Plus the working memory of one thread: blocks of 64 tokens, and the gradients of up to 8192 keys.
int64_t thread_bytes(int64_t tokens) {
  return 4 * ((7 * 64 + 2 * std::min<int64_t>(tokens, 8192)) * kWidth + 2 * 64 * 64) + 64;
}

// Longest row that fits the budget.
int64_t longest_row(Communicator& cp, int64_t budget) {
  int64_t fits = 1, too_long = 1 << 20;
  while (too_long - fits > 1) {
    const int64_t middle = (fits + too_long) / 2;
    (planned_bytes(cp, middle) <= budget ? fits : too_long) = middle;
  }
  return fits;
}

// On one rank the keys are not exchanged, so that the longest row grows by less than twice from one
// rank to two, and in proportion to the number of ranks from there on: exactly as the formula
// predicts.
TEST(ContextAttention, LongestSequenceGrowsWithTheRanks) {
  constexpr int64_t kBudget = 64 << 20;
  std::map<int, int64_t> longest;
  for (const int ranks : {1, 2, 4})
    run_threads(ranks, [&](Communicator& cp) {
      for (const int64_t tokens : {64, 4096, 8192, 20480})
        EXPECT_EQ(planned_bytes(cp, tokens * ranks),
                  bytes_per_token(ranks) * tokens + thread_bytes(tokens))
            << tokens << " tokens on each of " << ranks;
      const int64_t found = longest_row(cp, kBudget);
      const int64_t expected = (kBudget - thread_bytes(kBudget)) / bytes_per_token(ranks) * ranks;
      // The two chunks of a rank are whole tokens, and every array is rounded up to 64 bytes.
      EXPECT_NEAR(static_cast<double>(found), static_cast<double>(expected), 4.0 * ranks);
      if (cp.rank() == 0) longest[ranks] = found;
    });
  for (const auto& [ranks, row] : longest)
    std::printf("%d context ranks, %lld bytes each: rows of up to %lld tokens\n", ranks,
                static_cast<long long>(kBudget), static_cast<long long>(row));
  const auto growth = [&](int ranks) {
    return static_cast<double>(longest[ranks]) / static_cast<double>(longest[1]);
  };
  for (const int ranks : {2, 4}) {
    const double form = ranks * static_cast<double>(bytes_per_token(1)) /
                        static_cast<double>(bytes_per_token(ranks));
    EXPECT_NEAR(growth(ranks), form, 0.001 * form);
  }
  EXPECT_NEAR(growth(4) / growth(2), 2.0, 0.001);
}

TEST(ContextAttention, ChoosesTheUlyssesRanks) {
  EXPECT_EQ(ulysses_ranks(ContextCommType::kP2P, 8, 4), 1);
  EXPECT_EQ(ulysses_ranks(ContextCommType::kA2A, 4, 12), 4);
  EXPECT_EQ(ulysses_ranks(ContextCommType::kA2AP2P, 8, 12), 4);
  EXPECT_EQ(ulysses_ranks(ContextCommType::kA2AP2P, 8, 6), 2);
  EXPECT_EQ(ulysses_ranks(ContextCommType::kA2AP2P, 2, 6), 2);
  EXPECT_EQ(ulysses_ranks(ContextCommType::kA2A, 4, 6), 0);
  EXPECT_EQ(ulysses_ranks(ContextCommType::kA2AP2P, 4, 3), 0);
  EXPECT_EQ(ulysses_ranks(ContextCommType::kA2AP2P, 3, 4), 0);
  EXPECT_EQ(parse_context_comm_type("a2a+p2p"), ContextCommType::kA2AP2P);
  EXPECT_THROW(parse_context_comm_type("ring"), InputError);
  EXPECT_EQ(parse_context_balance("contiguous"), ContextBalance::kContiguous);
  EXPECT_THROW(parse_context_balance("striped"), InputError);
}

TEST(ContextAttention, RefusesPlansOfOtherShapes) {
  run_threads(2, [](Communicator& cp) {
    const ContextCase c = packed(1, 16, {});
    Ctx ctx(1, "context");
    ContextRank rank(c, cp, DType::kF64);
    const ContextPlan longer(make_context_layout(1, 20, 2, 1, ContextBalance::kZigzag), cp.rank(),
                             1);
    EXPECT_THROW(rank.attention().forward(ctx, rank.out, rank.q, rank.k, rank.v, longer, args_of(c),
                                          nullptr),
                 Error);
    const ContextPlan exchanged(make_context_layout(1, 16, 2, 1, ContextBalance::kZigzag),
                                cp.rank(), 2);
    EXPECT_THROW(rank.attention().forward(ctx, rank.out, rank.q, rank.k, rank.v, exchanged,
                                          args_of(c), nullptr),
                 Error);
    AttentionArgs windowed = args_of(c);  // with a plan for attention without windows
    windowed.window = 4;
    EXPECT_THROW(rank.attention().forward(ctx, rank.out, rank.q, rank.k, rank.v, rank.plan(),
                                          windowed, nullptr),
                 Error);
  });
}

}  // namespace
}  // namespace trireme::test::test_context_attention
