// Two levels of a sum over the ranks that hold the same parameters: exact inside a site, compressed
// between sites. A site is a replica of the model (its context-parallel ranks; of experts, all that
// hold them), or a node. The compressed sum of dense parameters then depends on the number of
// sites, and not on how a replica divides its work; that of experts also on how many sites hold
// them.
#pragma once

#include <memory>
#include <vector>

#include "parallel/groups.h"

namespace trireme {

struct SumLevels {
  GroupCoord inner;  // among the ranks of the same site
  GroupCoord outer;  // of this site, among those that hold the parameters
};

// Levels of the rank with this layout. nodes: of each rank of the world, which are the sites;
// empty: replicas are. Where sites have different numbers of ranks that hold the same parameters
// (experts over parts of replicas), every rank is a site of its own. InputError if that is so of
// dense parameters: nodes have different numbers of data-parallel ranks.
SumLevels sum_levels(const ParallelSizes& sizes, const Layout& layout, Region region,
                     const std::vector<int>& nodes = {});

// Communicators of both levels. Collective over `ranks`, those that hold the parameters.
struct SumGroups {
  SumGroups(Communicator& ranks, Region region, const SumLevels& levels);
  std::unique_ptr<Communicator> inner, outer;  // outer: ranks with the same inner index
};

}  // namespace trireme
