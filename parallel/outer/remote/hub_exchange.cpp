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
                         std::string join_text, Ctx& ctx)
    : ranks_(ranks),
      site_(site),
      pieces_(pieces),
      whole_(whole),
      join_text_(std::move(join_text)),
      ctx_(ctx),
      weights_(ranks, pieces, store, whole, ctx),
      hub_(hub) {}

HubExchange::~HubExchange() = default;

void HubExchange::fail_lost(const std::string& why) const {
  throw Error(concat("the rendezvous of the sites at ", where(), " is lost (", why,
                     "): start it again, then this site with --resume auto"),
              ExitCode::kLostRank);
}

// Returns the next message of one of two kinds, for this fragment (-1: any). Rank 0 only.
Message HubExchange::await(SiteMessage one, SiteMessage other, int fragment) {
  const auto is_awaited = [&](const Message& m) {
    return (m.is(one) || m.is(other)) &&
           (fragment < 0 || m.number == static_cast<uint64_t>(fragment));
  };
  const Clock::time_point begin = Clock::now();
  for (;;) {
    const auto found = std::ranges::find_if(early_, is_awaited);
    if (found != early_.end()) {
      Message message = std::move(*found);
      auto obsolete = found;
      if (message.is(SiteMessage::kReplace)) {
        obsolete = early_.begin();
        for (auto m = obsolete; m != found; ++m)
          in_snapshot_.push_back(static_cast<int>(m->number));
      }
      early_.erase(obsolete, found + 1);
      waited_ += std::chrono::duration<double>(Clock::now() - begin).count();
      return message;
    }
    if (!loss_.empty()) fail_lost(loss_);
    std::optional<Arrival> arrival = inbox_.wait_until(Clock::now() + kAwaited);
    if (!arrival) continue;
    if (!arrival->message) {
      loss_ = arrival->loss;
      continue;
    }
    if (arrival->message->is(SiteMessage::kRefuse)) {
      const Bytes& text = arrival->message->payload;
      fail_input("the rendezvous at ", where(), " refuses site ", site_.index, ": ",
                 std::string(reinterpret_cast<const char*>(text.data()), text.size()));
    }
    early_.push_back(std::move(*arrival->message));
  }
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

void HubExchange::check_snapshot(const Message& message) const {
  int64_t states = 0;
  for (int f = 0; f < pieces_.config().fragments; ++f) states += whole_->state_bytes(f);
  header_of<SnapshotHeader>(message, states);
}

// Shared weights and momentum of all ranks and fragments = a checked snapshot on rank 0.
// Collective.
void HubExchange::write_snapshot(const Message& message) {
  std::span<const std::byte> rest = message.payload;
  if (leads()) rest = rest.subspan(sizeof(SnapshotHeader));
  for (int f = 0; f < pieces_.config().fragments; ++f) {
    const size_t bytes = leads() ? static_cast<size_t>(whole_->state_bytes(f)) : 0;
    write_state(f, rest.first(bytes));
    rest = rest.subspan(bytes);
  }
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

Message HubExchange::await_start(const States& states) {
  Message message = await(SiteMessage::kDonate, SiteMessage::kStart, -1);
  if (message.is(SiteMessage::kDonate)) {
    for (size_t f = 0; f < states.size(); ++f) channel_->send(SiteMessage::kState, f, states[f]);
    message = await(SiteMessage::kStart, SiteMessage::kStart, -1);
  }
  if (!message.payload.empty()) check_snapshot(message);
  return message;
}

UpdateExchange::Start HubExchange::join(int64_t step) {
  States states;
  for (int f = 0; f < pieces_.config().fragments; ++f) states.push_back(read_state(f));
  Message message;
  agreed(ranks_, [&] {
    if (!leads()) return;
    channel_ = std::make_unique<AsyncChannel>(connect(hub_, site_.index), inbox_, 0);
    send_join(step, states);
    message = await_start(states);
  });
  states.clear();
  Start start;
  start.step = ranks_.all_reduce_scalar(static_cast<int64_t>(message.number), ReduceOp::kMax);
  start.replaced = ranks_.all_reduce_scalar(int64_t{!message.payload.empty()}, ReduceOp::kMax) != 0;
  if (start.replaced) write_snapshot(message);
  since_ = Clock::now();
  waited_ = 0;
  return start;
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
  auto message = std::make_shared<Bytes>(static_cast<size_t>(sent_bytes(fragment)));
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
std::string HubExchange::take_sum(int fragment, const OuterState::OpenRound& round,
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
  return Json{{"report", report}}.dump();
}

std::string HubExchange::take_answer(int fragment, const OuterState::OpenRound& round,
                                     const Message& message) {
  if (message.is(SiteMessage::kSum)) return take_sum(fragment, round, message);
  check_snapshot(message);
  SnapshotHeader header;
  std::memcpy(&header, message.payload.data(), sizeof header);
  return Json{{"newest", header.step}, {"included", std::exchange(in_snapshot_, {})}}.dump();
}

// The snapshot includes the round of this fragment and of those in `included`.
void HubExchange::mark_replaced(int fragment, const std::vector<int>& included, int64_t newest) {
  for (int f = 0; f < pieces_.config().fragments; ++f) {
    OuterState::OpenRound& round = pieces_.open[static_cast<size_t>(f)];
    const bool is_included = f == fragment || std::ranges::count(included, f) > 0;
    if (round.begun < 0 || !(round.summed || is_included)) continue;
    round.summed = round.replaced = true;
    round.newest = newest;
    round.report.assign(round.report.size(), OuterState::kAbsent);
    round.report.back() = 0;
  }
}

void HubExchange::finish(int fragment, OuterState::OpenRound& round) {
  if (ctx_.planning()) return;
  Message message;     // on rank 0
  std::string answer;  // for all ranks
  if (leads()) try {
      message = await(SiteMessage::kSum, SiteMessage::kReplace, fragment);
      answer = take_answer(fragment, round, message);
    } catch (const Error& e) {
      answer = Json{{"lost", e.what()}}.dump();
    }
  const Json json = Json::parse(ranks_.broadcast_string(answer, 0));
  if (json.contains("lost")) throw Error(json["lost"].get<std::string>(), ExitCode::kLostRank);
  if (json.contains("newest")) {
    mark_replaced(fragment, json["included"].get<std::vector<int>>(),
                  json["newest"].get<int64_t>());
    return write_snapshot(message);
  }
  round.report = json["report"].get<std::vector<double>>();
  weights_.scatter(fragment, &OuterState::Unit::update, &OuterState::Unit::update);
}

int64_t HubExchange::sent_bytes(int fragment) const {
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
