// Time profile of a step: seconds per category, added up by RAII scopes around ops.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace trireme {

enum class TimeCategory { kGemm, kAttention, kLoss, kOptimizer, kCommunication, kData, kOther };
inline constexpr size_t kTimeCategories = 7;
const char* time_category_name(TimeCategory category);

class Profile {
 public:
  void add(TimeCategory category, double seconds) {
    seconds_[static_cast<size_t>(category)] += seconds;
  }
  double seconds(TimeCategory category) const { return seconds_[static_cast<size_t>(category)]; }
  void clear() { seconds_ = {}; }

 private:
  std::array<double, kTimeCategories> seconds_{};
};

// Adds the scope's wall time to a category; a null profile has no effect. The time of nested scopes
// is counted in each of them.
class TimeScope {
 public:
  TimeScope(Profile* profile, TimeCategory category)
      : profile_(profile), category_(category), start_(std::chrono::steady_clock::now()) {}
  ~TimeScope() {
    if (profile_ == nullptr) return;
    const std::chrono::duration<double> d = std::chrono::steady_clock::now() - start_;
    profile_->add(category_, d.count());
  }
  TimeScope(const TimeScope&) = delete;
  TimeScope& operator=(const TimeScope&) = delete;

 private:
  Profile* profile_;
  TimeCategory category_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace trireme
