// Byte budgets of a process: of all requests, and of those of one API key within it. Shares are
// counted by what holds them: whichever way a request dies, its share goes back with it. Any thread
// may use all of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace trireme {

class ByteBudget {
 public:
  // whole: what this one is a part of; its bytes are taken there as well.
  explicit ByteBudget(int64_t bytes, std::shared_ptr<ByteBudget> whole = {})
      : left_(bytes), whole_(std::move(whole)) {}
  // False: there are not so many left, and nothing is taken.
  bool take(int64_t bytes) {
    if (!take_own(bytes)) return false;
    if (whole_ == nullptr || whole_->take(bytes)) return true;
    left_ += bytes;
    return false;
  }
  void give_back(int64_t bytes) {
    left_ += bytes;
    if (whole_ != nullptr) whole_->give_back(bytes);
  }
  int64_t left() const { return left_; }

 private:
  bool take_own(int64_t bytes) {
    int64_t left = left_;
    do {
      if (left < bytes) return false;
    } while (!left_.compare_exchange_weak(left, left - bytes));
    return true;
  }

  std::atomic<int64_t> left_;
  const std::shared_ptr<ByteBudget> whole_;
};

// One budget for all, and within it one for each tenant, so that no API key takes it from the
// others. Requests without a key (tenant "") are those of the only user, who may have all.
class TenantBudgets {
 public:
  TenantBudgets(int64_t all, int64_t of_a_tenant)
      : all_(std::make_shared<ByteBudget>(all)), of_a_tenant_(of_a_tenant) {}
  // tenant: of a server's own list (HttpRequest::tenant), so that there are not more of them than
  // keys.
  std::shared_ptr<ByteBudget> of(const std::string& tenant) {
    if (tenant.empty()) return all_;
    const std::lock_guard lock(mutex_);
    std::shared_ptr<ByteBudget>& budget = tenants_[tenant];
    if (budget == nullptr) budget = std::make_shared<ByteBudget>(of_a_tenant_, all_);
    return budget;
  }
  int64_t left() const { return all_->left(); }

 private:
  const std::shared_ptr<ByteBudget> all_;
  const int64_t of_a_tenant_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ByteBudget>> tenants_;
};

class ByteShare {
 public:
  ByteShare() = default;  // of no budget: it cannot grow
  explicit ByteShare(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
  ByteShare(ByteShare&& other) noexcept { *this = std::move(other); }
  ByteShare& operator=(ByteShare&& other) noexcept {
    release();
    budget_ = std::move(other.budget_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~ByteShare() { release(); }

  int64_t bytes() const { return bytes_; }
  // False: the budget has not so much, and the share stays as it is.
  bool grow(int64_t more) {
    if (budget_ == nullptr || !budget_->take(more)) return false;
    bytes_ += more;
    return true;
  }
  void release() {
    if (bytes_ > 0) budget_->give_back(std::exchange(bytes_, 0));
  }

 private:
  std::shared_ptr<ByteBudget> budget_;
  int64_t bytes_ = 0;
};

// What is held for one request: up to `always` bytes whatever others hold, beyond of the budget of
// all.
class HeldBytes {
 public:
  HeldBytes(int64_t most, int64_t always, std::shared_ptr<ByteBudget> all)
      : most_(most), always_(always), share_(std::move(all)) {}
  // False: it is too much.
  bool set(int64_t bytes) {
    bytes_ = bytes;
    if (bytes > most_) return false;
    const int64_t more = bytes - always_ - share_.bytes();
    if (bytes <= always_) share_.release();
    return more <= 0 || share_.grow(more);
  }
  int64_t bytes() const { return bytes_; }
  int64_t most() const { return most_; }

 private:
  int64_t most_, always_, bytes_ = 0;
  ByteShare share_;
};

}  // namespace trireme
