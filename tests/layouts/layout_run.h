// Trains a case on ranks that are threads and gathers what must not depend on the layout.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"
#include "tests/layouts/layout_case.h"

namespace trireme::test {

struct LayoutResult {
  std::vector<double> losses, norms;  // of each step
  // Of each step, the whole gradient of every logical tensor.
  std::vector<std::map<std::string, std::vector<double>>> gradients;
  std::map<std::string, std::vector<double>> parameters;  // after the last step
  // Bytes moved in each group of more than one rank, over the run, summed over ranks.
  std::map<std::string, int64_t> traffic;   // "tp", "dp x cp", ...
  std::vector<int64_t> parameter_elements;  // of each rank
};

LayoutResult run_layout(const LayoutCase& c, const CommOptions& options = {});
// The same for any configuration; its micro-batches hold one sequence.
LayoutResult run_training(const RunConfig& config, bool packed, const CommOptions& options);

// The first difference above `tolerance` in words, or "". A gradient is compared with the norm of the
// difference against its own norm plus 1e-6 of the global norm: some are zero by mathematics.
struct LayoutTolerance {
  double loss = 1e-9, gradient = 1e-9;
};
std::string layout_difference(const LayoutResult& got, const LayoutResult& want,
                              const LayoutTolerance& tolerance);

}  // namespace trireme::test
