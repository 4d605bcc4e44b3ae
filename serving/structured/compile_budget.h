// Limits on compiling a grammar. Clients are not trusted, so everything that grows with their
// grammar is charged. Above a limit only that request fails, with InputError.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

#include "engine/core/error.h"

namespace trireme {

struct GrammarLimits {
  std::chrono::milliseconds time{2000};  // CPU time of the compiling thread
  int64_t bytes = int64_t{256} << 20;  // charged in total, including bytes that are freed meanwhile
  int64_t states = 30'000;             // made in total, including states of intermediate automata
  int depth = 64;                      // nesting of a schema, an expression or a grammar
  int64_t min_counted = 64;  // minimum optional turns of a counted repetition (StateCounter)
};

// Cost of one compilation on one thread. Time is that thread's CPU time, so that a busy machine
// refuses nothing that an idle one compiles.
class CompileBudget {
 public:
  explicit CompileBudget(const GrammarLimits& limits)
      : limits_(limits), end_(cpu_time() + limits.time) {}

  const GrammarLimits& limits() const { return limits_; }
  void take_bytes(int64_t bytes) {
    bytes_ += bytes;
    if (bytes_ > limits_.bytes)
      fail_input("compiling the constraint takes more than ", limits_.bytes >> 20,
                 " MiB: make it simpler");
    check_time();
  }
  void take_state() {
    if (++states_ > limits_.states)
      fail_input("the constraint's automaton has more than ", limits_.states,
                 " states: make it simpler", largest_count_.empty() ? "" : ", beginning with ",
                 largest_count_);
  }
  // For the error of take_state(): a part of the source and its number of states. The error names
  // the largest part.
  void note_count(int64_t count, const std::string& part) {
    if (count <= largest_) return;
    largest_ = count;
    largest_count_ = part;
  }
  void check_depth(int depth) const {
    if (depth > limits_.depth) fail_input("the constraint is nested deeper than ", limits_.depth);
  }
  // InputError after the time limit. Reads the clock, which is a system call, on every 256th call.
  void check_time() {
    if ((++asked_ & 255) == 0 && out_of_time())
      fail_input("compiling the constraint takes longer than ", limits_.time.count(),
                 " ms of CPU time: make it simpler");
  }
  bool out_of_time() const { return cpu_time() > end_; }

 private:
  static std::chrono::nanoseconds cpu_time() {
    std::timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
  GrammarLimits limits_;
  std::chrono::nanoseconds end_;
  int64_t bytes_ = 0, states_ = 0, largest_ = 0;
  std::string largest_count_;
  uint64_t asked_ = 0;
};

}  // namespace trireme
