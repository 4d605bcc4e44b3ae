#include "engine/core/signal_stack.h"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaltstack is POSIX's
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace trireme {
namespace {

constexpr long kStackBytes = 64L << 10;  // at least; registers of AMX alone take 8 KiB

class SignalStack {
 public:
  SignalStack() {
    stack_t current{};
    if (sigaltstack(nullptr, &current) != 0 || (current.ss_flags & SS_DISABLE) == 0) return;
#ifdef _SC_SIGSTKSZ
    const long wanted = sysconf(_SC_SIGSTKSZ);
#else
    const long wanted = SIGSTKSZ;
#endif
    bytes_ = static_cast<size_t>(std::max(kStackBytes, 4 * wanted));
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) return;
    stack_t own{};
    own.ss_sp = memory_;
    own.ss_size = bytes_;
    sigaltstack(&own, nullptr);
  }
  ~SignalStack() {
    if (memory_ == MAP_FAILED) return;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    if (sigaltstack(&none, nullptr) == 0) munmap(memory_, bytes_);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* memory_ = MAP_FAILED;
  size_t bytes_ = 0;
};

}  // namespace

void use_signal_stack() { [[maybe_unused]] static const thread_local SignalStack stack; }

}  // namespace trireme
