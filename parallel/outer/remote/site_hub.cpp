#include "parallel/outer/remote/site_hub.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/io/strict_json.h"
#include "engine/observe/log.h"
#include "parallel/comm/control/records.h"
#include "parallel/outer/compressed_all_reduce.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kAccept{200}, kIdle{200};
constexpr milliseconds kEnding{2000};         // for the last messages of the hub
constexpr std::chrono::seconds kRefused{10};  // for a peer to read why it is refused
constexpr double kFirstTimeout = 60;          // of channels before a run has set its own
constexpr size_t kMaxPeers = 1024;
constexpr double kMinDonated = 1 << 17;  // bytes per second of the weights that a run starts from

std::string text_of(const Message& message) {
  return {reinterpret_cast<const char*>(message.payload.data()), message.payload.size()};
}

std::shared_ptr<Bytes> bytes_of(const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return std::make_shared<Bytes>(begin, begin + text.size());
}

milliseconds in_milliseconds(double seconds) { return milliseconds(std::llround(seconds * 1000)); }

}  // namespace

SiteHub::SiteHub(ControlListener listener, Uses uses)
    : listener_(std::move(listener)), uses_(std::move(uses)) {}

SiteHub::~SiteHub() = default;

int SiteHub::count(Place place) const {
  return static_cast<int>(std::ranges::count_if(
      peers_, [&](const auto& entry) { return entry.second.place == place; }));
}

bool SiteHub::is_over() const {
  return reached_end_ && count(Place::kMember) == 0 && count(Place::kWaits) == 0;
}

SiteHub::Clock::time_point SiteHub::next_event() const {
  Clock::time_point next = Clock::now() + kIdle;
  if (book_ == nullptr) return next;
  if (donor_ >= 0)
    next = std::min(next, donate_by_);
  else if (!started_ && count(Place::kWaits) > 0)
    next = std::min(next, start_by_);
  if (const auto deadline = book_->next_deadline()) next = std::min(next, *deadline);
  return next;
}

// Hands new connections to the inbox, in a thread of its own: handshakes do not wait for sums.
void SiteHub::accept_all() {
  while (!ends_) try {
      inbox_.wait_for_room(-1, ends_);
      if (auto connected = listener_.accept(kAccept))
        inbox_.push({.channel = -1, .message = {}, .loss = {}, .connected = std::move(connected)});
    } catch (const std::exception& e) {
      log_warning("cannot accept a site: ", e.what());
      std::this_thread::sleep_for(kAccept);
    }
}

bool SiteHub::run(const std::atomic<bool>& stop) {
  std::thread accepting([this] { accept_all(); });
  const auto end = [&] {
    ends_ = true;
    inbox_.wake();
    accepting.join();
  };
  try {
    while (!stop && !is_over()) {
      handle_arrivals();
      start_if_due();
      close_due();
      close_gone();
    }
  } catch (...) {
    end();
    throw;
  }
  end();
  const Clock::time_point flushed_by = Clock::now() + kEnding;
  for (auto& [number, peer] : peers_)
    peer.channel->flush(std::max(
        milliseconds(0), std::chrono::duration_cast<milliseconds>(flushed_by - Clock::now())));
  return is_over();
}

// Handles all that has arrived, so that a long sum makes no update late that came during it.
void SiteHub::handle_arrivals() {
  const size_t most = static_cast<size_t>(kMaxWaiting) * (peers_.size() + 1);
  Clock::time_point until = next_event();
  for (size_t i = 0; i < most; ++i) {
    std::optional<Arrival> arrival = inbox_.wait_until(until);
    if (!arrival) return;
    handle(std::move(*arrival));
    until = {};
  }
}

// No peer may end the run, whatever it sends.
void SiteHub::handle(Arrival arrival) {
  if (arrival.connected != nullptr) try {
      return add_peer(*arrival.connected);
    } catch (const std::exception& e) {
      return log_warning("site ", arrival.connected->rank, " is not accepted: ", e.what());
    }
  const auto found = peers_.find(arrival.channel);
  if (found == peers_.end()) return;
  if (!arrival.message) return lose(arrival.channel, arrival.loss);
  if (found->second.place == Place::kGone) return;
  try {
    handle_message(arrival.channel, found->second, *arrival.message);
  } catch (const std::exception& e) {
    refuse(arrival.channel, e.what());
  }
}

// Whether another peer may connect: one that has been refused, or else the first that has not
// joined, is closed for it.
bool SiteHub::make_room() {
  if (peers_.size() < kMaxPeers) return true;
  for (const Place place : {Place::kGone, Place::kNew})
    for (const auto& [number, peer] : peers_)
      if (peer.place == place) {
        lose(number, "too many connections");
        return true;
      }
  return false;
}

void SiteHub::close_gone() {
  const Clock::time_point now = Clock::now();
  std::erase_if(peers_, [&](const auto& entry) {
    return entry.second.place == Place::kGone && now >= entry.second.gone_at + kRefused;
  });
}

void SiteHub::add_peer(ControlListener::ConnectedRank& connected) {
  if (!make_room()) fail_input("the run has ", kMaxPeers, " connections already");
  const int site = connected.rank, number = next_number_++;
  prepare_site_channel(*connected.channel, book_ == nullptr ? kFirstTimeout : run_.timeout_s,
                       kMaxJoinBytes);
  auto channel = std::make_unique<AsyncChannel>(std::move(connected.channel), inbox_, number);
  Peer& peer = peers_[number];
  peer.site = site;
  peer.channel = std::move(channel);
}

void SiteHub::handle_message(int number, Peer& peer, Message& message) {
  if (peer.place == Place::kNew && message.is(SiteMessage::kJoin)) return join(number, message);
  if (number == donor_ && message.is(SiteMessage::kState)) return take_weights(number, message);
  if (peer.place == Place::kMember && message.is(SiteMessage::kUpdate))
    return take_update(number, message);
  if (message.is(SiteMessage::kLeave)) return leave(number, message.number == 1);
  throw BadMessage(concat("site ", peer.site, " sent a message of kind ", message.kind,
                          ", which does not fit here"));
}

// The connection stays open until the peer has read the reason and closes it, or kRefused.
void SiteHub::refuse(int number, const std::string& why) {
  const Peer& peer = peers_.at(number);
  log_warning("site ", peer.site, " is refused: ", why);
  peer.channel->send(SiteMessage::kRefuse, 0, bytes_of(why));
  leave(number, false);
}

void SiteHub::leave(int number, bool at_end) {
  Peer& peer = peers_.at(number);
  if (number == donor_) donor_ = -1;
  if (peer.place == Place::kMember) {
    const bool ended = at_end && book_->newest_step() >= run_.train_steps;
    book_->leave(peer.site);
    log_info("site ", peer.site, ended ? " has reached the end" : " leaves the run");
    reached_end_ |= ended;
  }
  peer.place = Place::kGone;
  peer.gone_at = Clock::now();
}

void SiteHub::lose(int number, const std::string& why) {
  const Peer& peer = peers_.at(number);
  if (peer.place != Place::kGone) {
    log_warning("site ", peer.site, " is lost: ", why);
    leave(number, false);
  }
  peers_.erase(number);
}

// Opens the run of the first site that waits. False: the site is refused.
bool SiteHub::open_run(int number, const std::string& config) {
  try {
    HubRun run = uses_.open(config);
    book_ = std::make_unique<RoundBook>(run.model->config().sites, run.model->fragments(),
                                        in_milliseconds(run.timeout_s));
    run_ = std::move(run);
  } catch (const std::exception& e) {
    refuse(number, e.what());
    return false;
  }
  first_config_ = config;
  first_site_ = peers_.at(number).site;
  closed_rounds_.assign(static_cast<size_t>(run_.model->fragments()), 0);
  return true;
}

std::string SiteHub::why_refused(int number, const std::string& config) const {
  const Peer& peer = peers_.at(number);
  const int sites = run_.model->config().sites;
  if (peer.site < 0 || peer.site >= sites)
    return concat("outer.site is ", peer.site, ", and outer.sites ", sites, " of site ",
                  first_site_, "; sites are 0 to ", sites - 1);
  if (const std::string why = uses_.difference(first_config_, config); !why.empty())
    return concat("it differs from site ", first_site_, ": ", why);
  if (std::ranges::any_of(peers_, [&](const auto& entry) {
        const Place place = entry.second.place;
        return entry.second.site == peer.site &&
               (place == Place::kWaits || place == Place::kMember);
      }))
    return concat("site ", peer.site,
                  " is in the run already; give each site its own outer.site, or, if that one has "
                  "just been lost with its machine, start it again in ",
                  run_.timeout_s, " s");
  if (peer.step > run_.train_steps)
    return concat("its weights are those of step ", peer.step, ", and the run has ",
                  run_.train_steps, " steps");
  return {};
}

void SiteHub::join(int number, const Message& message) {
  Peer& peer = peers_.at(number);
  std::string config;
  try {
    const Json text = parse_strict_json<Json>(text_of(message), "join message");
    peer.checksum = text.at("checksum").get<std::string>();
    config = text.at("config").get<std::string>();
  } catch (const std::exception& e) {
    throw BadMessage(
        concat("site ", peer.site, " sent a join message that is not valid: ", e.what()));
  }
  peer.step = static_cast<int64_t>(message.number);
  if (peer.step < 0) throw BadMessage(concat("site ", peer.site, " is at step ", peer.step));
  const bool first = !started_ && count(Place::kWaits) == 0;
  if (book_ == nullptr || (first && config != first_config_))
    if (!open_run(number, config)) return;
  if (const std::string why = why_refused(number, config); !why.empty()) return refuse(number, why);
  if (first) start_by_ = Clock::now() + in_milliseconds(run_.timeout_s);
  const WholeModel& model = *run_.model;
  int64_t max_payload = kMaxJoinBytes;
  for (int f = 0; f < model.fragments(); ++f)
    max_payload = std::max({max_payload, model.state_bytes(f),
                            static_cast<int64_t>(sizeof(UpdateHeader)) + model.code_bytes(f)});
  peer.channel->accept_payloads(max_payload);
  peer.place = Place::kWaits;
  log_info("site ", peer.site, " has joined at step ", peer.step, ", ",
           count(Place::kWaits) + count(Place::kMember), " of ", model.config().sites);
  const std::string note = uses_.note ? uses_.note(first_config_, config) : std::string();
  if (!note.empty())
    log_warning("site ", peer.site, " differs from site ", first_site_, ": ", note);
  if (started_) make_member(peer, current_step(), snapshot());
}

void SiteHub::start_if_due() {
  if (started_ || book_ == nullptr) return;
  if (donor_ >= 0 && Clock::now() >= donate_by_)
    refuse(donor_, "it has not sent its weights in time");
  const int waiting = count(Place::kWaits);
  if (donor_ >= 0 || waiting == 0) return;
  if (waiting == run_.model->config().sites || Clock::now() >= start_by_) ask_for_weights();
}

// Asks the site that is farthest, of several the first one.
void SiteHub::ask_for_weights() {
  for (const auto& [number, peer] : peers_) {
    if (peer.place != Place::kWaits) continue;
    const Peer* const best = donor_ >= 0 ? &peers_.at(donor_) : nullptr;
    if (best == nullptr || peer.step > best->step ||
        (peer.step == best->step && peer.site < best->site))
      donor_ = number;
  }
  donated_ = 0;
  double bytes = 0;
  for (int f = 0; f < run_.model->fragments(); ++f)
    bytes += static_cast<double>(run_.model->state_bytes(f));
  donate_by_ = Clock::now() + in_milliseconds(run_.timeout_s + bytes / kMinDonated);
  peers_.at(donor_).channel->send(SiteMessage::kDonate, 0);
}

void SiteHub::take_weights(int number, const Message& message) {
  const Peer& donor = peers_.at(number);
  WholeModel& model = *run_.model;
  const auto fragment = static_cast<int>(message.number);
  if (message.number != static_cast<uint64_t>(donated_) ||
      std::ssize(message.payload) != model.state_bytes(fragment))
    throw BadMessage(concat("site ", donor.site, " sent ", message.payload.size(),
                            " bytes of weights that do not fit"));
  const auto rest = model.copy_in(fragment, &OuterState::Unit::shared, message.payload);
  if (!rest.empty()) model.copy_in(fragment, &OuterState::Unit::momentum, rest);
  if (++donated_ < model.fragments()) return;
  donor_ = -1;
  started_ = true;
  for (int f = 0; f < model.fragments(); ++f) book_->set_closed(f, donor.step);
  log_info("the run starts at step ", donor.step, " with ", count(Place::kWaits), " of ",
           model.config().sites, " sites");
  const std::string checksum = donor.checksum;
  const int64_t step = donor.step;
  for (auto& [other, peer] : peers_) {
    if (peer.place != Place::kWaits) continue;
    const bool has_weights = peer.step == step && peer.checksum == checksum;
    make_member(peer, step, has_weights ? nullptr : snapshot());
  }
}

// Step from which a site trains with the current weights: the newest one, or the one before while
// only some fragments have closed a round that all have after this step, so that the site takes
// part in those of the others. A run may end there.
int64_t SiteHub::current_step() const {
  const OuterConfig& config = run_.model->config();
  const int64_t newest = book_->newest_step();
  if (!config.is_joint(newest, run_.train_steps)) return newest;
  bool closed = true;
  for (int f = 0; f < config.fragments; ++f) closed = closed && book_->closed_step(f) == newest;
  return closed ? newest : newest - 1;
}

// Snapshot of the current weights. Several peers share it.
std::shared_ptr<const Bytes> SiteHub::snapshot() {
  const SnapshotHeader header{current_step()};
  if (std::shared_ptr<const Bytes> current = snapshot_.lock();
      current != nullptr && snapshot_step_ == header.step)
    return current;
  snapshot_step_ = header.step;
  const WholeModel& model = *run_.model;
  int64_t states = 0;
  for (int f = 0; f < model.fragments(); ++f) states += model.state_bytes(f);
  auto bytes = std::make_shared<Bytes>(sizeof header + static_cast<size_t>(states));
  std::memcpy(bytes->data(), &header, sizeof header);
  std::span<std::byte> rest = std::span(*bytes).subspan(sizeof header);
  for (int f = 0; f < model.fragments(); ++f) {
    rest = model.copy_out(f, &OuterState::Unit::shared, rest);
    if (model.config().momentum > 0) rest = model.copy_out(f, &OuterState::Unit::momentum, rest);
  }
  snapshot_ = bytes;
  return bytes;
}

// snapshot: null if the site has these weights.
void SiteHub::make_member(Peer& peer, int64_t step, std::shared_ptr<const Bytes> snapshot) {
  peer.channel->send(SiteMessage::kStart, static_cast<uint64_t>(step), std::move(snapshot));
  peer.place = Place::kMember;
  peer.step = step;
  peer.sent.assign(closed_rounds_.size(), 0);
  peer.rounds = closed_rounds_;
  book_->join(peer.site, step);
}

// Step of the first round of a fragment after a step; the last one has no next one.
int64_t SiteHub::next_round(int64_t after, int fragment) const {
  const OuterConfig& config = run_.model->config();
  if (after < config.warmup_steps) return std::min(run_.train_steps, after + 1);
  const int64_t phase = fragment * config.period / config.fragments;
  const int64_t periods = after < phase ? 0 : (after - phase) / config.period + 1;
  return std::min(run_.train_steps, phase + periods * config.period);
}

void SiteHub::take_update(int number, Message& message) {
  Peer& peer = peers_.at(number);
  const WholeModel& model = *run_.model;
  const auto fragment = static_cast<int>(message.number);
  UpdateHeader header;
  if (message.number >= static_cast<uint64_t>(model.fragments()) ||
      std::ssize(message.payload) !=
          static_cast<int64_t>(sizeof header) + model.code_bytes(fragment))
    throw BadMessage(concat("site ", peer.site, " sent an update of ", message.payload.size(),
                            " bytes of fragment ", message.number, ", which does not fit"));
  std::memcpy(&header, message.payload.data(), sizeof header);
  // One result for each fragment and a start wait at most for a site that reads them.
  if (std::ssize(closed_rounds_) + 2 < static_cast<int64_t>(peer.channel->unsent()))
    throw BadMessage(concat("site ", peer.site, " sends updates but reads no results"));
  int64_t& sent = peer.sent[message.number];
  // Sent before the site has got the snapshot.
  const bool is_old = header.step <= peer.step;
  if (!is_old && (!(header.squares >= 0 && header.squares < kMaxEncodedSquares) ||
                  header.step != next_round(std::max(peer.step, sent), fragment)))
    throw BadMessage(concat("site ", peer.site, " sent an update of step ", header.step,
                            " with squares ", header.squares, ", which does not fit"));
  sent = std::max(sent, header.step);
  if (is_old) return void(replace(peer, fragment));
  const Clock::time_point now = Clock::now();
  switch (book_->arrive(peer.site, fragment, header.step, now)) {
    case RoundBook::Arrival::kInvalid:
      throw BadMessage(
          concat("site ", peer.site, " sent an update of step ", header.step, " out of order"));
    case RoundBook::Arrival::kLate: return void(replace(peer, fragment));
    case RoundBook::Arrival::kAccepted: break;
  }
  Round& round = rounds_.try_emplace({fragment, header.step}, Round{now, {}}).first->second;
  round.updates[peer.site] = {number, header, std::move(message.payload)};
}

// The round of a site has closed without it: it continues from the current weights, which it gets
// unless they have been sent to it for another fragment. Returns the bytes that are sent.
int64_t SiteHub::replace(Peer& peer, int fragment) {
  std::shared_ptr<const Bytes> message;
  if (peer.rounds == closed_rounds_) {
    const SnapshotHeader header{current_step()};
    const auto* const bytes = reinterpret_cast<const std::byte*>(&header);
    message = std::make_shared<Bytes>(bytes, bytes + sizeof header);
  } else {
    message = snapshot();
  }
  peer.channel->send(SiteMessage::kReplace, static_cast<uint64_t>(fragment), message);
  peer.step = current_step();
  peer.rounds = closed_rounds_;
  book_->leave(peer.site);
  book_->join(peer.site, peer.step);
  log_warning("site ", peer.site, " was late for a round of fragment ", fragment,
              " and continues from the weights of step ", peer.step);
  return std::ssize(*message);
}

void SiteHub::close_due() {
  if (book_ == nullptr) return;
  const Clock::time_point now = Clock::now();  // of all rounds that close, however long it takes
  for (;;) {                                   // a site that is replaced is expected no longer
    const std::vector<RoundBook::Closed> due = book_->close_due(now);
    if (due.empty()) return;
    for (const RoundBook::Closed& closed : due) close(closed);
  }
}

// Combines the updates that count. Returns what is added to the squares of the report.
double SiteHub::combine_codes(const RoundBook::Closed& closed, const Round& round,
                              const std::vector<double>& report) {
  WholeModel& model = *run_.model;
  if (!model.combines()) {
    add_codes(closed, round);
    return 0;
  }
  std::vector<std::span<const std::byte>> codes(report.size() - 1);
  for (const auto& [site, update] : round.updates)
    if (const auto s = static_cast<size_t>(site); report[s] == 0)
      codes[s] = std::span(update.message).subspan(sizeof(UpdateHeader));
  return model.combine(closed.fragment, closed.step, codes);
}

// Adds the updates in the order of the sites.
void SiteHub::add_codes(const RoundBook::Closed& closed, const Round& round) {
  bool add = false;
  for (const auto& [site, update] : round.updates)
    if (!update.is_bad)
      run_.model->decode(closed.fragment, closed.step,
                         std::span(update.message).subspan(sizeof(UpdateHeader)),
                         std::exchange(add, true));
  if (!add) run_.model->zero_updates(closed.fragment);
}

// Marks the updates that are not finite, or so large that a sum might not be.
void SiteHub::drop_bad_updates(const RoundBook::Closed& closed, Round& round,
                               std::vector<double>& report) {
  const double max_norm = std::sqrt(kMaxEncodedSquares) / static_cast<double>(report.size());
  for (auto& [site, update] : round.updates) {
    run_.model->decode(closed.fragment, closed.step,
                       std::span(update.message).subspan(sizeof(UpdateHeader)), false);
    update.is_bad = !(std::sqrt(run_.model->squares(closed.fragment)) < max_norm);
    if (update.is_bad) report[static_cast<size_t>(site)] = OuterState::kNotFinite;
  }
}

// Determines the report that all sites get.
void SiteHub::add_updates(const RoundBook::Closed& closed, Round& round,
                          std::vector<double>& report) {
  for (const auto& [site, update] : round.updates)
    report[static_cast<size_t>(site)] = update.header.left_out != 0 ? OuterState::kNotFinite : 0;
  double squares = combine_codes(closed, round, report);
  if (!(run_.model->squares(closed.fragment) < kMaxEncodedSquares)) {
    drop_bad_updates(closed, round, report);
    squares = combine_codes(closed, round, report);
  }
  report.back() = squares;
  for (const auto& [site, update] : round.updates)
    if (!update.is_bad) report.back() += update.header.squares;
}

// Message of the sum. The model has what the sites will have.
std::shared_ptr<Bytes> SiteHub::encode_sum(const RoundBook::Closed& closed,
                                           const std::vector<double>& report) {
  WholeModel& model = *run_.model;
  const SumHeader header{closed.step, std::ssize(report)};
  const size_t reports = report.size() * sizeof(double);
  auto message = std::make_shared<Bytes>(sizeof header + reports +
                                         static_cast<size_t>(model.code_bytes(closed.fragment)));
  std::memcpy(message->data(), &header, sizeof header);
  std::memcpy(message->data() + sizeof header, report.data(), reports);
  const auto code = std::span(*message).subspan(sizeof header + reports);
  model.encode(closed.fragment, closed.step, code);
  model.decode(closed.fragment, closed.step, code, false);
  return message;
}

// Sends the result to the sites of a round that has changed the weights. Returns its bytes. A site
// that lacks the sum of an earlier round, because it joined while that was open, gets a snapshot.
int64_t SiteHub::send_sum(const RoundBook::Closed& closed, const Round& round,
                          const std::shared_ptr<const Bytes>& message) {
  const auto fragment = static_cast<size_t>(closed.fragment);
  int64_t bytes = 0;
  for (const auto& [site, update] : round.updates) {
    const auto found = peers_.find(update.peer);
    if (found == peers_.end() || found->second.place != Place::kMember) continue;
    Peer& peer = found->second;
    if (peer.rounds[fragment] + 1 < closed_rounds_[fragment]) {
      bytes += replace(peer, closed.fragment);
      continue;
    }
    peer.channel->send(SiteMessage::kSum, fragment, message);
    peer.rounds[fragment] = closed_rounds_[fragment];
    bytes += std::ssize(*message);
  }
  return bytes;
}

void SiteHub::close(const RoundBook::Closed& closed) {
  const auto found = rounds_.find({closed.fragment, closed.step});
  TRIREME_CHECK(found != rounds_.end(), "a round without updates closes");
  Round& round = found->second;
  WholeModel& model = *run_.model;
  std::vector<double> report(static_cast<size_t>(model.config().sites) + 1, OuterState::kAbsent);
  report.back() = 0;
  add_updates(closed, round, report);
  const std::shared_ptr<const Bytes> message = encode_sum(closed, report);
  HubRound described = describe(round, report);
  described.fragment = closed.fragment;
  described.step = closed.step;
  if (const auto sites = std::count(report.begin(), report.end() - 1, 0.0); sites > 0) {
    const double factor = update_factor(model.config(), static_cast<int>(sites));
    const double squares = model.squares(closed.fragment) * factor * factor;
    described.update_norm = std::sqrt(squares);
    described.drift =
        std::sqrt(std::max(0.0, report.back() / static_cast<double>(sites) - squares));
    model.change_shared(closed.fragment, closed.step, factor);
  }
  ++closed_rounds_[static_cast<size_t>(closed.fragment)];
  snapshot_.reset();
  described.sent_bytes = send_sum(closed, round, message);
  rounds_.erase(found);
  uses_.report(described);
}

HubRound SiteHub::describe(const Round& round, const std::vector<double>& report) const {
  HubRound out{.seconds = std::chrono::duration<double>(Clock::now() - round.first).count(),
               .computing = 1};
  for (int site = 0; site + 1 < std::ssize(report); ++site) {
    const double its = report[static_cast<size_t>(site)];
    (its == OuterState::kAbsent ? out.absent : out.arrived).push_back(site);
    if (its == OuterState::kNotFinite) out.not_finite.push_back(site);
  }
  double losses = 0;
  int with_loss = 0;
  for (const auto& [site, update] : round.updates) {
    out.received_bytes += std::ssize(update.message);
    const UpdateHeader& header = update.header;
    if (std::isfinite(header.loss)) {
      losses += header.loss;
      ++with_loss;
    }
    if (header.seconds > 0 && header.waited >= 0)
      out.computing = std::clamp(1 - header.waited / header.seconds, 0.0, out.computing);
  }
  out.loss = with_loss > 0 ? losses / with_loss : std::numeric_limits<double>::quiet_NaN();
  return out;
}

}  // namespace trireme
