// Rounds of an outer algorithm (parallel/outer/outer_algorithms.h). Between two rounds each site
// trains by itself from the shared weights. A round adds the updates of the sites, which may be
// compressed, changes the shared weights by their mean, and gives these to all sites.
//
// Fragments of the weights have rounds of their own, at different steps of the period, and a round
// may end overlap_steps after it begins, while the sites continue (streaming DiLoCo, Douillard et
// al. 2025): the update is that of the first of these steps, and what a site has trained since is
// mixed in, x_s = mixing x_s + (1 - mixing) x.
//
// Each rank works on one piece of the weights, so a site sends each weight once, however many of
// its ranks store it.
#pragma once

#include <memory>

#include "parallel/groups.h"
#include "parallel/outer/update_exchange.h"
#include "parallel/outer/weight_pieces.h"

namespace trireme {

// Rounds that ended at one step, of one or more fragments.
struct OuterRound {
  // With d_s the update of site s, d their mean or combination: norm of d, and root of the mean
  // over s of |d_s - d|^2. With compression d is what was received, and the drift a difference of
  // squares.
  double update_norm = 0, drift = 0;
  double seconds = 0;         // that this rank spent in after_step() since the rounds before
  int64_t sent_bytes = 0;     // by this rank to other sites
  int fragments = 0;          // number of rounds that ended
  std::vector<int> left_out;  // sites with an update that was not finite
  std::vector<int> absent;    // sites without an update
  // The site was late: it continues from the current weights, at this step if it is above its own.
  bool replaced = false;
  int64_t newest_step = -1;
};

class OuterSync {
 public:
  // groups: of this site. exchange: of the units of `state`. The other arguments must outlive this
  // object. Collective over the site.
  OuterSync(const Groups& groups, std::unique_ptr<UpdateExchange> exchange, ParameterStore& store,
            OuterState& state, Ctx& ctx);

  ArenaPlan plan();  // of the scratch of after_step() and with_shared_weights()
  // Call once the weights are initialized or loaded: they become the shared weights. If the state
  // is apart, the site's own weights, loaded into Unit::own, become its weights. plan: with whose
  // capacity the arena is reserved; must outlive this object. step: number of steps taken. Returns
  // the number of steps to continue from, and whether the weights have changed: those of the run
  // if its sites are jobs of their own.
  UpdateExchange::Start begin(const StoredWeights& weights, const ArenaPlan& plan,
                              int64_t step = 0);
  // Whether after_step() has work other than to note the step.
  bool is_due(int64_t step, int64_t steps) const;
  // The site has taken step number `step`, from 1, of a run of `steps`: ends and begins the rounds
  // that are due. Collective over all sites. A site whose update is not finite is left out of the
  // mean and continues from the shared weights as all do; if there is no finite update, these do
  // not change. Returns the rounds that ended.
  OuterRound after_step(int64_t step, int64_t steps);
  // Completes the exchanges of open rounds. If one has closed without this site, all those end at
  // once, and it continues from the shared weights as after_step() says. Collective over all sites.
  OuterRound end_replaced();
  // For a run that stops without the results of its open rounds: they end, and change nothing.
  void drop_open_rounds();
  // Calls use() with the shared weights as the site's weights, for an evaluation or a checkpoint
  // between two rounds; the site's own weights are in Unit::own meanwhile. Completes the exchanges
  // of open rounds, which end when they are due; if one has closed without this site, its own
  // weights are dropped. Collective over all sites.
  template <class Use>
  void with_shared_weights(const Use& use) {
    if (!state_.apart) return use();
    show_shared();
    use();
    write_all(&OuterState::Unit::own);
  }

 private:
  struct UnitWeights {
    OuterState::Unit& unit;
    WeightPieces pieces;
  };
  // Calls use(weights) for the units of a fragment, or of all (-1).
  template <class Use>
  void for_each(int fragment, const Use& use);
  int64_t ends_after(const OuterState::OpenRound& round) const;
  int64_t second_phase_after(const OuterState::OpenRound& round) const;
  void begin_round(int fragment, int64_t step);
  void complete_sum(int fragment);
  void end_loaded_rounds(int64_t step);
  bool is_replaced() const;
  void continue_from_shared(OuterRound& round);
  void change_by_updates(int fragment, int64_t step, int sites, OuterRound& round);
  void end_round(int fragment, int64_t step, bool at_once, OuterRound& round);
  void add_squares(int fragment);
  double squares_of_site();
  void write_mixed(const UnitWeights& weights, double mixing);
  void show_shared();
  void write_all(Tensor OuterState::Unit::*array);
  void refresh_parameters();
  Tensor squares() const;
  int fragments() const { return state_.config().fragments; }
  OuterState::OpenRound& open(int fragment) { return state_.open[static_cast<size_t>(fragment)]; }

  const Groups& groups_;
  ParameterStore& store_;
  OuterState& state_;
  Ctx& ctx_;
  StoredWeights weights_;
  const ArenaPlan* plan_ = nullptr;
  std::unique_ptr<UpdateExchange> exchange_;
  std::vector<UnitWeights> units_;
  double seconds_ = 0;  // in after_step() since a round ended
  Buffer scalars_;      // a float64 and a StepScalars
};

}  // namespace trireme
