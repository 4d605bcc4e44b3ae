#include "parallel/outer/remote/hub_exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/io/checksum.h"
#include "parallel/agree.h"
#include "parallel/comm/control/records.h"

namespace trireme {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kLeaving{5000};  // for the last message
constexpr auto kAwaited = std::chrono::seconds(1);

std::unique_ptr<ControlChannel> connect(const HubAddress& hub, int site) try {
  const ControlAddress address = ControlAddress::tcp(hub.host, hub.port, hub.secret, kSitePeers);
  auto channel = connect_control_channel(
      address, site, milliseconds(std::llround(hub.connect_s * 1000)), kSitePeers);
  prepare_site_channel(*channel, hub.timeout_s, kMaxHubBytes);
  return channel;
} catch (const InputError&) {
  throw;
} catch (const Error& e) {
  throw Error(concat("site ", site, " cannot join the rendezvous at ", hub.host, ":", hub.port,
                     ": ", e.what(), "; check that it runs there, with the secret of this site"),
              ExitCode::kLostRank);
}

// Event that ends the waits of all ranks.
Json ended(const std::string& why, ExitCode code) { return {{"ended", why}, {"code", code}}; }

template <class Header>
Header header_of(const Message& message, int64_t payload) {
  Header header;
  if (std::ssize(message.payload) < static_cast<int64_t>(sizeof header) ||
      (payload >= 0 &&
       std::ssize(message.payload) - static_cast<int64_t>(sizeof header) != payload))
    throw BadMessage(concat("the hub sent ", message.payload.size(), " bytes, expected ",
                            static_cast<int64_t>(sizeof header) + std::max<int64_t>(0, payload)));
  std::memcpy(&header, message.payload.data(), sizeof header);
  return header;
}

}  // namespace

HubExchange::HubExchange(Communicator& ranks, GroupCoord site, OuterState& pieces,
                         const ParameterStore& store, WholeModel* whole, const HubAddress& hub,
                         std::string join_text, Ctx& ctx, std::function<bool()> stops)
    : ranks_(ranks),
      site_(site),
      pieces_(pieces),
      whole_(whole),
      join_text_(std::move(join_text)),
      ctx_(ctx),
      weights_(ranks, pieces, store, whole, ctx),
      hub_(hub),
      stops_(std::move(stops)) {}

HubExchange::~HubExchange() = default;

// The next message of the hub; absent: none for a while. On rank 0.
std::optional<Message> HubExchange::receive() {
  const Clock::time_point begin = Clock::now();
  std::optional<Arrival> arrival = inbox_.wait_until(waits_ ? begin + kAwaited : begin);
  waited_ += std::chrono::duration<double>(Clock::now() - begin).count();
  if (!arrival) return {};
  if (arrival->message) return std::move(arrival->message);
  throw Error(concat("the rendezvous of the sites at ", where(), " is lost (", arrival->loss,
                     "): start it again, then this site with --resume auto"),
              ExitCode::kLostRank);
}

std::string HubExchange::refusal(const Message& message) const {
  return concat(
      "the rendezvous at ", where(), " refuses site ", site_.index, ": ",
      std::string(reinterpret_cast<const char*>(message.payload.data()), message.payload.size()));
}

// A site that has been asked to stop a while ago takes only what has arrived.
void HubExchange::limit_wait() {
  if (!stops_ || !stops_()) return;
  if (!stops_since_) stops_since_ = Clock::now();
  waits_ = std::chrono::duration<double>(Clock::now() - *stops_since_).count() < hub_.stop_s;
}

// News for all ranks, from next() on rank 0. The others wait in one collective for a few
// seconds at most, however slow the link to the hub is. Collective.
Json HubExchange::next_event(const std::function<Json()>& next) {
  Json event;
  if (leads()) try {
      limit_wait();
      event = next();
      if (!waits_ && event.empty()) event = ended("stopped by request", ExitCode::kStoppedSaved);
    } catch (const Error& e) {
      event = ended(e.what(), stops_since_ ? ExitCode::kStoppedSaved : ExitCode::kLostRank);
    }
  constexpr auto kReplace = Json::error_handler_t::replace;  // bytes that are not UTF-8
  event = Json::parse(ranks_.broadcast_string(event.dump(-1, ' ', false, kReplace), 0));
  if (!event.contains("ended")) return event;
  throw WaitEnded(event["ended"].get<std::string>(), event["code"].get<ExitCode>());
}

// State of a fragment (WholeModel), on rank 0. Collective.
std::shared_ptr<Bytes> HubExchange::read_state(int fragment) {
  std::shared_ptr<Bytes> state;
  std::span<std::byte> rest;
  if (leads()) rest = *(state = std::make_shared<Bytes>(whole_->state_bytes(fragment)));
  for (Tensor OuterState::Unit::*const array : arrays()) {
    weights_.gather(fragment, &OuterState::Unit::update, array);
    if (leads()) rest = whole_->copy_out(fragment, &OuterState::Unit::update, rest);
  }
  return state;
}

// Shared weights and momentum of all ranks = the state on rank 0. Collective.
void HubExchange::write_state(int fragment, std::span<const std::byte> state) {
  if (leads() && std::ssize(state) != whole_->state_bytes(fragment))
    throw BadMessage(concat("the hub sent ", state.size(), " bytes of weights, expected ",
                            whole_->state_bytes(fragment)));
  for (Tensor OuterState::Unit::*const array : arrays()) {
    if (leads()) state = whole_->copy_in(fragment, &OuterState::Unit::update, state);
    weights_.scatter(fragment, &OuterState::Unit::update, array);
  }
}

std::vector<Tensor OuterState::Unit::*> HubExchange::arrays() const {
  if (pieces_.config().momentum > 0)
    return {&OuterState::Unit::shared, &OuterState::Unit::momentum};
  return {&OuterState::Unit::shared};
}

// Whether the message has the states of a snapshot besides its header.
bool HubExchange::has_states(const Message& message) const {
  const bool has = std::ssize(message.payload) > static_cast<int64_t>(sizeof(SnapshotHeader));
  int64_t states = 0;
  for (int f = 0; has && f < pieces_.config().fragments; ++f) states += whole_->state_bytes(f);
  header_of<SnapshotHeader>(message, states);
  return has;
}

// Shared weights and momentum of all ranks and fragments = the last snapshot, which has its states.
// Collective.
void HubExchange::write_snapshot() {
  std::span<const std::byte> rest = snapshot_.payload;
  if (leads()) rest = rest.subspan(sizeof(SnapshotHeader));
  for (int f = 0; f < pieces_.config().fragments; ++f) {
    const size_t bytes = leads() ? static_cast<size_t>(whole_->state_bytes(f)) : 0;
    write_state(f, rest.first(bytes));
    rest = rest.subspan(bytes);
  }
  snapshot_ = {};
}

// The text of a join message: the configuration, and a checksum of the states.
void HubExchange::send_join(int64_t step, const States& states) {
  ChecksumStream sum;
  for (const auto& state : states) sum.update(*state);
  const std::string text =
      Json{{"checksum", std::to_string(sum.value())}, {"config", join_text_}}.dump();
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  channel_->send(SiteMessage::kJoin, static_cast<uint64_t>(step),
                 std::make_shared<Bytes>(bytes, bytes + text.size()));
}

Json HubExchange::next_start(const States& states) {
  std::optional<Message> message = receive();
  if (!message) return Json::object();
  if (message->is(SiteMessage::kRefuse)) return {{"refused", refusal(*message)}};
  if (message->is(SiteMessage::kDonate)) {
    for (size_t f = 0; f < states.size(); ++f) channel_->send(SiteMessage::kState, f, states[f]);
    return {{"donates", true}};
  }
  if (!message->is(SiteMessage::kStart))
    throw BadMessage(concat("the hub sent a message of kind ", message->kind, " before the start"));
  const bool replaced = !message->payload.empty() && has_states(*message);
  const auto step = static_cast<int64_t>(message->number);
  snapshot_ = std::move(*message);
  return {{"step", step}, {"replaced", replaced}};
}

UpdateExchange::Start HubExchange::join(int64_t step) {
  States states;
  for (int f = 0; f < pieces_.config().fragments; ++f) states.push_back(read_state(f));
  agreed(ranks_, [&] {
    if (!leads()) return;
    channel_ = std::make_unique<AsyncChannel>(connect(hub_, site_.index), inbox_, 0);
    send_join(step, states);
  });
  Json start;
  while (!start.contains("step")) {
    start = next_event([&] { return next_start(states); });
    if (!start.contains("refused")) continue;
    agreed(ranks_, [&] {
      if (leads()) fail_input(start["refused"].get<std::string>());
    });
  }
  states.clear();
  const Start from{start["step"].get<int64_t>(), start["replaced"].get<bool>()};
  if (from.replaced) write_snapshot();
  since_ = Clock::now();
  waited_ = 0;
  return from;
}

void HubExchange::send_update(int fragment, const OuterState::OpenRound& round) {
  const std::chrono::duration<double> since = Clock::now() - since_;
  const UpdateHeader header{.step = round.begun,
                            .left_out = round.report[static_cast<size_t>(site_.index)],
                            .squares = round.report.back(),
                            .loss = steps_ > 0 ? losses_ / static_cast<double>(steps_)
                                               : std::numeric_limits<double>::quiet_NaN(),
                            .waited = std::exchange(waited_, 0),
                            .seconds = since.count()};
  since_ = Clock::now();
  losses_ = 0;
  steps_ = 0;
  auto message = std::make_shared<Bytes>(static_cast<size_t>(sent_bytes(fragment, round.begun)));
  std::memcpy(message->data(), &header, sizeof header);
  whole_->encode(fragment, round.begun, std::span(*message).subspan(sizeof header));
  channel_->send(SiteMessage::kUpdate, static_cast<uint64_t>(fragment), message);
}

void HubExchange::start(int fragment, OuterState::OpenRound& round) {
  if (ctx_.planning()) return;
  weights_.gather(fragment, &OuterState::Unit::update, &OuterState::Unit::update);
  if (leads()) send_update(fragment, round);
}

// Update of the whole units = the sum that the hub has sent. Returns what the ranks must know.
Json HubExchange::take_sum(int fragment, const OuterState::OpenRound& round,
                           const Message& message) {
  const int64_t codes = whole_->code_bytes(fragment);
  const auto reports = static_cast<int64_t>(round.report.size());
  const auto header = header_of<SumHeader>(message, reports * int64_t{sizeof(double)} + codes);
  if (header.step != round.begun || header.reports != reports)
    throw BadMessage(concat("the hub sent the sum of step ", header.step, " and ", header.reports,
                            " reports, expected step ", round.begun, " and ", reports));
  std::vector<double> report(static_cast<size_t>(reports));
  const std::span<const std::byte> rest = std::span(message.payload).subspan(sizeof header);
  std::memcpy(report.data(), rest.data(), report.size() * sizeof(double));
  whole_->decode(fragment, round.begun, rest.subspan(report.size() * sizeof(double)), false);
  return {{"report", report}};
}

Json HubExchange::take_replacement(Message message) {
  const bool states = has_states(message);
  std::vector<int> included;
  if (states)
    for (const auto& [fragment, sum] : std::exchange(sums_, {})) included.push_back(fragment);
  SnapshotHeader header;
  std::memcpy(&header, message.payload.data(), sizeof header);
  Json event{{"replaced", static_cast<int>(message.number)},
             {"newest", header.step},
             {"states", states},
             {"included", included}};
  snapshot_ = std::move(message);
  return event;
}

// The next event in a wait for the round of a fragment. On rank 0.
Json HubExchange::next_answer(int fragment, const OuterState::OpenRound& round) {
  if (const auto sum = sums_.extract(fragment); !sum.empty())
    return take_sum(fragment, round, sum.mapped());
  std::optional<Message> message = receive();
  if (!message) return Json::object();
  if (message->is(SiteMessage::kRefuse)) throw Error(refusal(*message));
  const bool is_sum = message->is(SiteMessage::kSum);
  const auto its = static_cast<int>(message->number);
  if (message->number >= pieces_.open.size() || sums_.contains(its) ||
      !(is_sum || message->is(SiteMessage::kReplace)))
    throw BadMessage(concat("the hub sent a message of kind ", message->kind, " and number ",
                            message->number, ", which does not fit here"));
  if (!is_sum) return take_replacement(std::move(*message));
  if (its == fragment) return take_sum(fragment, round, *message);
  sums_[its] = std::move(*message);
  return {{"kept", its}};
}

// The weights of the run include the round of a fragment, and if they have just been sent as
// `included` says, all rounds whose sums came before.
void HubExchange::mark_replaced(int fragment, int64_t newest,
                                const std::optional<std::vector<int>>& included) {
  for (int f = 0; f < pieces_.config().fragments; ++f) {
    OuterState::OpenRound& round = pieces_.open[static_cast<size_t>(f)];
    const bool is_included = included && (round.summed || std::ranges::count(*included, f) > 0);
    if (round.begun < 0 || !(f == fragment || is_included)) continue;
    round.summed = round.replaced = true;
    round.newest = newest;
    round.report.assign(round.report.size(), OuterState::kAbsent);
    round.report.back() = 0;
  }
}

void HubExchange::finish(int fragment, OuterState::OpenRound& round) {
  if (ctx_.planning()) return;
  Json event;
  while (!event.contains("report") && !round.replaced) {
    event = next_event([&] { return next_answer(fragment, round); });
    if (!event.contains("replaced")) continue;
    std::optional<std::vector<int>> included;
    if (event["states"].get<bool>()) included = event["included"].get<std::vector<int>>();
    mark_replaced(event["replaced"].get<int>(), event["newest"].get<int64_t>(), included);
    if (included) write_snapshot();
  }
  if (round.replaced) return;
  round.report = event["report"].get<std::vector<double>>();
  weights_.scatter(fragment, &OuterState::Unit::update, &OuterState::Unit::update);
}

int64_t HubExchange::sent_bytes(int fragment, int64_t /*step*/) const {
  return leads() ? static_cast<int64_t>(sizeof(UpdateHeader)) + whole_->code_bytes(fragment) : 0;
}

void HubExchange::add_loss(double loss) {
  if (!std::isfinite(loss)) return;
  losses_ += loss;
  ++steps_;
}

void HubExchange::leave(bool at_end) {
  if (channel_ == nullptr) return;
  channel_->send(SiteMessage::kLeave, at_end ? 1 : 0);
  channel_->flush(kLeaving);
}

}  // namespace trireme
