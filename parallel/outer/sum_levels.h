// Two levels of a sum over the ranks that hold the same parameters: exact inside a replica of the
// model (over its context-parallel ranks; of experts, over all that hold them), compressed between
// replicas. The compressed sum of dense parameters then depends on the number of replicas, dp, and
// not on how a replica divides its work; that of experts also on how many replicas hold them.
#pragma once

#include <memory>

#include "parallel/groups.h"

namespace trireme {

struct SumLevels {
  GroupCoord inner;  // among the ranks of the same replica
  GroupCoord outer;  // of this replica, among those that hold the parameters
};

// Levels of the rank with this layout. Where replicas have different numbers of ranks that hold the
// same parameters (experts over parts of replicas), every rank is a level of its own: inner is one
// rank.
SumLevels sum_levels(const ParallelSizes& sizes, const Layout& layout, Region region);

// Communicators of both levels. Collective over `ranks`, those that hold the parameters.
struct SumGroups {
  SumGroups(Communicator& ranks, Region region, const SumLevels& levels);
  std::unique_ptr<Communicator> inner, outer;  // outer: ranks with the same inner index
};

}  // namespace trireme
