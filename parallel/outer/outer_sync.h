// Rounds of an outer algorithm (parallel/outer/outer_algorithms.h). Between two rounds each site
// trains by itself from the shared weights. A round adds the updates of the sites, which may be
// compressed, changes the shared weights by their mean, and gives these to all sites.
//
// Each rank exchanges one piece of the weights with the ranks of the same number in other sites
// (CompressedAllReduce), so a site sends each weight once, however many of its ranks store it.
#pragma once

#include <memory>

#include "parallel/groups.h"
#include "parallel/outer/compressed_all_reduce.h"
#include "parallel/outer/outer_state.h"
#include "parallel/outer/weight_pieces.h"

namespace trireme {

struct OuterRound {
  // With d_s the update of site s, d their mean: norm of d, and root of the mean over s of
  // |d_s - d|^2. With compression d is what was received, and the drift a difference of squares.
  double update_norm = 0, drift = 0;
  double seconds = 0;
  int64_t sent_bytes = 0;     // by this rank to other sites
  std::vector<int> left_out;  // sites whose update was not finite
};

class OuterSync {
 public:
  // groups: of this site. peers: Sites::peers(). All arguments must outlive this object.
  // Collective over all sites.
  OuterSync(const Groups& groups, Communicator& peers, ParameterStore& store, OuterState& state,
            Ctx& ctx);

  ArenaPlan plan();  // of a round's scratch
  // Call once the weights are initialized or loaded: they become the shared weights. If the state
  // is apart, the site's own weights, loaded into RegionState::local, become its weights.
  void begin(const StoredWeights& weights);
  // The site has taken a step by itself.
  void stepped() { state_.apart = true; }
  // A round after step number `step`, ascending. Collective over all sites; the arena must have the
  // capacity of `plan`. A site whose update is not finite is left out of the mean and continues
  // from the shared weights as all do; if there is no finite update, these do not change.
  OuterRound round(int64_t step, const ArenaPlan& plan);
  // Calls use() with the shared weights as the site's weights, for an evaluation or a checkpoint in
  // the middle of a round; the site's own weights are in RegionState::local meanwhile. Collective
  // over the site.
  template <class Use>
  void with_shared_weights(const Use& use) {
    if (!state_.apart) return use();
    show_shared();
    use();
    write(&OuterState::RegionState::local);
  }

 private:
  // Exchange of one region.
  struct Exchange {
    Exchange(Communicator& ranks, Communicator& peers, const ParameterStore& store, Region region,
             OuterState::RegionState& its, Ctx& ctx)
        : state(its),
          pieces(ranks, store, region, its.pieces, ctx),
          sum(peers, its.exchange, ctx) {}
    OuterState::RegionState& state;
    WeightPieces pieces;
    CompressedAllReduce sum;
  };
  template <class Use>
  void for_each(const Use& use);
  void show_shared();
  void read_updates();
  Tensor update_of(const Exchange& e) const;
  Tensor squares() const;
  void add_squares();
  double squares_of_site();
  std::vector<int> leave_out(bool own);
  void sum_updates(int64_t step);
  OuterRound exchange(int64_t step);
  void change_shared(int64_t step, double factor);
  void write(Tensor OuterState::RegionState::*array);
  void refresh_parameters();
  const Groups& groups_;
  Communicator& peers_;
  ParameterStore& store_;
  OuterState& state_;
  Ctx& ctx_;
  StoredWeights weights_;
  // By region; null where it has no trained parameters.
  std::array<std::unique_ptr<Exchange>, kRegions> exchanges_;
  Buffer scalars_;  // a float64 and a StepScalars
};

}  // namespace trireme
