// Overlapped reading and writing: the caller fills blocks of memory, a second thread consumes them
// in order. The first exception of a `use` is rethrown by block(), push() or finish(), and no later
// `use` is called.
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
  // blocks: maximum number of blocks, including the one being filled and the one in use.
  explicit WriteBehind(int blocks);
  ~WriteBehind();  // waits for the block in use; later blocks are dropped
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;

  // Returns memory to fill, aligned as by malloc(), with undefined content; waits until a block is
  // free. The caller has at most one block at a time.
  std::span<std::byte> block(int64_t bytes);
  // Submits the filled block: the second thread calls `use` with it after all earlier ones.
  void push(Use use);
  // Waits until every block has been used.
  void finish();
  // Drops the blocks not yet used and waits for the one in use. Only destruction may follow.
  void abandon();

 private:
  struct Filled {
    std::vector<std::byte> memory;
    size_t bytes;
    Use use;
  };
  void work();
  void rethrow();  // the lock must be held

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> free_;
  std::deque<Filled> filled_;
  std::vector<std::byte> out_;
  size_t out_bytes_ = 0;
  bool busy_ = false, ends_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace trireme
