#include "tests/parallel/collective_checks.h"

#include <algorithm>

#include "parallel/comm/collectives/collectives.h"
#include "tests/support/compare.h"

namespace trireme::test {
namespace {

TestTensor make(DType dtype, int64_t n) { return TestTensor(dtype, {n}); }

void set(const Tensor& t, int64_t i, double value) {
  switch (t.dtype()) {
    case DType::kF64: t.as<double>()[i] = value; return;
    case DType::kF32: t.as<float>()[i] = static_cast<float>(value); return;
    case DType::kBF16: t.as<bf16>()[i] = bf16(static_cast<float>(value)); return;
    case DType::kF16: t.as<f16>()[i] = f16(static_cast<float>(value)); return;
    case DType::kI64: t.as<int64_t>()[i] = static_cast<int64_t>(value); return;
    case DType::kI32: t.as<int32_t>()[i] = static_cast<int32_t>(value); return;
    default: TRIREME_UNREACHABLE("dtype ", t.dtype());
  }
}

// Compares element by element with want(i).
template <class F>
std::string expect(const std::string& what, const TestTensor& got, F&& want) {
  const std::vector<double> values = to_doubles(*got);
  for (size_t i = 0; i < values.size(); ++i)
    if (!(values[i] == want(static_cast<int64_t>(i))))
      return concat(what, " of ", got->numel(), " ", got->dtype(), ": element ", i, " is ",
                    values[i], ", not ", want(static_cast<int64_t>(i)));
  return got.guards_intact() ? "" : concat(what, " of ", got->numel(), " wrote past its operand");
}

double reduced(ReduceOp op, int ranks, int64_t i) {
  double value = operand(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double x = operand(r, i);
    value = op == ReduceOp::kSum   ? value + x
            : op == ReduceOp::kMax ? std::max(value, x)
                                   : std::min(value, x);
  }
  return value;
}

std::string check_gather_and_scatter(Communicator& g, DType dtype, int64_t n) {
  const TestTensor mine = make(dtype, n), all = make(dtype, n * g.size()), part = make(dtype, n);
  const int64_t each = std::max<int64_t>(1, n);
  fill(*mine, g.rank());
  g.all_gather(*all, *mine);
  std::string wrong = expect(
      "all_gather", all, [&](int64_t i) { return operand(static_cast<int>(i / each), i % each); });
  if (!wrong.empty()) return wrong;
  fill(*all, g.rank());
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    g.reduce_scatter(*part, *all, op);
    wrong = expect(concat("reduce_scatter ", op), part,
                   [&](int64_t i) { return reduced(op, g.size(), g.rank() * n + i); });
    if (!wrong.empty()) return wrong;
  }
  return expect("reduce_scatter's input", all, [&](int64_t i) { return operand(g.rank(), i); });
}

std::string check_uneven_pieces(Communicator& g, DType dtype, int64_t n) {
  const Piece own = piece_of(n, g.size(), g.rank());
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    const TestTensor data = make(dtype, n), mine = make(dtype, own.size());
    fill(*data, g.rank());
    g.reduce_scatter_v(*data, op);
    const std::vector<double> all = to_doubles(*data);
    for (int64_t i = own.begin; i < own.end; ++i)
      set(*mine, i - own.begin, all[static_cast<size_t>(i)]);
    std::string wrong = expect(concat("reduce_scatter_v ", op), mine,
                               [&](int64_t i) { return reduced(op, g.size(), own.begin + i); });
    if (!wrong.empty()) return wrong;
    if (!data.guards_intact()) return "reduce_scatter_v wrote past its operand";
    g.all_gather_v_async(*data).wait();
    wrong = expect("all_gather_v", data, [&](int64_t i) { return reduced(op, g.size(), i); });
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string check_broadcast(Communicator& g, DType dtype, int64_t n) {
  for (int root = 0; root < g.size(); ++root) {
    const TestTensor data = make(dtype, n);
    fill(*data, g.rank());
    g.broadcast(*data, root);
    const std::string wrong =
        expect(concat("broadcast from ", root), data, [&](int64_t i) { return operand(root, i); });
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// Rank r sends rank s r + 2 s elements: uneven, and none from 0 to 0.
int64_t uneven(int from, int to) { return int64_t{from} + 2 * to; }

std::string check_uneven_all_to_all(Communicator& g, DType dtype) {
  std::vector<int64_t> in_counts, out_counts, starts{0};
  int64_t in_total = 0;
  for (int r = 0; r < g.size(); ++r) {
    in_counts.push_back(uneven(g.rank(), r));
    out_counts.push_back(uneven(r, g.rank()));
    in_total += in_counts.back();
    starts.push_back(starts.back() + out_counts.back());
  }
  const TestTensor in = make(dtype, in_total), out = make(dtype, starts.back());
  fill(*in, g.rank());
  g.all_to_all_v(*out, out_counts, *in, in_counts);
  return expect("all_to_all_v", out, [&](int64_t i) {
    int from = 0;
    while (starts[static_cast<size_t>(from) + 1] <= i) ++from;
    int64_t at = i - starts[static_cast<size_t>(from)];
    for (int r = 0; r < g.rank(); ++r) at += uneven(from, r);
    return operand(from, at);
  });
}

std::string check_all_to_all(Communicator& g, DType dtype, int64_t n) {
  const TestTensor in = make(dtype, n * g.size()), out = make(dtype, n * g.size());
  const int64_t each = std::max<int64_t>(1, n);
  fill(*in, g.rank());
  g.all_to_all(*out, *in);
  const std::string wrong = expect("all_to_all", out, [&](int64_t i) {
    return operand(static_cast<int>(i / each), g.rank() * n + i % each);
  });
  return wrong.empty() ? check_uneven_all_to_all(g, dtype) : wrong;
}

std::string check_messages(Communicator& g) {
  if (g.size() == 1) return "";
  const int next = (g.rank() + 1) % g.size(), previous = (g.rank() + g.size() - 1) % g.size();
  for (int64_t n : {1000, 50'000}) {
    const TestTensor out = make(DType::kF32, n), in = make(DType::kF32, n);
    fill(*out, g.rank());
    g.send_recv(*out, next, *in, previous, 5);
    const std::string wrong =
        expect("send_recv", in, [&](int64_t i) { return operand(previous, i); });
    if (!wrong.empty()) return wrong;
  }
  // Two messages in flight, the second of which forwards what the first brought.
  const TestTensor mine = make(DType::kF64, 3000), first = make(DType::kF64, 3000);
  const TestTensor second = make(DType::kF64, 3000);
  fill(*mine, g.rank());
  const Work a_way = g.send_recv_async(*mine, next, *first, previous, 1);
  const Work another = g.send_recv_async(*first, next, *second, previous, 2);
  a_way.wait();
  another.wait();
  const int before = (g.rank() + 2 * g.size() - 2) % g.size();
  const std::string wrong =
      expect("send_recv_async", second, [&](int64_t i) { return operand(before, i); });
  if (!wrong.empty()) return wrong;
  // Tags, not the order of arrival, select the message.
  const TestTensor a = make(DType::kI32, 1), b = make(DType::kI32, 1);
  if (g.rank() == 0) {
    fill(*a, 3);
    fill(*b, 4);
    g.send(*a, 1, 1);
    g.send(*b, 1, 2);
  } else if (g.rank() == 1) {
    g.recv(*b, 0, 2);
    g.recv(*a, 0, 1);
    if (to_doubles(*a)[0] != operand(3, 0) || to_doubles(*b)[0] != operand(4, 0))
      return "recv mixed up tags";
  }
  return "";
}

// Messages in both directions around the ring, posted in an order in which blocking ones would wait
// forever, with collectives of the same ranks before, between and after them.
std::string check_posted_messages(Communicator& g) {
  if (g.size() == 1) return "";
  const int next = (g.rank() + 1) % g.size(), previous = (g.rank() + g.size() - 1) % g.size();
  for (const int64_t n : {0, 5, 50'000, 700'000}) {
    const TestTensor up = make(DType::kF32, n), down = make(DType::kF32, n);
    const TestTensor from_below = make(DType::kF32, n), from_above = make(DType::kF32, n);
    const TestTensor second = make(DType::kF32, n), sum = make(DType::kF64, 3001);
    fill(*up, g.rank());
    fill(*down, g.rank() + 1);
    fill(*sum, 2);
    const Work late = g.post_recv(*from_above, next, 9);
    g.all_reduce(*sum);
    const Work early = g.post_recv(*from_below, previous, 8);
    const Work reduced = g.all_reduce_async(*sum);
    std::vector<Work> sends = {g.post_send(*up, next, 8), g.post_send(*down, next, 8),
                               g.post_send(*down, previous, 9)};
    early.wait();
    g.barrier();
    g.recv(*second, previous, 8);  // a blocking receive of a posted message
    late.wait();
    for (const Work& work : sends) work.wait();
    reduced.wait();
    std::string wrong =
        expect("post_recv from below", from_below, [&](int64_t i) { return operand(previous, i); });
    if (wrong.empty())
      wrong = expect("recv", second, [&](int64_t i) { return operand(previous + 1, i); });
    if (wrong.empty())
      wrong = expect("post_recv from above", from_above,
                     [&](int64_t i) { return operand(next + 1, i); });
    const double ranks = g.size();
    if (wrong.empty())
      wrong = expect("all_reduce beside messages", sum,
                     [&](int64_t i) { return operand(2, i) * ranks * ranks; });
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string check_small_values(Communicator& g) {
  g.barrier();
  const auto name = [](int r) {
    return std::string(static_cast<size_t>(r) * 3, static_cast<char>('a' + r));
  };
  const std::vector<std::string> names = g.all_gather_strings(name(g.rank()));
  for (int r = 0; r < g.size(); ++r)
    if (names[static_cast<size_t>(r)] != name(r))
      return concat("all_gather_strings: \"", names[static_cast<size_t>(r)], "\" from rank ", r);
  if (g.broadcast_string(concat("from ", g.rank()), g.size() - 1) != concat("from ", g.size() - 1))
    return "broadcast_string";
  const int64_t sum = int64_t{g.size()} * (g.size() - 1) / 2;
  if (g.all_reduce_scalar(int64_t{g.rank()}, ReduceOp::kSum) != sum) return "scalar sum";
  if (g.all_reduce_scalar(static_cast<double>(-g.rank()), ReduceOp::kMin) != 1.0 - g.size())
    return "scalar minimum";
  return "";
}

std::string check_split(Communicator& g) {
  // Odd and even ranks, each in reverse order.
  const bool odd = g.rank() % 2 == 1;
  const auto half = g.split(odd ? 1 : 0, -g.rank(), odd ? "odd" : "even");
  const int members = (g.size() + 1 - g.rank() % 2) / 2;
  if (half->size() != members || half->rank() != members - 1 - g.rank() / 2)
    return concat("split: rank ", half->rank(), " of ", half->size());
  if (half->name() != (odd ? "odd" : "even")) return "split: name";
  const TestTensor data = make(DType::kF32, 37);
  fill(*data, g.rank());
  half->all_reduce(*data);
  std::string wrong = expect("all_reduce of a half", data, [&](int64_t i) {
    double sum = 0;
    for (int r = g.rank() % 2; r < g.size(); r += 2) sum += operand(r, i);
    return sum;
  });
  if (!wrong.empty()) return wrong;
  // The first rank joins no group.
  const auto rest = g.split(g.rank() == 0 ? -1 : 0, 0, "rest");
  if ((rest == nullptr) != (g.rank() == 0)) return "split: color -1 joined a group";
  if (rest) {
    fill(*data, 1);
    rest->all_reduce(*data);
    wrong = expect("all_reduce of the rest", data,
                   [&](int64_t i) { return operand(1, i) * (g.size() - 1); });
  }
  return wrong;
}

}  // namespace

double operand(int rank, int64_t i) {
  return static_cast<double>((rank * 5 + i * 3 + (i / 7) * (rank + 2)) % 17) - 8;
}

void fill(const Tensor& t, int rank) {
  for (int64_t i = 0; i < t.numel(); ++i) set(t, i, operand(rank, i));
}

void fill_normal(const Tensor& t, const std::string& name) {
  const std::vector<double> values = normals(name, t.numel());
  for (int64_t i = 0; i < t.numel(); ++i) set(t, i, values[static_cast<size_t>(i)]);
}

std::string bytes_of(const ConstTensor& t) {
  return {static_cast<const char*>(t.raw()), static_cast<size_t>(t.bytes())};
}

std::string check_all_reduce(Communicator& g, DType dtype, int64_t n) {
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    const TestTensor data = make(dtype, n);
    fill(*data, g.rank());
    g.all_reduce(*data, op);
    const std::string wrong = expect(concat("all_reduce ", op), data,
                                     [&](int64_t i) { return reduced(op, g.size(), i); });
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string check_collectives(Communicator& g) {
  std::string wrong;
  const std::vector<int64_t> sizes{0, 1, 2, 7, 33, 127, 1000, 4099}, few{1, 7, 1000};
  for (DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI64, DType::kI32})
    for (int64_t n : dtype == DType::kF32 ? sizes : few)
      for (const auto& check : {check_all_reduce, check_gather_and_scatter, check_uneven_pieces,
                                check_broadcast, check_all_to_all})
        if (wrong.empty()) wrong = check(g, dtype, n);
  for (const auto& check : {check_messages, check_posted_messages, check_small_values, check_split})
    if (wrong.empty()) wrong = check(g);
  return wrong.empty() ? "" : concat("rank ", g.rank(), " of ", g.size(), ": ", wrong);
}

}  // namespace trireme::test
