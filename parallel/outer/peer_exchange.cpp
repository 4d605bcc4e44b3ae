#include "parallel/outer/peer_exchange.h"

namespace trireme {
namespace {

constexpr int64_t kReportSize = 2;

std::vector<MessagePath> all_paths(int ranks) {
  std::vector<MessagePath> paths;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to)
      if (from != to) paths.push_back({from, to});
  return paths;
}

}  // namespace

PeerExchange::PeerExchange(Communicator& peers, OuterState& state, Ctx& ctx)
    : peers_(peers), ctx_(ctx), reports_(state.open.size()) {
  if (ctx.gpu != nullptr) peers.open_paths(all_paths(peers.size()));
  for (const auto& unit : state.units())
    sums_.push_back(std::make_unique<UnitSum>(peers, *unit, ctx));
}

PeerExchange::~PeerExchange() {
  for (const Reports& reports : reports_)
    for (const Work& message : reports.messages) try {
        message.wait();
      } catch (...) {  // NOLINT: this object has been given up, and the group knows of a lost rank
      }
}

template <class Use>
void PeerExchange::for_each(int fragment, const Use& use) const {
  for (const auto& its : sums_)
    if (its->unit.fragment == fragment) use(*its);
}

void PeerExchange::post(Reports& reports) {
  const auto of = [&](int site) {
    return Tensor(reports.values.data() + kReportSize * site, DType::kF64, Shape{kReportSize});
  };
  reports.messages.clear();
  for (int site = 0; site < peers_.size(); ++site) {
    if (site == peers_.rank()) continue;
    reports.messages.push_back(peers_.post_recv(of(site), site));
    reports.messages.push_back(peers_.post_send(of(peers_.rank()), site));
  }
}

void PeerExchange::start(int fragment, OuterState::OpenRound& round) {
  for_each(fragment, [&](UnitSum& its) { its.sum.start(its.unit.update_or_shape(), round.begun); });
  if (ctx_.planning()) return;
  Reports& reports = reports_[static_cast<size_t>(fragment)];
  reports.values.assign(static_cast<size_t>(kReportSize * peers_.size()), 0.0);
  const auto own = static_cast<size_t>(peers_.rank());
  reports.values[kReportSize * own] = round.report[own];
  reports.values[kReportSize * own + 1] = round.report.back();
  post(reports);
}

void PeerExchange::start_second_phase(int fragment) {
  for_each(fragment, [&](UnitSum& its) { its.sum.start_second_phase(its.unit.update_or_shape()); });
}

void PeerExchange::finish(int fragment, OuterState::OpenRound& round) {
  start_second_phase(fragment);  // of all units before the first one is awaited
  for_each(fragment, [&](UnitSum& its) { its.sum.finish(its.unit.update_or_shape()); });
  if (ctx_.planning()) return;
  const Reports& reports = reports_[static_cast<size_t>(fragment)];
  for (const Work& message : reports.messages) message.wait();
  round.report.back() = 0;
  for (size_t site = 0; site + 1 < round.report.size(); ++site) {
    round.report[site] = reports.values[kReportSize * site];
    round.report.back() += reports.values[kReportSize * site + 1];
  }
}

int64_t PeerExchange::sent_bytes(int fragment) const {
  int64_t bytes = 0;
  for_each(fragment, [&](const UnitSum& its) { bytes += its.unit.exchange.sent_bytes(); });
  return bytes;
}

}  // namespace trireme
