#include "parallel/outer/sites.h"

namespace trireme {

SitePosition site_position(int ranks, int sites, int rank) {
  TRIREME_CHECK(sites >= 1 && ranks % sites == 0, sites, " sites of ", ranks, " ranks");
  const int size = ranks / sites;
  return {{sites, rank / size}, rank % size};
}

Sites::Sites(Communicator& all, int count) : ranks_(&all) {
  const SitePosition mine = site_position(all.size(), count, all.rank());
  position_ = mine.site;
  if (count == 1) return;
  peers_ = all.split(mine.rank, position_.index, concat("rank ", mine.rank, " of the sites"));
  own_ = all.split(position_.index, mine.rank, concat("site ", position_.index));
  ranks_ = own_.get();
}

}  // namespace trireme
