// Exchange of the updates of sites, by fragment of the weights (parallel/outer/outer_state.h).
#pragma once

#include "parallel/outer/outer_state.h"

namespace trireme {

class UpdateExchange {
 public:
  virtual ~UpdateExchange() = default;
  virtual GroupCoord site() const = 0;

  struct Start {
    int64_t step = 0;       // to continue from
    bool replaced = false;  // shared and momentum of all units are those of the run
  };
  // Called once, when Unit::shared and Unit::momentum are those of a site after `step` steps.
  // Collective over the site.
  virtual Start join(int64_t step) { return {step, false}; }

  // Whether rounds that were open in a checkpoint end before join(), because the others do not know
  // of them.
  virtual bool ends_loaded_rounds() const { return false; }

  // Starts to send the updates in Unit::update of the fragment's units, which are scratch from here
  // on, and the report of this site: round.report has only its elements. Returns without waiting
  // for other sites. Collective over the site, as the next two.
  virtual void start(int fragment, OuterState::OpenRound& round) = 0;
  // Starts to send what depends on the updates of the others; waits for these. The order in which
  // ranks call start() and this of all fragments must be the same.
  virtual void start_second_phase(int fragment) = 0;
  // Waits for the end of the exchange: Unit::update is the sum over the sites, or their combination
  // (combines_updates()), and round.report that of all sites.
  virtual void finish(int fragment, OuterState::OpenRound& round) = 0;
  // Bytes that this rank sends to other sites in the exchange of a fragment whose round begins
  // after step `step`.
  virtual int64_t sent_bytes(int fragment, int64_t step) const = 0;
};

}  // namespace trireme
