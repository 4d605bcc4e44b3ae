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

}  // namespace

void SamplingTurns::measured(const SamplingTiming& timing) {
  if (timing.sampling <= 0 || timing.sequence_sum <= 0) return;
  smooth(threads_, std::max(timing.sequence_sum / timing.sampling, 1.0));
  if (!timing.decodes || timing.sequences <= 0) return;
  const auto i = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(timing.sequences)) - 1);
  Level& level = levels_[std::min(i, levels_.size() - 1)];
  smooth(level.sequences, static_cast<double>(timing.sequences));
  smooth(level.seconds, std::max(timing.step - timing.sampling, 1e-9));
}

void SamplingTurns::measured_token(const Sequence& s, double seconds) {
  smooth(recent_[s.tenant], seconds);
}

// Expected seconds of a plain step; also sets row_. Extrapolates from the lowest and the highest
// level measured at up to `sequences`: what is not measured yet is underestimated.
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

double SamplingTurns::sampling_seconds_of(const Sequence& s) const {
  if (s.sampling_seconds >= 0) return s.sampling_seconds;
  const auto alike = of_params_.find(s.sampling_params.get());
  if (alike != of_params_.end()) return alike->second;
  const auto recent = recent_.find(s.tenant);
  return recent == recent_.end() ? least_ : std::max(recent->second, least_);
}

void SamplingTurns::begin(std::span<Sequence* const> decoding) {
  waiting_.clear();
  rooms_.clear();
  of_params_.clear();
  ++step_;
  std::map<std::string, Members> tenants;
  least_ = std::numeric_limits<double>::infinity();
  for (Sequence* s : decoding) {
    tenants[s->tenant].push_back(s);
    if (s->turn == 0) s->turn = step_;
    if (s->sampling_seconds < 0) continue;
    of_params_.insert_or_assign(s->sampling_params.get(), s->sampling_seconds);
    least_ = std::min(least_, s->sampling_seconds);
  }
  const double plain = of_params_.empty() ? 0 : plain_of(std::ssize(decoding));
  bounded_ = plain > 0;
  if (!bounded_) return;
  std::map<std::string, double> extra;  // seconds beyond plain sampling
  for (const auto& [name, members] : tenants)
    for (const Sequence* s : members) extra[name] += (sampling_seconds_of(*s) - least_) / threads_;
  const auto costly = std::ranges::count_if(extra, [](const auto& of) { return of.second > 0; });
  room_ = kShare * plain / static_cast<double>(std::max<int64_t>(costly, 1));
  for (auto& [name, members] : tenants) {
    double& left = rooms_[name].left;
    left = room_ - extra[name];
    if (tenants.size() == 1 || left >= 0) continue;
    left = 0;
    choose(members, room_ + static_cast<double>(members.size()) * (row_ + least_ / threads_));
  }
  for (Sequence* s : decoding)
    if (!waits(*s)) s->turn = step_;
}

// Lets the members run that fit, those that have waited longest first; the others wait.
void SamplingTurns::choose(Members& members, double room) {
  std::ranges::stable_sort(members, {}, &Sequence::turn);
  size_t taken = 0;
  for (; taken < members.size(); ++taken) {
    room -= seconds_of(*members[taken]);
    if (room < 0 && taken > 0) break;
  }
  waiting_.insert(members.begin() + static_cast<std::ptrdiff_t>(taken), members.end());
}

bool SamplingTurns::is_free(const Sequence& s) const {
  return !bounded_ || (rooms_.size() == 1 && rooms_.contains(s.tenant));
}

bool SamplingTurns::take(const Sequence& s) {
  if (is_free(s)) return true;
  Room& room = rooms_.try_emplace(s.tenant, Room{room_}).first->second;
  const double extra = (sampling_seconds_of(s) - least_) / threads_;
  room.refused = room.refused || (room.started && extra > room.left);
  if (room.refused) return false;
  room.started = true;
  room.left -= extra;
  return true;
}

int64_t SamplingTurns::take_prompt_rows(const Sequence& s, int64_t rows) {
  if (is_free(s)) return rows;
  double& left = rooms_.try_emplace(s.tenant, Room{room_}).first->second.left;
  const double score = s.score_seconds >= 0 ? s.score_seconds : 2 * least_;
  const double of_row = std::max(row_ + score / threads_, 1e-9);
  const double fit = std::max(left / of_row, static_cast<double>(kMinPromptRows));
  rows = static_cast<int64_t>(std::min(static_cast<double>(rows), fit));
  left -= static_cast<double>(rows) * of_row;
  return rows;
}

}  // namespace trireme
