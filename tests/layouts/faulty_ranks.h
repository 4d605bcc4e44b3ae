// Thread ranks with a fault in one group: negative controls of the layout tests.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "tests/layouts/layout_run.h"

namespace trireme::test {

enum class Fate {
  // The collective does not happen: every rank continues with the content of its memory. kRecv: the
  // content of a posted message to rank `receiver` of the group is lost, and zeros arrive.
  kLost,
  kScaled,    // float64 all-reduce: the sums are multiplied by `factor`
  kOwn,       // all-gather of two ranks: each receives its own piece instead of the other's
  kObserved,  // no fault: calls `observe` first, with the world rank
};

// Fault in operations of one kind, in every group whose name starts with `group` (operations are
// counted over its ranks together), with a payload of `bytes` (0: any): in operation `number`, from
// 0, or in every one.
struct Fault {
  static constexpr int64_t kEvery = -1;

  std::string group;
  CommKind kind = CommKind::kAllReduce;
  int64_t number = 0;
  int receiver = 0;
  int64_t bytes = 0;
  Fate fate = Fate::kLost;
  double factor = 1;
  std::function<void(int)> observe = {};
};

// Options of a run with the fault, with the ring algorithm. count: counts such operations of all
// ranks.
LayoutRunOptions with_fault(const Fault& fault, std::atomic<int>& count);

}  // namespace trireme::test
