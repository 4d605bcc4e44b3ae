// Exchange of updates between sites that are ranks of one job: each rank exchanges its pieces of
// the weights with the ranks of the same number in other sites (CompressedAllReduce). Messages are
// posted, so that they are transferred while the sites train.
//
// To combine updates (combines_updates()), the ranks of a site add their dot products when the
// second phase starts, and the first ranks of the sites exchange the sums: the sites wait for one
// another there. Each of S sites sends (S - 1) S (S + 1) / 2 float64 for each parameter tensor.
#pragma once

#include <memory>

#include "parallel/outer/compressed_all_reduce.h"
#include "parallel/outer/sites.h"
#include "parallel/outer/update_combiner.h"
#include "parallel/outer/update_exchange.h"

namespace trireme {

class PeerExchange : public UpdateExchange {
 public:
  // All arguments must outlive this object. Collective over all sites.
  PeerExchange(const Sites& sites, const ParameterStore& store, OuterState& state, Ctx& ctx);
  ~PeerExchange() override;  // waits for messages

  GroupCoord site() const override { return {peers_.size(), peers_.rank()}; }
  void start(int fragment, OuterState::OpenRound& round) override;
  void start_second_phase(int fragment) override;
  void finish(int fragment, OuterState::OpenRound& round) override;
  int64_t sent_bytes(int fragment, int64_t step) const override;

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
    int64_t step = 0;              // after which the round began
    bool in_second_phase = false;  // of combined updates
    double squares = 0;            // UpdateCombiner::squares_of_combination()
  };
  template <class Use>
  void for_each(int fragment, const Use& use) const;
  void post(Reports& reports);
  void await(const std::vector<Work>& messages) const;
  size_t own_site() const { return static_cast<size_t>(peers_.rank()); }
  bool averages(int64_t step) const { return step <= config_.warmup_steps; }
  void combine(int fragment, Reports& reports);
  void add_products_of_all();

  Communicator &peers_, &ranks_;
  const OuterConfig& config_;
  Ctx& ctx_;
  std::vector<std::unique_ptr<UnitSum>> sums_;
  std::vector<Reports> reports_;              // by fragment
  std::unique_ptr<UpdateCombiner> combiner_;  // null: updates are added
  // Products of dots on their way between the first ranks of the sites.
  std::vector<std::vector<double>> products_of_sites_;
  std::vector<Work> product_messages_;
};

}  // namespace trireme
