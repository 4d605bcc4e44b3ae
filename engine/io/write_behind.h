// Reading and writing at the same time: the caller fills blocks of memory, a second thread uses
// them in order.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace trireme {

class WriteBehind {
 public:
  using Use = std::function<void(std::span<std::byte> filled)>;
  // blocks: how many exist at most, the one being filled and the one in use included.
  explicit WriteBehind(int blocks);
  ~WriteBehind();  // waits for the block in use; what comes after it is dropped
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // Memory to fill, aligned as malloc() aligns; waits until a block is free. One at a time is out.
  std::span<std::byte> block(int64_t bytes);
  // The block that is out is filled: `use` is called with it in the second thread, after all before
  // it.
  void push(Use use);
  // Waits until every block has been used.
  void finish();
  // The first exception of a `use` is thrown here by block(), push() or finish(); no later one is
  // called. Blocks not yet used are dropped, once the one in use is done: no `use` is called any
  // more.
  void abandon();

 private:
  struct Filled {
    std::vector<std::byte> memory;
    size_t bytes;
    Use use;
  };
  void work();
  void rethrow();  // with the lock held

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> free_;
  std::deque<Filled> filled_;
  std::vector<std::byte> out_;
  size_t out_bytes_ = 0;
  bool busy_ = false, ends_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace trireme
