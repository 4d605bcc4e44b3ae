// Sizes of a layout by dimension.
#pragma once

#include "parallel/layout.h"

namespace trireme::test {

inline ParallelSizes sizes_of(int pp, int dp, int cp, int tp, int ep = 1, int etp = 1) {
  ParallelSizes sizes;
  sizes.pp = pp;
  sizes.dp = dp;
  sizes.cp = cp;
  sizes.tp = tp;
  sizes.ep = ep;
  sizes.etp = etp;
  return sizes;
}

}  // namespace trireme::test
