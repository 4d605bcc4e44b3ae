// Sites: equal parts of a job that train the same model apart, on different samples, and exchange
// updates in rounds (parallel/outer/outer_sync.h).
#pragma once

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/layout.h"

namespace trireme {

// Site of a rank and the rank's number inside the site. Sites are consecutive ranks.
struct SitePosition {
  GroupCoord site;
  int rank = 0;
};
SitePosition site_position(int ranks, int sites, int rank);

class Sites {
 public:
  // Collective over `all`, whose number of ranks must be a multiple of `count`, at least 1. `all`
  // must outlive this object.
  Sites(Communicator& all, int count);
  const GroupCoord& position() const { return position_; }
  Communicator& ranks() const { return *ranks_; }  // of this site
  // With several sites: ranks with the same number in all of them, in the order of the sites.
  Communicator& peers() const { return *peers_; }

 private:
  GroupCoord position_;
  std::unique_ptr<Communicator> own_, peers_;  // null: one site
  Communicator* ranks_;
};

}  // namespace trireme
