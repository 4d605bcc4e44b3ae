// Step budget of a rendering, and the error of a template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme::jinja {

// Remaining steps of the rendering on this thread. Code that iterates over elements or bytes spends
// steps here first: a template's steps count its nodes, and one node may do much work.
class Budget {
 public:
  explicit Budget(int64_t steps);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  void take(int64_t steps);

 private:
  int64_t limit_, left_;
  Budget* before_;
};
// Spends steps of this thread's innermost Budget, and fails once it is used up; without a Budget
// nothing is counted.
void spend(int64_t steps);
void spend_bytes(size_t bytes);  // one step per 256 bytes

// Throws InputError for a template or its input.
[[noreturn]] void fail(const std::string& what);

}  // namespace trireme::jinja
