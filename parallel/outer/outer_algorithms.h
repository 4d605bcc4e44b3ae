// Outer algorithms: how the shared weights change in a round, from the updates of the sites.
//
// With x the shared weights, x_s those of site s, S sites, and d = mean over s of (x - x_s):
//   m = momentum m + d        x -= lr (nesterov ? d + momentum m : m)
// after which every site continues from x. The first round sets m = d. This one formula is
//   averaging            lr 1, no momentum: x = mean of x_s (McDonald et al. 2010; Local SGD,
//                        Stich 2019)
//   block momentum       BMUF with classical or Nesterov block momentum (Chen & Huo 2016): lr is
//                        their block learning rate
//   DiLoCo               SGD with Nesterov momentum (Douillard et al. 2023)
//   streaming DiLoCo     the same for fragments of the weights at different steps, in rounds that
//                        end while the sites continue (Douillard et al. 2025)
//   Adasum               lr 1, no momentum, and d the combination of the updates by
//                        parallel/outer/adasum.h in place of their mean (Maleki et al. 2020)
// so that a row of the table is a name with the values that its paper recommends.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace trireme {

// How d results from the updates of the sites.
enum class UpdateCombination : uint8_t { kMean, kAdasum };

struct OuterAlgorithm {
  const char* name;
  const char* summary;            // line of the configuration reference
  double lr;                      // default
  double (*momentum)(int sites);  // default
  bool nesterov;                  // default, where the momentum is above 0
  bool streams;                   // fragments, overlap and mixing by default
  UpdateCombination combination = UpdateCombination::kMean;
};
std::span<const OuterAlgorithm> outer_algorithms();
const OuterAlgorithm* find_outer_algorithm(const std::string& name);  // nullptr: none

}  // namespace trireme
