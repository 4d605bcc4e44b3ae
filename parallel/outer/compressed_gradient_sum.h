// Compressed sum of a step's gradients over the ranks that hold the same parameters, in two levels
// (parallel/outer/sum_levels.h): exact inside a site, compressed between sites. Every rank gets the
// whole sum, so that ZeRO stages 0 and 1 have the same numbers.
#pragma once

#include <functional>

#include "parallel/groups.h"
#include "parallel/outer/compressed_all_reduce.h"
#include "parallel/outer/gradient_compression.h"

namespace trireme {

class CompressedGradientSum {
 public:
  // Exchange of the first moment of an optimizer, m = beta m + (1 - beta) g with
  // beta = GradientCompression::moment_beta() > 0, in place of g: ranks encode
  // g + beta / (1 - beta) m / replicas, and what they get is g such that the new m is the decoded
  // sum times 1 - beta (1-bit Adam, Tang et al. 2021). m changes slowly, so that what a step leaves
  // out is sent soon, but this g has the error of m times 1 / (1 - beta), so that its norm says
  // nothing about the gradients. ZeRO stage 0, no experts.
  struct Moments {
    // The whole moment, in the dtype of gradients, laid out as gradients. Empty: gradients are
    // exchanged.
    std::function<ConstTensor()> moment;
    // Maximum of the root mean square of the replicas' gradient norms, to which gradients are
    // scaled before they are encoded; 0: none.
    double clip = 0;
  };

  // Collective. All arguments must outlive this object.
  CompressedGradientSum(const Groups& groups, const ParameterStore& store, Ctx& ctx,
                        GradientCompression& compression, Moments moments);

  // Whether finish() sums the gradients of the context's step, or plans to: not in warm-up steps.
  bool is_active() const { return ctx_.planning() || compression_.compresses(ctx_.step); }
  // Sums the stored gradients, if active, and waits, which is added to TimeCategory::kCommunication
  // of the context's profile. Collective; call in every step, because all have one plan of the
  // arena. between(): called between the two levels, except in a planning run. Returns the time
  // that it waited.
  //
  // The sum is exact if the norm of the gradients of one rank and of its `loss` (1) is above 1e15
  // or not finite, so that a step that will be skipped changes no residual and all ranks see what
  // is not finite. On a GPU the host waits for this norm.
  double finish(const ConstTensor& loss, const std::function<void()>& between);
  // Whether the last finish() exchanged moments.
  bool sent_moments() const { return sent_moments_; }

 private:
  struct RegionSum {
    RegionSum(Communicator& ranks, Region its, GradientCompression::RegionSum& of, Ctx& ctx)
        : region(its),
          sum(of),
          groups(ranks, its, of.levels),
          all_reduce(*groups.outer, of.state, ctx) {}
    Region region;
    const GradientCompression::RegionSum& sum;
    SumGroups groups;
    CompressedAllReduce all_reduce;
  };
  Tensor gradients() const;
  bool may_encode(const ConstTensor& loss);
  void sum_exactly(std::unique_ptr<Communicator> SumGroups::*level);
  void sum_compressed();
  void sum_moments();
  void clip_replicas();
  void add_moment(const RegionSum& its, double factor);
  void share_in_sites();
  const Groups& groups_;
  const ParameterStore& store_;
  Ctx& ctx_;
  const GradientCompression& compression_;
  Moments moments_;
  std::vector<std::unique_ptr<RegionSum>> sums_;  // of regions that several ranks hold
  bool sent_moments_ = false;
  double waiting_seconds_ = 0;
};

}  // namespace trireme
