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

// How far a result is from the reference: the largest relative differences of all steps, and where. A
// tensor is compared by the norm of the difference against its own norm plus a share of the global one
// (1e-6 of the gradient norm in float64, 1e-3 in others): some gradients are zero by mathematics.
struct LayoutError {
  double loss = 0, norm = 0, gradient = 0, value = 0;  // value: parameters after the last step
  std::string worst_gradient;                          // "step 3: model.norm.weight"
  std::string mismatch;  // tensors missing or of another size: nothing else means anything
};
LayoutError compare_layouts(const LayoutResult& got, const LayoutResult& want, DType dtype);

// What rounding may do in five steps of eight layers: in float64 nothing to speak of.
LayoutError allowed_error(DType dtype);
// "" or what exceeds what is allowed.
std::string layout_difference(const LayoutResult& got, const LayoutResult& want, DType dtype);

}  // namespace trireme::test
