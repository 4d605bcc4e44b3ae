// Exchange of updates between sites that are ranks of one job: each rank exchanges its pieces of
// the weights with the ranks of the same number in other sites (CompressedAllReduce). Messages are
// posted, so that they are transferred while the sites train.
#pragma once

#include <memory>

#include "parallel/outer/compressed_all_reduce.h"
#include "parallel/outer/update_exchange.h"

namespace trireme {

class PeerExchange : public UpdateExchange {
 public:
  // peers: Sites::peers(). All arguments must outlive this object. Collective over all sites.
  PeerExchange(Communicator& peers, OuterState& state, Ctx& ctx);
  ~PeerExchange() override;  // waits for messages

  GroupCoord site() const override { return {peers_.size(), peers_.rank()}; }
  void start(int fragment, OuterState::OpenRound& round) override;
  void start_second_phase(int fragment) override;
  void finish(int fragment, OuterState::OpenRound& round) override;
  int64_t sent_bytes(int fragment) const override;

 private:
  struct UnitSum {
    UnitSum(Communicator& peers, OuterState::Unit& its, Ctx& ctx)
        : unit(its), sum(peers, its.exchange, ctx, CompressedAllReduce::kPosted) {}
    OuterState::Unit& unit;
    CompressedAllReduce sum;
  };
  // Element s: left out or not, and the squares of the update of site s.
  struct Reports {
    std::vector<double> values;
    std::vector<Work> messages;
  };
  template <class Use>
  void for_each(int fragment, const Use& use) const;
  void post(Reports& reports);

  Communicator& peers_;
  Ctx& ctx_;
  std::vector<std::unique_ptr<UnitSum>> sums_;
  std::vector<Reports> reports_;  // by fragment
};

}  // namespace trireme
