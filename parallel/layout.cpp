#include "parallel/layout.h"

#include <algorithm>
#include <initializer_list>

#include "engine/core/tensor.h"
#include "parallel/config_keys.h"

namespace trireme {
namespace {

std::vector<std::string> dims_of(const std::string& order) {
  std::vector<std::string> dims;
  size_t begin = 0;
  while (begin <= order.size()) {
    const size_t end = std::min(order.find('-', begin), order.size());
    dims.push_back(order.substr(begin, end - begin));
    begin = end + 1;
  }
  return dims;
}

bool is_order(const std::string& order) {
  std::vector<std::string> dims = dims_of(order);
  std::ranges::sort(dims);
  return dims == std::vector<std::string>{"cp", "dp", "pp", "tp"};
}

int size_of(const ParallelSizes& sizes, const std::string& dim) {
  if (dim == "tp") return sizes.tp;
  if (dim == "cp") return sizes.cp;
  if (dim == "dp") return sizes.dp;
  TRIREME_CHECK(dim == "pp", "unknown parallel dimension ", dim, ", expected tp, cp, dp or pp");
  return sizes.pp;
}

// Upper bound on ranks. Sizes come from files, so their product may exceed any integer.
constexpr int64_t kMaxRanks = int64_t{1} << 30;

// Product of the sizes, or kMaxRanks + 1 if it is more.
int64_t limited_product(std::initializer_list<int> sizes) {
  int64_t product = 1;
  for (const int size : sizes) product = std::min(product * size, kMaxRanks + 1);
  return product;
}

std::string limited_text(int64_t product) {
  return product > kMaxRanks ? concat("more than ", kMaxRanks) : text(product);
}

}  // namespace

int world_size(const ParallelSizes& sizes) {
  return narrow<int>(checked_mul(checked_mul(sizes.tp, sizes.cp), checked_mul(sizes.dp, sizes.pp)));
}

std::vector<LayoutProblem> layout_problems(const ParallelSizes& sizes, int ranks) {
  std::vector<LayoutProblem> problems;
  const auto at_least_one = [&](const char* key, int size) {
    if (size < 1) problems.push_back({key, concat("must be at least 1, got ", size)});
  };
  at_least_one(key::kTensor, sizes.tp);
  at_least_one(key::kContext, sizes.cp);
  at_least_one(key::kData, sizes.dp);
  at_least_one(key::kPipeline, sizes.pp);
  at_least_one(key::kExpert, sizes.ep);
  at_least_one(key::kExpertTensor, sizes.etp);
  if (!is_order(sizes.order))
    problems.push_back({key::kOrder, concat("must hold tp, cp, dp and pp once each, such as "
                                            "\"tp-cp-dp-pp\", got \"",
                                            sizes.order, "\"")});
  if (!problems.empty()) return problems;
  if (sizes.cp_ulysses < 1 || sizes.cp % sizes.cp_ulysses != 0)
    problems.push_back(
        {key::kContext,
         concat(sizes.cp, " ranks cannot exchange heads in groups of ", sizes.cp_ulysses)});
  const int64_t stage = limited_product({sizes.tp, sizes.cp, sizes.dp});
  const int64_t experts = limited_product({sizes.ep, sizes.etp});
  const int64_t world = limited_product({sizes.tp, sizes.cp, sizes.dp, sizes.pp});
  const bool experts_fit = experts <= kMaxRanks && stage % experts == 0;
  if (!experts_fit)
    problems.push_back(
        {key::kExpert, concat("ep ", sizes.ep, " x etp ", sizes.etp, " = ", limited_text(experts),
                              " does not divide the ", limited_text(stage),
                              " ranks of a pipeline stage (dp x cp x tp)")});
  if (world != ranks) {
    // The description of the expert dimensions needs sizes that divide.
    ParallelSizes dense = sizes;
    if (!experts_fit) dense.ep = dense.etp = 1;
    problems.insert(problems.begin(),
                    {key::kTensor, concat("the layout ", describe(dense), " needs ",
                                          limited_text(world), " ranks but the run has ", ranks,
                                          "; change the layout or start ", limited_text(world))});
  }
  return problems;
}

Layout layout_of(const ParallelSizes& sizes, int rank) {
  TRIREME_CHECK(layout_problems(sizes, world_size(sizes)).empty(), "layout ", describe(sizes));
  TRIREME_CHECK(rank >= 0 && rank < world_size(sizes), "rank ", rank, " of ", world_size(sizes));
  Layout layout;
  layout.sequence_parallel = sizes.sequence_parallel && sizes.tp > 1;
  layout.tp_comm_overlap = sizes.tp_comm_overlap;
  layout.moe_shared_overlap = sizes.moe_shared_overlap;
  layout.cp_balance = sizes.cp_balance;
  layout.cp_ulysses = sizes.cp_ulysses;
  int rest = rank, stage_rank = 0, stage_stride = 1;
  for (const std::string& dim : dims_of(sizes.order)) {
    const int size = size_of(sizes, dim);
    const GroupCoord coord{size, rest % size};
    rest /= size;
    if (dim == "tp") layout.tp = coord;
    if (dim == "cp") layout.cp = coord;
    if (dim == "dp") layout.dp = coord;
    if (dim == "pp") layout.pp = coord;
    if (dim == "pp") continue;
    stage_rank += coord.index * stage_stride;
    stage_stride *= size;
  }
  layout.data = {sizes.dp * sizes.cp, layout.dp.index * sizes.cp + layout.cp.index};
  layout.etp = {sizes.etp, stage_rank % sizes.etp};
  layout.ep = {sizes.ep, stage_rank / sizes.etp % sizes.ep};
  layout.edp = {stage_stride / (sizes.etp * sizes.ep), stage_rank / (sizes.etp * sizes.ep)};
  return layout;
}

std::string describe(const ParallelSizes& sizes) {
  std::string text =
      concat("pp=", sizes.pp, " x dp=", sizes.dp, " x cp=", sizes.cp, " x tp=", sizes.tp);
  if (sizes.sequence_parallel) text += " (sequence parallel)";
  if (sizes.ep > 1 || sizes.etp > 1)
    text += concat(
        " (experts edp=",
        limited_product({sizes.tp, sizes.cp, sizes.dp}) / limited_product({sizes.ep, sizes.etp}),
        " x ep=", sizes.ep, " x etp=", sizes.etp, ")");
  return text;
}

}  // namespace trireme
