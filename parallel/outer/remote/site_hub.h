// Hub of sites that are jobs of their own: adds the updates of a round, applies the outer algorithm
// and sends the sum back (docs/design/outer.md). A site whose update does not arrive in time, or
// that is lost, is left out of the round; it catches up with the current weights, which the hub
// keeps, and a new site begins with them.
//
// The run starts once all sites have joined, or `timeout` after the first one that waits, from the
// weights of the site that is farthest; the others get these if they have others. If this site does
// not send them in time, it is refused, and the next one is asked. The run ends when the last site
// leaves it after its last round; before, the hub waits for sites to return.
//
// A peer that knows the secret may send anything: it is refused, and the run of the others
// continues. Its connection is closed soon after.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "parallel/outer/remote/async_channel.h"
#include "parallel/outer/remote/round_book.h"
#include "parallel/outer/remote/site_messages.h"
#include "parallel/outer/remote/whole_model.h"

namespace trireme {

// Report of a round.
struct HubRound {
  int fragment = 0;
  int64_t step = 0;
  // Sites: with an update, without one, and with one that is left out.
  std::vector<int> arrived = {}, absent = {}, not_finite = {};
  double seconds = 0;  // from the first update to the end
  int64_t received_bytes = 0, sent_bytes = 0;
  double update_norm = 0, drift = 0;  // as in OuterRound
  double loss = 0;                    // mean over the sites that report one; NaN: none does
  double computing = 0;  // least share of a site's time in which it did not wait for rounds
};

// Run that sites agree on.
struct HubRun {
  std::unique_ptr<WholeModel> model;  // allocated, a hub's
  int64_t train_steps = 0;
  double timeout_s = 0;
};

class SiteHub {
 public:
  struct Uses {
    // The run that a site's join text describes. InputError: it is not valid.
    std::function<HubRun(const std::string& config)> open;
    // In which way the run of another site differs from the first one's; empty: in none.
    std::function<std::string(const std::string& first, const std::string& other)> difference;
    std::function<void(const HubRound& round)> report;
    // Note on another site's run that does not refuse it, for the log; empty: none.
    std::function<std::string(const std::string& first, const std::string& other)> note = {};
  };
  // listener: of kSitePeers.
  SiteHub(ControlListener listener, Uses uses);
  ~SiteHub();

  const ControlAddress& address() const { return listener_.address(); }
  // Serves until the run has ended or `stop` is set. Returns whether it has ended.
  bool run(const std::atomic<bool>& stop);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMaxWaiting = 4;  // messages of a peer that the hub has not handled
  enum class Place { kNew, kWaits, kMember, kGone };
  struct Peer {
    int site = 0;
    std::unique_ptr<AsyncChannel> channel;
    Place place = Place::kNew;
    int64_t step = 0;             // of its weights, when it joined or got the last snapshot
    std::string checksum;         // of these, when it joined
    Clock::time_point gone_at{};  // if it is kGone
    // By fragment: step of its last update, and number of rounds that its weights include.
    std::vector<int64_t> sent, rounds;
  };
  struct Update {
    int peer = 0;
    UpdateHeader header;
    Bytes message;
    bool is_bad = false;  // it is decoded to numbers that cannot be added
  };
  struct Round {
    Clock::time_point first;
    std::map<int, Update> updates;  // by site
  };
  void accept_all();
  void handle_arrivals();
  void handle(Arrival arrival);
  void add_peer(ControlListener::ConnectedRank& connected);
  bool make_room();
  void close_gone();
  void handle_message(int number, Peer& peer, Message& message);
  void refuse(int number, const std::string& why);
  void lose(int number, const std::string& why);
  void leave(int number, bool at_end);
  bool open_run(int number, const std::string& config);
  std::string why_refused(int number, const std::string& config) const;
  void join(int number, const Message& message);
  void start_if_due();
  void ask_for_weights();
  void take_weights(int number, const Message& message);
  void make_member(Peer& peer, int64_t step, std::shared_ptr<const Bytes> snapshot);
  int64_t next_round(int64_t after, int fragment) const;
  void take_update(int number, Message& message);
  int64_t replace(Peer& peer, int fragment);
  void close_due();
  void close(const RoundBook::Closed& closed);
  void add_updates(const RoundBook::Closed& closed, Round& round, std::vector<double>& report);
  void add_codes(const RoundBook::Closed& closed, const Round& round);
  double combine_codes(const RoundBook::Closed& closed, const Round& round,
                       const std::vector<double>& report);
  void drop_bad_updates(const RoundBook::Closed& closed, Round& round, std::vector<double>& report);
  std::shared_ptr<Bytes> encode_sum(const RoundBook::Closed& closed,
                                    const std::vector<double>& report);
  int64_t send_sum(const RoundBook::Closed& closed, const Round& round,
                   const std::shared_ptr<const Bytes>& message);
  HubRound describe(const Round& round, const std::vector<double>& report) const;
  int64_t current_step() const;
  std::shared_ptr<const Bytes> snapshot();
  int count(Place place) const;
  bool is_over() const;
  Clock::time_point next_event() const;

  ControlListener listener_;
  Uses uses_;
  std::atomic<bool> ends_ = false;
  Inbox inbox_{kMaxWaiting};
  std::map<int, Peer> peers_;  // by number of their channel, ascending with time
  int next_number_ = 0;
  std::string first_config_;
  int first_site_ = 0;
  HubRun run_;
  std::unique_ptr<RoundBook> book_;
  bool started_ = false, reached_end_ = false;
  Clock::time_point start_by_{}, donate_by_{};
  int donor_ = -1;                                   // number of the peer that sends its weights
  int donated_ = 0;                                  // fragments
  std::map<std::pair<int, int64_t>, Round> rounds_;  // open ones, by fragment and step
  std::vector<int64_t> closed_rounds_;               // number, by fragment
  std::weak_ptr<const Bytes> snapshot_;              // of the current weights, if it is being sent
  int64_t snapshot_step_ = -1;                       // in it
};

}  // namespace trireme
