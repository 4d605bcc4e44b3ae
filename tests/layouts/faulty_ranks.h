// Ranks that are threads with a fault in one group: the layouts' negative controls.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "tests/layouts/layout_run.h"

namespace trireme::test {

enum class Fate {
  // The collective does not happen: every rank goes on with what its memory held. Of kRecv, the
  // content of a posted message to rank `receiver` of the group is lost: zeros arrive.
  kLost,
  kScaled,    // float64 all-reduce: the sums are multiplied with `factor`
  kOwn,       // all-gather of two ranks: each receives a copy of its own piece as the other's
  kObserved,  // nothing goes wrong: `observe` is called first, with the world rank
};

// Fault in operations of one kind in every group whose name begins with `group` (its ranks count
// alike), with a payload of `bytes` (0: any): in operation `number`, from 0, or in every one.
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

// Options of a run with the fault, over the ring algorithm. `count`: such operations, of all ranks.
LayoutRunOptions with_fault(const Fault& fault, std::atomic<int>& count);

}  // namespace trireme::test
