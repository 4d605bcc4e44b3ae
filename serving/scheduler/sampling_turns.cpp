#include "serving/scheduler/sampling_turns.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace trireme {
namespace {

constexpr double kSmoothing = 0.2;

void smooth(double& value, double next) {
  value = value > 0 ? value + kSmoothing * (next - value) : next;
}

std::pair<int, uint64_t> order_of(const Sequence& s) { return {s.priority, s.arrival}; }

}  // namespace

void SamplingTurns::measured(const ChoiceTiming& timing) {
  if (timing.choosing <= 0 || timing.choices <= 0) return;
  smooth(threads_, std::max(timing.choices / timing.choosing, 1.0));
  if (!timing.decodes || timing.sequences <= 0) return;
  const auto i = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(timing.sequences)) - 1);
  Level& level = levels_[std::min(i, levels_.size() - 1)];
  smooth(level.sequences, static_cast<double>(timing.sequences));
  smooth(level.seconds, std::max(timing.step - timing.choosing, 1e-9));
}

// Also sets row_. By the two levels that were measured below so many sequences, the lowest and the
// highest: what is not known yet is estimated too low.
double SamplingTurns::plain_of(int64_t sequences) {
  const auto n = static_cast<double>(sequences);
  const Level *lowest = nullptr, *highest = nullptr;
  for (const Level& level : levels_) {
    if (level.seconds <= 0 || (lowest != nullptr && level.sequences > n)) continue;
    if (lowest == nullptr) lowest = &level;
    highest = &level;
  }
  if (lowest == nullptr) return 0;
  row_ = 0;
  if (highest->sequences > lowest->sequences)
    row_ = std::max(highest->seconds - lowest->seconds, 0.0) /
           (highest->sequences - lowest->sequences);
  return highest->seconds + row_ * (n - highest->sequences) + n * least_ / threads_;
}

// A sequence whose first token is to come is taken for one with the same parameters.
double SamplingTurns::choice_of(const Sequence& s) const {
  if (s.choice_seconds >= 0) return s.choice_seconds;
  const auto alike = of_choice_.find(s.choice.get());
  return alike == of_choice_.end() ? least_ : alike->second;
}

void SamplingTurns::begin(std::span<const Sequence* const> decoding) {
  waiting_.clear();
  left_.clear();
  of_choice_.clear();
  std::map<std::string, Members> tenants;
  least_ = std::numeric_limits<double>::infinity();
  for (const Sequence* s : decoding) {
    tenants[s->tenant].push_back(s);
    if (s->choice_seconds < 0) continue;
    of_choice_.insert_or_assign(s->choice.get(), s->choice_seconds);
    least_ = std::min(least_, s->choice_seconds);
  }
  const double plain = of_choice_.empty() ? 0 : plain_of(std::ssize(decoding));
  bounded_ = plain > 0;
  if (!bounded_) return;
  std::map<std::string, double> extra;  // seconds beyond those of plain choices
  for (const auto& [name, members] : tenants)
    for (const Sequence* s : members) extra[name] += (choice_of(*s) - least_) / threads_;
  const auto costly = std::ranges::count_if(extra, [](const auto& of) { return of.second > 0; });
  room_ = kShare * plain / static_cast<double>(std::max<int64_t>(costly, 1));
  for (const auto& [name, members] : tenants) {
    left_[name] = room_ - extra[name];
    if (tenants.size() == 1 || left_[name] >= 0) continue;
    left_[name] = 0;
    const auto count = static_cast<double>(members.size());
    choose(name, members, room_ + count * (row_ + least_ / threads_));
  }
}

// The members that fit, from the one after the last that had a turn on.
void SamplingTurns::choose(const std::string& name, const Members& members, double room) {
  const size_t count = members.size();
  const auto last = last_.find(name);
  size_t begin = 0;
  if (last != last_.end())
    begin = static_cast<size_t>(
        std::ranges::upper_bound(members, last->second, {},
                                 [](const Sequence* s) { return order_of(*s); }) -
        members.begin());
  size_t taken = 0;
  for (; taken < count; ++taken) {
    const Sequence& s = *members[(begin + taken) % count];
    room -= seconds_of(s);
    if (room < 0 && taken > 0) break;
    last_[name] = order_of(s);
  }
  for (size_t i = taken; i < count; ++i) waiting_.insert(members[(begin + i) % count]);
}

bool SamplingTurns::is_free(const Sequence& s) const {
  return !bounded_ || (left_.size() == 1 && left_.contains(s.tenant));
}

bool SamplingTurns::take(const Sequence& s) {
  if (is_free(s)) return true;
  double& left = left_.try_emplace(s.tenant, room_).first->second;
  const double extra = (choice_of(s) - least_) / threads_;
  if (extra > left && left < room_) return false;
  left -= extra;
  return true;
}

int64_t SamplingTurns::take_prompt_rows(const Sequence& s, int64_t rows) {
  if (is_free(s)) return rows;
  double& left = left_.try_emplace(s.tenant, room_).first->second;
  const double score = s.score_seconds >= 0 ? s.score_seconds : 2 * least_;
  const double of_row = std::max(row_ + score / threads_, 1e-9);
  const double fit = std::max(left / of_row, static_cast<double>(kMinPromptRows));
  rows = static_cast<int64_t>(std::min(static_cast<double>(rows), fit));
  left -= static_cast<double>(rows) * of_row;
  return rows;
}

}  // namespace trireme
