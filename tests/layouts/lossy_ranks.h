// Ranks that are threads, one of whose groups loses something: the negative control of the layouts' tests.
#pragma once

#include <atomic>
#include <string>

#include "tests/layouts/layout_run.h"

namespace trireme::test {

// Operation number `number` (from 0) of this kind in every group whose name begins with `group` (its ranks
// count alike). A collective does not happen: every rank goes on with what its memory held. Of kRecv, what is
// lost is the content of a posted message to rank `receiver` of the group: it arrives as zeros.
struct Lost {
  std::string group;
  CommKind kind = CommKind::kAllReduce;
  int64_t number = 0;
  int receiver = 0;
};

// Options of a run in which that happens, over the ring algorithm. Ranks for which it did are counted.
LayoutRunOptions losing(const Lost& lost, std::atomic<int>& count);

}  // namespace trireme::test
