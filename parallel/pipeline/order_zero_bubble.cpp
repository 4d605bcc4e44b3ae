// ZB-H1 and ZB-H2: the backward pass in two halves. The second half, which no other rank waits for,
// fills the time in which 1F1B would wait.
#include <algorithm>

#include "parallel/pipeline/orders.h"

namespace trireme {

Order zero_bubble_order(int stages, int micro_batches, int rank, int memory) {
  Order order;
  order.reserve(3 * static_cast<size_t>(micro_batches));
  int forwards = 0, inputs = 0, weights = 0;
  const auto forward = [&] { order.push_back({InstructionKind::kForward, 0, forwards++}); };
  const auto backward = [&] {
    order.push_back({InstructionKind::kBackwardInput, 0, inputs++});
    // Postpones the first `memory` * rank weight gradients. Rank r starts later by that much, and
    // does the postponed ones at the end, while the ranks before it still have input gradients to
    // compute.
    if (inputs > memory * rank) order.push_back({InstructionKind::kBackwardWeight, 0, weights++});
  };
  const int warm_up = std::min(micro_batches, memory * (stages - 1 - rank));
  while (forwards < warm_up) forward();
  while (forwards < micro_batches) {
    forward();
    backward();
  }
  while (inputs < micro_batches) backward();
  while (weights < micro_batches) order.push_back({InstructionKind::kBackwardWeight, 0, weights++});
  return order;
}

}  // namespace trireme
