#include "tests/emulator/fiber.h"

#if TRIREME_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#endif
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tests/emulator/report.h"

#if TRIREME_EMULATOR_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if TRIREME_EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// void trireme_emulator_switch(void** save, void* load): pushes the ABI's callee-saved registers,
// stores the stack pointer in *save, takes `load` as the new one and pops.
#if defined(__x86_64__)
asm(R"(
.text
.globl trireme_emulator_switch
.hidden trireme_emulator_switch
.type trireme_emulator_switch, @function
trireme_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size trireme_emulator_switch, .-trireme_emulator_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl trireme_emulator_switch
.hidden trireme_emulator_switch
.type trireme_emulator_switch, %function
trireme_emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size trireme_emulator_switch, .-trireme_emulator_switch
)");
#else
#error "tests/emulator/fiber.cpp: write the context switch of this processor"
#endif
extern "C" void trireme_emulator_switch(void** save, void* load);

namespace emulator::detail {
namespace {

// The sanitizers' redzones make stack frames several times larger.
#if TRIREME_EMULATOR_ASAN || TRIREME_EMULATOR_TSAN
constexpr std::size_t kStackBytes = 576 << 10;
#else
constexpr std::size_t kStackBytes = 192 << 10;
#endif

// The fiber left for the one now running, on this OS thread.
[[maybe_unused]] constinit thread_local Fiber* left = nullptr;

#if TRIREME_EMULATOR_ASAN
// Only AddressSanitizer knows the bounds of a stack that was left, where it is an OS thread's; it
// returns them here.
void arrived(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, &left->stack_low, &left->stack_bytes);
}
#else
void arrived(void*) {}
#endif

}  // namespace

// At least the page size of any processor, and larger than most frames.
std::size_t stack_guard_bytes() { return 64 << 10; }

void create_fiber(Fiber& fiber, void (*entry)()) {
  const std::size_t guard = stack_guard_bytes();
  void* mapping = mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED || mprotect(mapping, guard, PROT_NONE) != 0)
    die("no memory for the stack of a kernel's thread");
  fiber.mapping = mapping;
  char* low = static_cast<char*>(mapping) + guard;
  fiber.stack_low = low;
  fiber.stack_bytes = kStackBytes;
  // Stack tops at the same offset would compete for the same few cache lines.
  constexpr std::size_t kColours = 61, kColourBytes = 576;
  static thread_local std::size_t created = 0;
  const std::size_t offset = created++ % kColours * kColourBytes;
  auto* top = reinterpret_cast<std::uintptr_t*>(low + kStackBytes - offset);
#if defined(__x86_64__)
  // From the top: no return address (so that stack traces end), the entry, six registers.
  top[-2] = reinterpret_cast<std::uintptr_t>(entry);
  fiber.stack_pointer = top - 8;
#else
  top[-20 + 11] = reinterpret_cast<std::uintptr_t>(entry);  // x30
  fiber.stack_pointer = top - 20;
#endif
#if TRIREME_EMULATOR_TSAN
  fiber.tsan = __tsan_create_fiber(0);
#endif
}

void destroy_fiber(Fiber& fiber) {
#if TRIREME_EMULATOR_TSAN
  __tsan_destroy_fiber(fiber.tsan);
#endif
#if TRIREME_EMULATOR_ASAN
  // The next user of these addresses must not find the shadow memory of this stack.
  __asan_unpoison_memory_region(fiber.mapping, stack_guard_bytes() + kStackBytes);
#endif
  munmap(fiber.mapping, stack_guard_bytes() + kStackBytes);
  fiber = {};
}

void adopt_thread([[maybe_unused]] Fiber& fiber) {
#if TRIREME_EMULATOR_TSAN
  fiber.tsan = __tsan_get_current_fiber();
#endif
}

void switch_fiber(Fiber& from, Fiber& to) {
  left = &from;
#if TRIREME_EMULATOR_ASAN
  __sanitizer_start_switch_fiber(&from.fake_stack, to.stack_low, to.stack_bytes);
#endif
#if TRIREME_EMULATOR_TSAN
  __tsan_switch_to_fiber(to.tsan, __tsan_switch_to_fiber_no_sync);
#endif
  trireme_emulator_switch(&from.stack_pointer, to.stack_pointer);
  arrived(from.fake_stack);
}

void enter_fiber() { arrived(nullptr); }

}  // namespace emulator::detail
