// Bytes that many holders may hold together, counted by what holds them: whichever way a request dies, its share
// goes back with it. Any thread may use either.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace trireme {

class ByteBudget {
 public:
  explicit ByteBudget(int64_t bytes) : left_(bytes) {}
  // False: there are not so many left, and nothing is taken.
  bool take(int64_t bytes) {
    int64_t left = left_;
    do {
      if (left < bytes) return false;
    } while (!left_.compare_exchange_weak(left, left - bytes));
    return true;
  }
  void give_back(int64_t bytes) { left_ += bytes; }
  int64_t left() const { return left_; }

 private:
  std::atomic<int64_t> left_;
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

// What is held for one request: up to `always` bytes whatever others hold, beyond of the budget of all.
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
