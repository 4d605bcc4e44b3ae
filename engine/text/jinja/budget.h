// Limit of a rendering's work, and the error of a template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace trireme::jinja {

// Steps left of the rendering on this thread. Code that walks over elements or bytes pays for them
// here first: the steps of a template count its nodes, and one node may have much to do.
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
// Takes from the innermost Budget of this thread, which fails when it is used up; without a Budget
// nothing is counted.
void spend(int64_t steps);
void spend_bytes(size_t bytes);  // a step for each 256

// InputError of a template or of its input.
[[noreturn]] void fail(const std::string& what);

}  // namespace trireme::jinja
