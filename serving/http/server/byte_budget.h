// Byte budgets of a process: one for all requests, and within it one for each API key. A request
// owns its share as an object (ByteShare), which returns it however the request ends. ByteBudget
// and TenantBudgets are thread-safe; a ByteShare or HeldBytes is not.
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
  // whole: budget that contains this one; bytes are taken from it as well. nullptr: none.
  explicit ByteBudget(int64_t bytes, std::shared_ptr<ByteBudget> whole = {})
      : left_(bytes), whole_(std::move(whole)) {}
  // False: too few bytes are left in this budget or in `whole`; takes none.
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
  int64_t left() const { return left_; }  // without regard to `whole`

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

// One budget for all requests, and within it one per tenant, so that no API key uses up the bytes
// of the others. Requests of tenant "" (ApiKeys::check: the server has at most one key, or the
// endpoint needs none) may use all bytes.
class TenantBudgets {
 public:
  // Both in bytes.
  TenantBudgets(int64_t all, int64_t per_tenant)
      : all_(std::make_shared<ByteBudget>(all)), per_tenant_(per_tenant) {}
  // tenant: HttpRequest::tenant, from the server's own list of keys, which bounds the number of
  // budgets.
  std::shared_ptr<ByteBudget> of(const std::string& tenant) {
    if (tenant.empty()) return all_;
    const std::lock_guard lock(mutex_);
    std::shared_ptr<ByteBudget>& budget = tenants_[tenant];
    if (budget == nullptr) budget = std::make_shared<ByteBudget>(per_tenant_, all_);
    return budget;
  }
  int64_t left() const { return all_->left(); }

 private:
  const std::shared_ptr<ByteBudget> all_;
  const int64_t per_tenant_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ByteBudget>> tenants_;
};

// Bytes that a request has taken from a budget; returned on destruction.
class ByteShare {
 public:
  ByteShare() = default;  // has no budget: cannot grow
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
  // False: too few bytes are left in the budget; the share is unchanged.
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

// Bytes buffered for one request. Up to `always` bytes are free; bytes beyond that are taken from
// the budget `all`.
class HeldBytes {
 public:
  HeldBytes(int64_t max_bytes, int64_t always, std::shared_ptr<ByteBudget> all)
      : max_bytes_(max_bytes), always_(always), share_(std::move(all)) {}
  // Sets bytes(), the number of buffered bytes. False: they exceed max_bytes, or too few bytes are
  // left in the budget; then the share of the budget is unchanged. A share shrinks only when
  // `bytes` is at most `always`: then it is returned.
  bool set(int64_t bytes) {
    bytes_ = bytes;
    if (bytes > max_bytes_) return false;
    const int64_t more = bytes - always_ - share_.bytes();
    if (bytes <= always_) share_.release();
    return more <= 0 || share_.grow(more);
  }
  int64_t bytes() const { return bytes_; }
  int64_t max_bytes() const { return max_bytes_; }

 private:
  int64_t max_bytes_, always_, bytes_ = 0;
  ByteShare share_;
};

}  // namespace trireme
