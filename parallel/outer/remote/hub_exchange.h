// Exchange of updates between sites that are jobs of their own, through a hub (site_hub.h). The
// first rank of the site gathers the updates of all ranks, sends their codes over one connection,
// and gives the decoded sum to the ranks. Codes are those of whole units, so the sums do not depend
// on the layouts of the sites, and are those of PeerExchange, bit for bit.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "parallel/outer/remote/async_channel.h"
#include "parallel/outer/remote/site_messages.h"
#include "parallel/outer/remote/whole_weights.h"
#include "parallel/outer/update_exchange.h"

namespace trireme {

// The end of a wait for the hub, on all ranks of the site: the hub is lost (kLostRank), or the site
// is asked to stop (kStoppedSaved). There are no more rounds.
class WaitEnded : public Error {
 public:
  using Error::Error;
};

struct HubAddress {
  std::string host;
  int port = 0;
  std::string secret;
  double connect_s = 60;  // limit for the first connection
  double timeout_s = 60;  // limit for a hub that is unreachable
  double stop_s = 5;      // limit for waits of a site that is asked to stop
};

class HubExchange : public UpdateExchange {
 public:
  // site: number of sites of the run, and the index of this one. whole: on rank 0 of the site, else
  // nullptr. join_text: the run's configuration, which the hub compares. stops: whether the site is
  // asked to stop. The references must outlive this
  // object. Collective over the site.
  HubExchange(Communicator& ranks, GroupCoord site, OuterState& pieces, const ParameterStore& store,
              WholeModel* whole, const HubAddress& hub, std::string join_text, Ctx& ctx,
              std::function<bool()> stops = {});
  ~HubExchange() override;

  GroupCoord site() const override { return site_; }
  // Rank 0 connects. Error(kLostRank) if there is no hub; InputError with the hub's reason if it
  // refuses the site; WaitEnded.
  Start join(int64_t step) override;
  bool ends_loaded_rounds() const override { return true; }
  void start(int fragment, OuterState::OpenRound& round) override;
  void start_second_phase(int /*fragment*/) override {}
  // WaitEnded, before anything changes.
  void finish(int fragment, OuterState::OpenRound& round) override;
  int64_t sent_bytes(int fragment, int64_t step) const override;

  // Loss of a step, for the hub's report.
  void add_loss(double loss);
  // Leaves the run. at_end: all its steps are done.
  void leave(bool at_end);

 private:
  using Clock = std::chrono::steady_clock;
  using Json = nlohmann::json;
  using States = std::vector<std::shared_ptr<Bytes>>;  // by fragment; null on other ranks than 0
  bool leads() const { return whole_ != nullptr; }
  std::vector<Tensor OuterState::Unit::*> arrays() const;
  std::shared_ptr<Bytes> read_state(int fragment);
  void write_state(int fragment, std::span<const std::byte> state);
  bool has_states(const Message& message) const;
  void write_snapshot();
  void send_join(int64_t step, const States& states);
  std::optional<Message> receive();
  void limit_wait();
  std::string refusal(const Message& message) const;
  Json next_event(const std::function<Json()>& next);
  Json next_start(const States& states);
  Json next_answer(int fragment, const OuterState::OpenRound& round);
  Json take_sum(int fragment, const OuterState::OpenRound& round, const Message& message);
  Json take_replacement(Message message);
  void mark_replaced(int fragment, int64_t newest, const std::optional<std::vector<int>>& included);
  void send_update(int fragment, const OuterState::OpenRound& round);
  std::string where() const { return concat(hub_.host, ":", hub_.port); }

  Communicator& ranks_;
  GroupCoord site_;
  OuterState& pieces_;
  WholeModel* whole_;
  std::string join_text_;
  Ctx& ctx_;
  WholeWeights weights_;
  HubAddress hub_;
  std::function<bool()> stops_;
  std::optional<Clock::time_point> stops_since_;
  bool waits_ = true;  // for messages that have not arrived
  // On rank 0. The messages of the hub take effect in the order in which they arrive: a sum that
  // comes after a snapshot changes its weights.
  Inbox inbox_;
  std::map<int, Message> sums_;  // by fragment, until they are awaited
  Message snapshot_;             // the last one
  std::unique_ptr<AsyncChannel> channel_;
  // Since the last update was sent.
  Clock::time_point since_ = Clock::now();
  double waited_ = 0, losses_ = 0;
  int64_t steps_ = 0;
};

}  // namespace trireme
