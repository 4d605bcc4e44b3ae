#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <thread>

#include "engine/core/signal_stack.h"

namespace trireme::test::test_signal_stack {
namespace {

std::atomic<uintptr_t> g_handled_at{0};

void note_address(int) {
  int local = 0;
  g_handled_at = reinterpret_cast<uintptr_t>(&local);
}

// Returns whether signal handlers of the calling thread run on its own stack.
bool handles_on_own_stack() {
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  EXPECT_EQ(pthread_attr_getstack(&attributes, &low, &bytes), 0);
  pthread_attr_destroy(&attributes);
  g_handled_at = 0;
  EXPECT_EQ(pthread_kill(pthread_self(), SIGUSR1), 0);  // handled before it returns
  const uintptr_t first = reinterpret_cast<uintptr_t>(low), at = g_handled_at;
  EXPECT_NE(at, 0u);
  return at >= first && at < first + bytes;
}

class SignalStack : public testing::Test {
 protected:
  void SetUp() override {
    struct sigaction action {};
    action.sa_handler = note_address;
    action.sa_flags = SA_ONSTACK;
    ASSERT_EQ(sigaction(SIGUSR1, &action, &before_), 0);
  }
  void TearDown() override { sigaction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

TEST_F(SignalStack, HandlersLeaveTheThreadsOwnStackAlone) {
  for (int i = 0; i < 3; ++i)
    std::thread([] {
      use_signal_stack();
      use_signal_stack();
      EXPECT_FALSE(handles_on_own_stack());
    }).join();
}

TEST_F(SignalStack, KeepsTheStackThatAThreadHas) {
  std::thread([] {
    alignas(16) static char memory[1 << 16];
    stack_t own{}, before{}, after{};
    own.ss_sp = memory;
    own.ss_size = sizeof memory;
    ASSERT_EQ(sigaltstack(&own, &before), 0);
    use_signal_stack();
    ASSERT_EQ(sigaltstack(&before, &after), 0);
    EXPECT_EQ(after.ss_sp, static_cast<void*>(memory));
  }).join();
}

}  // namespace
}  // namespace trireme::test::test_signal_stack
