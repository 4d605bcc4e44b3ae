#include "parallel/comm/collectives/collectives.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace trireme {
namespace {

std::byte* at(void* base, int64_t bytes) { return static_cast<std::byte*>(base) + bytes; }
const std::byte* at(const void* base, int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

void add_into(DType dtype, ReduceOp reduce, void* into, const void* first, const void* second,
              int64_t n) {
  const std::array<const void*, 2> in{first, second};
  reduce_ranges(dtype, reduce, into, in, n);
}

bool is_short_float(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

// Ranks of a group in ring order, relative to one of them.
struct Ring {
  std::span<const int> ranks;
  int self;
  int size() const { return static_cast<int>(ranks.size()); }
  int index(int offset) const { return ((self + offset) % size() + size()) % size(); }
  int rank(int offset) const { return ranks[static_cast<size_t>(index(offset))]; }
};

// Step s sends what arrived in step s - 1. At the end rank r holds the complete piece r + last.
void ring_reduce(Operation& op, const Ring& ring, DType dtype, ReduceOp reduce, void* data,
                 int64_t n, int last) {
  const int64_t width = dtype_size(dtype);
  std::byte* arrived = op.scratch(0, ceil_div(n, ring.size()) * width);
  for (int s = 0; s < ring.size() - 1; ++s) {
    const Piece out = piece_of(n, ring.size(), ring.index(last - s - 1));
    const Piece in = piece_of(n, ring.size(), ring.index(last - s - 2));
    op.step(ring.rank(1), at(data, out.begin * width), out.size() * width, ring.rank(-1), arrived,
            in.size() * width);
    std::byte* own = at(data, in.begin * width);
    add_into(dtype, reduce, own, arrived, own, in.size());
  }
}

// At the end rank r holds piece r + last, summed over all ranks in the order r, r - 1, r - 2, ...
void collect_short_floats(Operation& op, const Ring& ring, DType dtype, ReduceOp reduce, void* data,
                          int64_t n, int last) {
  const int64_t width = dtype_size(dtype);
  const Piece mine = piece_of(n, ring.size(), ring.index(last));
  std::byte* arrived = op.scratch(0, mine.size() * width);
  auto* sum = reinterpret_cast<float*>(op.scratch(1, mine.size() * 4));
  std::byte* own = at(data, mine.begin * width);
  if (reduce == ReduceOp::kSum) {
    std::fill_n(sum, mine.size(), 0.0f);
    accumulate_as_float(dtype, sum, own, mine.size());
  }
  for (int s = 1; s < ring.size(); ++s) {
    const Piece out = piece_of(n, ring.size(), ring.index(s + last));
    op.step(ring.rank(s), at(data, out.begin * width), out.size() * width, ring.rank(-s), arrived,
            mine.size() * width);
    // Maxima and minima are exact in the short type.
    if (reduce == ReduceOp::kSum)
      accumulate_as_float(dtype, sum, arrived, mine.size());
    else
      add_into(dtype, reduce, own, own, arrived, mine.size());
  }
  if (reduce == ReduceOp::kSum) round_from_float(dtype, own, sum, mine.size());
}

void reduce_to_pieces(Operation& op, const Ring& ring, DType dtype, ReduceOp reduce, void* data,
                      int64_t n, int last) {
  if (is_short_float(dtype))
    collect_short_floats(op, ring, dtype, reduce, data, n, last);
  else
    ring_reduce(op, ring, dtype, reduce, data, n, last);
}

std::vector<int> all_ranks(Operation& op) {
  std::vector<int> ranks(static_cast<size_t>(op.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Rank r starts with piece r + first.
void ring_spread(Operation& op, const Ring& ring, int64_t width, void* data, int64_t n, int first) {
  for (int s = 0; s < ring.size() - 1; ++s) {
    const Piece out = piece_of(n, ring.size(), ring.index(first - s));
    const Piece in = piece_of(n, ring.size(), ring.index(first - s - 1));
    op.step(ring.rank(1), at(data, out.begin * width), out.size() * width, ring.rank(-1),
            at(data, in.begin * width), in.size() * width);
  }
}

}  // namespace

Piece piece_of(int64_t n, int pieces, int index) {
  // floor(n index / pieces): longer and shorter pieces alternate evenly, so that the two pieces
  // that a rank of a ring does not send are within one element of their mean.
  const int64_t each = n / pieces, rest = n % pieces;
  const auto begin = [&](int64_t i) { return each * i + rest * i / pieces; };
  return {begin(index), begin(index + 1)};
}

void ring_all_reduce(Operation& op, DType dtype, ReduceOp reduce, void* data, int64_t n,
                     std::span<const int> ranks, int self) {
  const Ring ring{ranks, self};
  if (ring.size() == 1) return;
  reduce_to_pieces(op, ring, dtype, reduce, data, n, 1);
  ring_spread(op, ring, dtype_size(dtype), data, n, 1);
}

void ring_reduce_scatter_pieces(Operation& op, DType dtype, ReduceOp reduce, void* data,
                                int64_t n) {
  if (op.size() == 1) return;
  const std::vector<int> ranks = all_ranks(op);
  reduce_to_pieces(op, Ring{ranks, op.rank()}, dtype, reduce, data, n, 0);
}

void ring_all_gather_pieces(Operation& op, int64_t width, void* data, int64_t n) {
  const std::vector<int> ranks = all_ranks(op);
  ring_spread(op, Ring{ranks, op.rank()}, width, data, n, 0);
}

void ring_all_gather(Operation& op, void* out, const void* in, int64_t bytes) {
  const std::vector<int> ranks = all_ranks(op);
  std::byte* own = at(out, op.rank() * bytes);
  if (bytes > 0 && own != in) std::memmove(own, in, static_cast<size_t>(bytes));
  ring_spread(op, Ring{ranks, op.rank()}, 1, out, bytes * op.size(), 0);
}

void ring_reduce_scatter(Operation& op, DType dtype, ReduceOp reduce, void* out, const void* in,
                         int64_t n) {
  const int64_t bytes = n * dtype_size(dtype);
  const int size = op.size(), rank = op.rank();
  const auto piece = [&](int offset) {  // piece of `in`, `offset` ranks after this rank's own
    return at(in, ((rank + offset) % size + size) % size * bytes);
  };
  const auto peer = [&](int offset) { return ((rank + offset) % size + size) % size; };
  if (is_short_float(dtype) && reduce == ReduceOp::kSum) {
    auto* sum = reinterpret_cast<float*>(op.scratch(1, n * 4));
    std::byte* arrived = op.scratch(0, bytes);
    std::fill_n(sum, n, 0.0f);
    accumulate_as_float(dtype, sum, piece(0), n);
    for (int s = 1; s < size; ++s) {
      op.step(peer(s), piece(s), bytes, peer(-s), arrived, bytes);
      accumulate_as_float(dtype, sum, arrived, n);
    }
    return round_from_float(dtype, out, sum, n);
  }
  const std::byte* partial = piece(-1);
  for (int s = 0; s < size - 1; ++s) {
    std::byte* arrived = op.scratch(static_cast<size_t>(s % 2), bytes);
    op.step(peer(1), partial, bytes, peer(-1), arrived, bytes);
    add_into(dtype, reduce, arrived, arrived, piece(-s - 2), n);
    partial = arrived;
  }
  if (size == 1) partial = at(in, 0);
  if (bytes > 0 && out != partial) std::memmove(out, partial, static_cast<size_t>(bytes));
}

void tree_broadcast(Operation& op, void* data, int64_t bytes, int root) {
  const int size = op.size();
  const int relative = (op.rank() - root + size) % size;
  const auto peer = [&](int r) { return (r + root) % size; };
  int reach = 1;  // ranks 0 .. reach - 1 (relative) have the data
  for (; reach < size; reach *= 2) {
    if (relative < reach && relative + reach < size) {
      const SendPart send{peer(relative + reach), op.collective_tag(), data, bytes};
      op.exchange({&send, 1}, {});
    } else if (relative >= reach && relative < 2 * reach) {
      const RecvPart recv{peer(relative - reach), op.collective_tag(), data, bytes};
      op.exchange({}, {&recv, 1});
    }
  }
}

void pairwise_all_to_all(Operation& op, std::byte* out, std::span<const int64_t> out_bytes,
                         const std::byte* in, std::span<const int64_t> in_bytes) {
  const int size = op.size();
  std::vector<int64_t> out_at(static_cast<size_t>(size)), in_at(static_cast<size_t>(size));
  std::exclusive_scan(out_bytes.begin(), out_bytes.end(), out_at.begin(), int64_t{0});
  std::exclusive_scan(in_bytes.begin(), in_bytes.end(), in_at.begin(), int64_t{0});
  const auto self = static_cast<size_t>(op.rank());
  if (in_bytes[self] > 0)
    std::memcpy(out + out_at[self], in + in_at[self], static_cast<size_t>(in_bytes[self]));
  for (int s = 1; s < size; ++s) {
    const auto to = static_cast<size_t>((op.rank() + s) % size);
    const auto from = static_cast<size_t>((op.rank() - s + size) % size);
    op.step(static_cast<int>(to), in + in_at[to], in_bytes[to], static_cast<int>(from),
            out + out_at[from], out_bytes[from]);
  }
}

void dissemination_barrier(Operation& op) {
  for (int distance = 1; distance < op.size(); distance *= 2) {
    const SendPart send{(op.rank() + distance) % op.size(), op.collective_tag(), nullptr, 0};
    const RecvPart recv{(op.rank() - distance % op.size() + op.size()) % op.size(),
                        op.collective_tag(), nullptr, 0};
    op.exchange({&send, 1}, {&recv, 1}, true);
  }
}

std::vector<std::string> gather_strings(Operation& op, const std::string& mine) {
  constexpr int64_t kLongest = int64_t{1} << 26;
  const auto size = static_cast<size_t>(op.size());
  std::vector<int64_t> lengths(size);
  const auto length = static_cast<int64_t>(mine.size());
  ring_all_gather(op, lengths.data(), &length, sizeof length);
  std::vector<std::string> all(size);
  for (size_t r = 0; r < size; ++r) {
    TRIREME_CHECK(lengths[r] >= 0 && lengths[r] <= kLongest, op.info(), ": string of ", lengths[r],
                  " bytes from rank ", r);
    all[r].resize(static_cast<size_t>(lengths[r]));
  }
  all[static_cast<size_t>(op.rank())] = mine;
  const auto name = [&](int offset) -> std::string& {
    return all[static_cast<size_t>((op.rank() + offset) % op.size() + op.size()) % size];
  };
  for (int s = 0; s < op.size() - 1; ++s) {
    std::string& out = name(-s);
    std::string& in = name(-s - 1);
    op.step((op.rank() + 1) % op.size(), out.data(), static_cast<int64_t>(out.size()),
            (op.rank() - 1 + op.size()) % op.size(), in.data(), static_cast<int64_t>(in.size()));
  }
  return all;
}

void check_same_operation(Operation& op, DType dtype, ReduceOp reduce, int root) {
  struct Record {
    int64_t sequence, bytes;
    int32_t kind, dtype, reduce, root;
    bool operator==(const Record&) const = default;
  };
  GroupState& group = op.group();
  const OpInfo& info = op.info();
  // The ranks of an uneven all-to-all pass different numbers of bytes.
  const int64_t bytes = info.kind == CommKind::kAllToAll ? 0 : info.bytes;
  const Record mine{static_cast<int64_t>(group.sequence), bytes,
                    static_cast<int32_t>(info.kind),      static_cast<int32_t>(dtype),
                    static_cast<int32_t>(reduce),         root};
  std::vector<Record> all(static_cast<size_t>(op.size()));
  {
    // Counted as a separate operation, so that the traffic of the checked operation still matches
    // its formula. The control operation must not use up a sequence number.
    Operation control(group, CommKind::kControl, sizeof(Record));
    --group.sequence;
    ring_all_gather(control, all.data(), &mine, sizeof(Record));
  }
  const auto describe = [](const Record& r) {
    return concat(comm_kind_name(static_cast<CommKind>(r.kind)), " number ", r.sequence, " of ",
                  r.bytes, " bytes of ", dtype_name(static_cast<DType>(r.dtype)), ", ",
                  reduce_op_name(static_cast<ReduceOp>(r.reduce)), ", root ", r.root);
  };
  for (size_t r = 1; r < all.size(); ++r)
    if (!(all[r] == all[0]))
      throw Error(concat("group \"", group.name, "\": rank ", r, " calls ", describe(all[r]),
                         " while rank 0 calls ", describe(all[0])));
}

}  // namespace trireme
