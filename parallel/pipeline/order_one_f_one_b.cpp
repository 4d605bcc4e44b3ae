// GPipe, 1F1B and interleaved 1F1B: whole backward passes.
#include <algorithm>

#include "parallel/pipeline/orders.h"

namespace trireme {
namespace {

constexpr auto kF = InstructionKind::kForward;
constexpr auto kB = InstructionKind::kBackward;

// `warm_up` forwards, then one forward and one backward in turn, then the remaining backwards.
// forward(k), backward(k): the k-th of `total` each.
template <class Forward, class Backward>
Order alternate(int total, int warm_up, Forward&& forward, Backward&& backward) {
  Order order;
  order.reserve(2 * static_cast<size_t>(total));
  warm_up = std::min(total, warm_up);
  for (int k = 0; k < warm_up; ++k) order.push_back(forward(k));
  for (int k = warm_up; k < total; ++k) {
    order.push_back(forward(k));
    order.push_back(backward(k - warm_up));
  }
  for (int k = total - warm_up; k < total; ++k) order.push_back(backward(k));
  return order;
}

}  // namespace

Order forward_only_order(int stages, int chunks, int micro_batches) {
  Order order;
  for (int first = 0; first < micro_batches; first += stages)
    for (int chunk = 0; chunk < chunks; ++chunk)
      for (int i = first; i < std::min(first + stages, micro_batches); ++i)
        order.push_back({kF, chunk, i});
  return order;
}

Order gpipe_order(int micro_batches) {
  return alternate(
      micro_batches, micro_batches,
      [](int k) {
        return Instruction{kF, 0, k};
      },
      [](int k) {
        return Instruction{kB, 0, k};
      });
}

Order one_f_one_b_order(int stages, int micro_batches, int rank) {
  return alternate(
      micro_batches, stages - 1 - rank,
      [](int k) {
        return Instruction{kF, 0, k};
      },
      [](int k) {
        return Instruction{kB, 0, k};
      });
}

Order interleaved_order(int stages, int chunks, int micro_batches, int rank) {
  if (chunks == 1) return one_f_one_b_order(stages, micro_batches, rank);
  // In groups of p micro-batches: all of a group pass chunk 0, then all pass chunk 1, ...
  const int group = stages * chunks;
  const auto micro_batch = [&](int k) { return k / group * stages + k % stages; };
  const auto chunk = [&](int k) { return k % group / stages; };
  const int warm_up = 2 * (stages - 1 - rank) + (chunks - 1) * stages;
  return alternate(
      micro_batches * chunks, warm_up,
      [&](int k) {
        return Instruction{kF, chunk(k), micro_batch(k)};
      },
      [&](int k) {
        return Instruction{kB, chunks - 1 - chunk(k), micro_batch(k)};
      });
}

}  // namespace trireme
