#include "parallel/outer/remote/round_book.h"

#include <algorithm>
#include <tuple>

#include "engine/core/error.h"

namespace trireme {

RoundBook::RoundBook(int sites, int fragments, std::chrono::milliseconds timeout)
    : timeout_(timeout) {
  TRIREME_CHECK(sites > 0 && fragments > 0, "rounds of ", sites, " sites and ", fragments,
                " fragments, expected at least one of each");
  TRIREME_CHECK(timeout.count() > 0 && timeout <= std::chrono::hours(24 * 365), "round timeout of ",
                timeout.count(), " ms, expected 1 ms to 365 days");
  sites_.resize(static_cast<size_t>(sites));
  fragments_.resize(static_cast<size_t>(fragments));
}

size_t RoundBook::site_index(int site) const {
  TRIREME_CHECK(site >= 0 && static_cast<size_t>(site) < sites_.size(), "site ", site, " of ",
                sites_.size());
  return static_cast<size_t>(site);
}

size_t RoundBook::fragment_index(int fragment) const {
  TRIREME_CHECK(fragment >= 0 && static_cast<size_t>(fragment) < fragments_.size(), "fragment ",
                fragment, " of ", fragments_.size());
  return static_cast<size_t>(fragment);
}

void RoundBook::join(int site, int64_t step) {
  Site& joining = sites_[site_index(site)];
  TRIREME_CHECK(!joining.is_member, "site ", site, " joins but is a member");
  TRIREME_CHECK(step >= 0, "site ", site, " joins at step ", step);
  joining = {true, step, std::vector<int64_t>(fragments_.size())};
}

void RoundBook::leave(int site) {
  Site& leaving = sites_[site_index(site)];
  TRIREME_CHECK(leaving.is_member, "site ", site, " leaves but is no member");
  leaving.is_member = false;
}

bool RoundBook::is_member(int site) const {
  return site >= 0 && static_cast<size_t>(site) < sites_.size() &&
         sites_[static_cast<size_t>(site)].is_member;
}

RoundBook::Arrival RoundBook::arrive(int site, int fragment, int64_t step, TimePoint now) {
  if (!is_member(site) || fragment < 0 || static_cast<size_t>(fragment) >= fragments_.size())
    return Arrival::kInvalid;
  Site& from = sites_[static_cast<size_t>(site)];
  Fragment& to = fragments_[static_cast<size_t>(fragment)];
  int64_t& sent = from.sent[static_cast<size_t>(fragment)];
  if (step <= from.joined || sent > to.closed) return Arrival::kInvalid;
  if (step <= to.closed) return Arrival::kLate;
  // The site has sent none of the open rounds since it joined: the first of them that expects it is
  // its next one.
  const auto next = to.open.upper_bound(from.joined);
  if (next != to.open.end() && next->first < step) return Arrival::kInvalid;
  Round& round = to.open.try_emplace(step, Round{now + timeout_, {}}).first->second;
  round.arrived.insert(site);
  sent = step;
  return Arrival::kAccepted;
}

std::vector<int> RoundBook::absent_sites(int64_t step, const Round& round) const {
  std::vector<int> absent;
  for (size_t i = 0; i < sites_.size(); ++i) {
    const int site = static_cast<int>(i);
    if (sites_[i].is_member && sites_[i].joined < step && !round.arrived.contains(site))
      absent.push_back(site);
  }
  return absent;
}

RoundBook::Closed RoundBook::close_first(int fragment) {
  Fragment& its = fragments_[static_cast<size_t>(fragment)];
  const auto first = its.open.begin();
  const auto& [step, round] = *first;
  Closed closed{
      fragment, step, {round.arrived.begin(), round.arrived.end()}, absent_sites(step, round)};
  its.closed = step;
  its.open.erase(first);
  return closed;
}

std::vector<RoundBook::Closed> RoundBook::close_due(TimePoint now) {
  std::vector<Closed> closed;
  for (size_t i = 0; i < fragments_.size(); ++i) {
    const auto& open = fragments_[i].open;
    int64_t timed_out = 0;  // step of the last round whose time is up
    for (const auto& [step, round] : open)
      if (now >= round.deadline) timed_out = step;
    while (!open.empty() && (open.begin()->first <= timed_out ||
                             absent_sites(open.begin()->first, open.begin()->second).empty()))
      closed.push_back(close_first(static_cast<int>(i)));
  }
  std::sort(closed.begin(), closed.end(), [](const Closed& a, const Closed& b) {
    return std::tie(a.step, a.fragment) < std::tie(b.step, b.fragment);
  });
  return closed;
}

std::optional<RoundBook::TimePoint> RoundBook::next_deadline() const {
  std::optional<TimePoint> next;
  for (const Fragment& fragment : fragments_)
    for (const auto& [step, round] : fragment.open)
      if (!next || round.deadline < *next) next = round.deadline;
  return next;
}

int64_t RoundBook::closed_step(int fragment) const {
  return fragments_[fragment_index(fragment)].closed;
}

int64_t RoundBook::newest_step() const {
  int64_t newest = 0;
  for (const Fragment& fragment : fragments_) newest = std::max(newest, fragment.closed);
  return newest;
}

void RoundBook::set_closed(int fragment, int64_t step) {
  Fragment& loaded = fragments_[fragment_index(fragment)];
  TRIREME_CHECK(loaded.open.empty(), "fragment ", fragment, " has open rounds");
  TRIREME_CHECK(step >= loaded.closed, "fragment ", fragment, ": closed step ", step, ", was ",
                loaded.closed);
  loaded.closed = step;
}

}  // namespace trireme
