// Whole weights of a model in the units of an outer algorithm, on one process: of the hub that adds
// the updates of sites, or of the rank of a site that sends and receives them. They have the layout
// of a single rank, so that codes do not depend on how a site divides its work.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "parallel/outer/outer_state.h"
#include "parallel/outer/update_combiner.h"
#include "parallel/parameter_store.h"

namespace trireme {

class WholeModel {
 public:
  // parameters: of a model on one rank. holder: kSender or kHub. Determines sizes only, and plans
  // the scratch of codes.
  WholeModel(const OuterConfig& config, const ParameterList& parameters, DType dtype,
             int64_t layers, uint64_t seed, OuterState::Holder holder);
  void allocate();  // in host memory

  const OuterConfig& config() const { return state_.config(); }
  const ParameterStore& store() const { return store_; }
  OuterState& state() { return state_; }
  const OuterState& state() const { return state_; }
  Ctx& host() { return host_; }
  int fragments() const { return state_.config().fragments; }
  int64_t bytes() const;  // of what allocate() allocates

  // Codes of the units of a fragment, one after the other. round: EncodingKey::round. decode() with
  // `add` adds to Unit::update, without it replaces it; `code` must have code_bytes().
  int64_t code_bytes(int fragment) const;
  void encode(int fragment, int64_t round, std::span<std::byte> code);
  void decode(int fragment, int64_t round, std::span<const std::byte> code, bool add);

  // Whether the updates of sites are combined (combines_updates()), on the hub.
  bool combines() const { return combiner_ != nullptr; }
  // Unit::update = the combination of updates. codes: by site; empty: the site's does not count.
  // Returns UpdateCombiner::squares_of_combination().
  double combine(int fragment, int64_t round, const std::vector<std::span<const std::byte>>& codes);

  // Values of one array of a fragment's units, one after the other.
  int64_t array_bytes(int fragment) const;
  std::span<std::byte> copy_out(int fragment, Tensor OuterState::Unit::*array,
                                std::span<std::byte> to) const;  // returns the rest of `to`
  std::span<const std::byte> copy_in(int fragment, Tensor OuterState::Unit::*array,
                                     std::span<const std::byte> from);
  // State of a fragment: shared weights, then momentum if the algorithm has one.
  int64_t state_bytes(int fragment) const;

  void zero_updates(int fragment);
  // Sum of the squares of Unit::update of a fragment.
  double squares(int fragment);
  // change_shared() of all units of a fragment.
  void change_shared(int fragment, int64_t step, double factor);

  template <class Use>
  void for_each(int fragment, const Use& use) const {
    for (const auto& unit : state_.units())
      if (unit->fragment == fragment) use(*unit);
  }

 private:
  template <class Use>
  void for_each_code(int fragment, const Use& use) const;
  void plan_codes(int fragment);
  void combine_units(int fragment, int64_t round,
                     const std::vector<std::span<const std::byte>>& codes);
  bool sends() const { return holder_ == OuterState::kSender; }

  OuterState::Holder holder_;
  ParameterStore store_;
  OuterState state_;
  Ctx host_;
  ArenaPlan plan_;
  Buffer scalars_;
  std::unique_ptr<UpdateCombiner> combiner_;
};

}  // namespace trireme
