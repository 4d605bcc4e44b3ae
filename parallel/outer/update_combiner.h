// Combination of the decoded updates of sites by Adasum (parallel/outer/adasum.h), for each logical
// parameter tensor by itself: dot products of the parts that this process has, and the sum of the
// updates weighted by the coefficients.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/outer/outer_state.h"

namespace trireme {

class UpdateCombiner {
 public:
  // Code of a unit's own piece (CompressionState::own_piece()) from a site.
  using CodeOf = std::function<ConstTensor(int site)>;

  // ranks: those that hold the model together; nullptr: this process alone. Collective over them.
  // The other arguments must outlive this object.
  UpdateCombiner(const ParameterStore& store, const OuterState& state, int sites,
                 Communicator* ranks, Ctx& ctx);

  // Starts the combination for a fragment. counts: by site. Those of other sites have no effect,
  // and no code is read.
  void begin(int fragment, const std::vector<bool>& counts, int64_t round);
  // Adds the dot products of the updates of a unit.
  void add_products(const OuterState::Unit& unit, const CodeOf& code_of);
  // Dot products of the fragment's tensors, float64: for each the lower triangle of the (S, S) Gram
  // matrix. The caller adds those of all processes.
  std::vector<double>& products() { return products_; }
  int64_t product_bytes(int fragment) const;
  // Determines the coefficients: from the products, or those of a mean.
  void weigh_by_products();
  void weigh_equally();
  // Own piece of a unit's update = the combination.
  void combine(const OuterState::Unit& unit, const CodeOf& code_of) const;
  // With n updates d_s that count and d their combination: n |d|^2 + sum over s of |d_s - d|^2,
  // less the sum of |d_s|^2 (OuterState::OpenRound::report).
  double squares_of_combination() const { return squares_; }

 private:
  struct Parameter {
    size_t tensor;  // number in its fragment, the same on all ranks
    bool counts;    // this rank's copy is the one that counts
  };
  const Parameter& parameter_of(const CompressedPart& part) const;
  size_t pairs() const { return sites_ * (sites_ + 1) / 2; }
  std::vector<double> gram_of(size_t tensor) const;
  void add_part_products(const CompressionState& exchange, const CompressionState::Encoder& e,
                         int64_t at, const CodeOf& code_of, std::span<double> products);
  void add_dots(const Tensor& updates, int64_t begin, int64_t end, const Tensor& wide,
                const Tensor& dots, std::span<double> products);
  void combine_part(const CompressionState& exchange, const CompressionState::Encoder& e,
                    int64_t at, const CodeOf& code_of, const Tensor& out) const;

  Ctx& ctx_;
  size_t sites_;
  std::map<int64_t, Parameter> parameters_;  // by the offset of their first element
  std::vector<size_t> tensors_;              // number, by fragment
  // State of the current round.
  std::vector<bool> counts_;
  int64_t round_ = 0;
  std::vector<double> products_;
  std::vector<std::vector<double>> coefficients_;  // by tensor
  double squares_ = 0;
};

}  // namespace trireme
