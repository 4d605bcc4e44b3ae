// Fiber: a cooperative thread with its own stack, on the OS thread that created it. It runs until
// it switches. Notifies AddressSanitizer and ThreadSanitizer of switches.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define TRIREME_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRIREME_EMULATOR_ASAN 1
#endif
#endif

namespace emulator::detail {

struct Fiber {
  void* stack_pointer = nullptr;  // where it stopped; undefined while it runs
  void* mapping = nullptr;        // guard page, then the stack
  const void* stack_low = nullptr;
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // of AddressSanitizer
  void* tsan = nullptr;
};

// `entry` never returns.
void create_fiber(Fiber& fiber, void (*entry)());
void destroy_fiber(Fiber& fiber);
// Makes `fiber` represent the calling thread itself, to switch away from and back to.
void adopt_thread(Fiber& fiber);
void switch_fiber(Fiber& from, Fiber& to);
// Must be called first in every fiber's entry.
void enter_fiber();
std::size_t stack_guard_bytes();

}  // namespace emulator::detail
