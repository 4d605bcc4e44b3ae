#include "parallel/outer/peer_exchange.h"

#include <algorithm>
#include <utility>

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

PeerExchange::PeerExchange(const Sites& sites, const ParameterStore& store, OuterState& state,
                           Ctx& ctx)
    : peers_(sites.peers()),
      ranks_(sites.ranks()),
      config_(state.config()),
      ctx_(ctx),
      reports_(state.open.size()) {
  if (ctx.gpu != nullptr) peers_.open_paths(all_paths(peers_.size()));
  for (const auto& unit : state.units())
    sums_.push_back(std::make_unique<UnitSum>(peers_, *unit, ctx));
  if (combines_updates(config_))
    combiner_ = std::make_unique<UpdateCombiner>(store, state, peers_.size(), &ranks_, ctx);
}

PeerExchange::~PeerExchange() {
  const auto end = [](const std::vector<Work>& messages) {
    for (const Work& message : messages) try {
        message.wait();
      } catch (...) {  // NOLINT: this object has been given up, and the group knows of a lost rank
      }
  };
  for (const Reports& reports : reports_) end(reports.messages);
  end(product_messages_);
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

void PeerExchange::await(const std::vector<Work>& messages) const {
  const TimeScope waiting(ctx_.profile, TimeCategory::kCommunication);
  for (const Work& message : messages) message.wait();
}

void PeerExchange::start(int fragment, OuterState::OpenRound& round) {
  for_each(fragment, [&](UnitSum& its) { its.sum.start(its.unit.update_or_shape(), round.begun); });
  Reports& reports = reports_[static_cast<size_t>(fragment)];
  reports.step = round.begun;
  reports.in_second_phase = false;
  reports.values.assign(static_cast<size_t>(kReportSize * peers_.size()), 0.0);
  if (ctx_.planning()) return;
  const size_t own = own_site();
  reports.values[kReportSize * own] = round.report[own];
  reports.values[kReportSize * own + 1] = round.report.back();
  post(reports);
}

// The combiner's products of all ranks of all sites, added in the order of the sites.
void PeerExchange::add_products_of_all() {
  std::vector<double>& products = combiner_->products();
  const auto tensor_of = [](std::vector<double>& values) {
    return Tensor(values.data(), DType::kF64, Shape{std::ssize(values)});
  };
  if (products.empty()) return;
  ranks_.all_reduce(tensor_of(products));
  if (ranks_.rank() == 0) {
    products_of_sites_.assign(static_cast<size_t>(peers_.size()), products);
    product_messages_.clear();
    for (int site = 0; site < peers_.size(); ++site) {
      if (site == peers_.rank()) continue;
      std::vector<double>& of_site = products_of_sites_[static_cast<size_t>(site)];
      product_messages_.push_back(peers_.post_recv(tensor_of(of_site), site));
      product_messages_.push_back(
          peers_.post_send(tensor_of(products_of_sites_[own_site()]), site));
    }
    await(product_messages_);
    std::ranges::fill(products, 0.0);
    for (const std::vector<double>& of_site : products_of_sites_)
      for (size_t i = 0; i < products.size(); ++i) products[i] += of_site[i];
  }
  ranks_.broadcast(tensor_of(products), 0);
}

void PeerExchange::combine(int fragment, Reports& reports) {
  if (std::exchange(reports.in_second_phase, true)) return;
  await(reports.messages);
  std::vector<bool> counts;
  for (int site = 0; site < peers_.size(); ++site)
    counts.push_back(reports.values[static_cast<size_t>(kReportSize * site)] == 0);
  const auto codes_of = [](const UnitSum& its) {
    return [&its](int site) { return its.sum.code(site); };
  };
  combiner_->begin(fragment, counts, reports.step);
  if (averages(reports.step) && !ctx_.planning()) {
    combiner_->weigh_equally();
  } else {
    for_each(fragment, [&](UnitSum& its) {
      its.sum.finish_first_phase();
      combiner_->add_products(its.unit, codes_of(its));
    });
    if (!ctx_.planning()) add_products_of_all();
    combiner_->weigh_by_products();
  }
  reports.squares = combiner_->squares_of_combination();
  for_each(fragment, [&](UnitSum& its) {
    its.sum.start_second_phase(its.unit.update_or_shape(),
                               [&] { combiner_->combine(its.unit, codes_of(its)); });
  });
}

void PeerExchange::start_second_phase(int fragment) {
  if (combiner_ != nullptr) return combine(fragment, reports_[static_cast<size_t>(fragment)]);
  for_each(fragment, [&](UnitSum& its) { its.sum.start_second_phase(its.unit.update_or_shape()); });
}

void PeerExchange::finish(int fragment, OuterState::OpenRound& round) {
  start_second_phase(fragment);  // of all units before the first one is awaited
  for_each(fragment, [&](UnitSum& its) { its.sum.finish(its.unit.update_or_shape()); });
  if (ctx_.planning()) return;
  const Reports& reports = reports_[static_cast<size_t>(fragment)];
  await(reports.messages);
  round.report.back() = reports.squares;
  for (size_t site = 0; site + 1 < round.report.size(); ++site) {
    round.report[site] = reports.values[kReportSize * site];
    round.report.back() += reports.values[kReportSize * site + 1];
  }
}

int64_t PeerExchange::sent_bytes(int fragment, int64_t step) const {
  int64_t bytes = 0;
  for_each(fragment, [&](const UnitSum& its) { bytes += its.unit.exchange.sent_bytes(); });
  if (combiner_ != nullptr && ranks_.rank() == 0 && !averages(step))
    bytes += (peers_.size() - 1) * combiner_->product_bytes(fragment);
  return bytes;
}

}  // namespace trireme
