// Memory of an outer algorithm on one rank: the shared weights, their momentum, the update of this
// site, and the compression of its exchange, in the dtype of gradients.
//
// The weights are exchanged in units, one for each store block of a region, and of each unit the
// ranks of a site have one piece each (parallel/outer/weight_pieces.h). Units belong to fragments:
// layer l of L to fragment l F / L, all that is in no layer to fragment 0.
#pragma once

#include <memory>

#include "parallel/outer/compression_state.h"
#include "parallel/outer/outer_config.h"

namespace trireme {

class OuterState {
 public:
  // Holder of the state: a site that exchanges its pieces with other sites of its job; a site that
  // is a job of its own, whose ranks exchange nothing; the first of these ranks, which sends and
  // receives whole units, and has their `update` only; the hub, which adds whole units.
  enum Holder : uint8_t { kSite, kRemoteSite, kSender, kHub };
  struct Unit {
    Region region;
    int fragment;
    FlatRange range;                // of the store block in the region
    std::vector<FlatRange> pieces;  // by rank of the site that holds the region
    FlatRange piece;                // this rank's
    CompressionState exchange;      // of this rank's piece, between the sites
    // (n) elements of the piece each; momentum and scratch may be absent. `update` holds the update
    // of the site from the beginning of a round, and the sum of those of all sites at its end, or
    // their combination (combines_updates()); `own` the site's own weights in
    // OuterSync::with_shared_weights(). Without overlap both have the same memory.
    Tensor shared = {}, momentum = {}, update = {}, own = {}, scratch = {};
    ShardMap map() const { return ShardMap({piece}); }
    // Elements of `update`; without memory before it is allocated, as in a planning run.
    Tensor update_or_shape() const {
      return update.present() ? update : Tensor(nullptr, exchange.dtype(), Shape{piece.size()});
    }
  };
  static constexpr double kNotFinite = 1, kAbsent = 2;
  // Round of a fragment that has begun and not ended.
  struct OpenRound {
    int64_t begun = -1;   // after this step; -1: none
    bool summed = false;  // the exchange is complete: `update` of the units is the sum
    // By site, 0 or why its update is left out: kNotFinite, kAbsent; then the sum of the squares of
    // the updates. Of this site, and of all once the exchange is complete; the last element is then
    // n |d|^2 + sum over s of |d_s - d|^2, of n updates d_s that count and the d of
    // parallel/outer/outer_algorithms.h: the sum of the squares of the updates if d is their mean.
    // In a loaded checkpoint: of its sites.
    std::vector<double> report;
    // Element of `report` for this site, or for the one whose weights it continues.
    int own = 0;
    // The round has closed without this site: there is no sum, and shared and momentum of all units
    // are the current ones, after step `newest`. The report says that all sites are absent.
    bool replaced = false;
    int64_t newest = -1;
  };

  // Determines sizes only. layout: of the rank in its site, of one rank for a sender or hub; site:
  // of those that exchange pieces, else {}; config.enabled() must be true. layers:
  // of the model. sharded_weights: StoredWeights::sharded. seed: of random choices. InputError if a
  // parameter cannot be compressed in this layout.
  OuterState(const OuterConfig& config, const ParameterStore& store, const Layout& layout,
             GroupCoord site, int64_t layers, bool sharded_weights, uint64_t seed,
             Holder holder = kSite);

  int64_t bytes() const;
  void allocate(Ctx& ctx);  // momentum and residuals of zero
  const OuterConfig& config() const { return config_; }
  std::vector<std::unique_ptr<Unit>>& units() { return units_; }
  const std::vector<std::unique_ptr<Unit>>& units() const { return units_; }

  std::vector<OpenRound> open;  // by fragment
  // Whether the weights of the sites may differ from the shared ones. After loading: whether
  // Unit::own holds the site's own weights.
  bool apart = false;
  // Bytes in host memory by which WholeWeights exchanges the pieces with whole units; not part of
  // bytes().
  int64_t message_bytes = 0;

 private:
  int arrays() const;
  bool has_own() const {
    return config_.overlap_steps > 0 && (holder_ == kSite || holder_ == kRemoteSite);
  }
  void add_unit(const ParameterStore& store, const Layout& layout, GroupCoord site, Region region,
                int block, int64_t layers, uint64_t seed);
  OuterConfig config_;
  Holder holder_;
  bool sharded_weights_;
  DType dtype_;
  std::unique_ptr<Compressor> compressor_;
  std::vector<std::unique_ptr<Unit>> units_;
  Buffer buffer_;
};

// Whether Unit::update is d itself at the end of an exchange, and not the sum of the updates: it is
// combined by Adasum, except in the warm-up, where it is the mean.
bool combines_updates(const OuterConfig& config);
// Factor of Unit::update in d, where the updates of `sites` sites count.
double update_factor(const OuterConfig& config, int sites);

// Changes the shared weights of a unit by d, which is `factor` times its update, in the round after
// step `step`. scalars (kStepScalarsBytes) uint8: scratch.
void change_shared(Ctx& ctx, const OuterConfig& config, const OuterState::Unit& unit,
                   const Tensor& scalars, int64_t step, double factor);

}  // namespace trireme
