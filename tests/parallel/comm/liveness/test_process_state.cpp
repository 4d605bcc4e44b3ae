#include <gtest/gtest.h>

#include <sstream>

#include "parallel/comm/liveness/process_state.h"

namespace trireme::test_process_state {
namespace {

TEST(ProcessState, IsReadFromTheKernelsWords) {
  std::istringstream dumping(
      "Name:\ttrireme\nState:\tD (disk sleep)\nTracerPid:\t0\nCoreDumping:\t1\n");
  const ProcessState crashed = read_process_state(dumping);
  EXPECT_EQ(crashed.letter, 'D');
  EXPECT_FALSE(crashed.traced);
  EXPECT_TRUE(crashed.dumping);
  std::istringstream traced("State:\tt (tracing stop)\nTracerPid:\t17\nCoreDumping:\t0\n");
  const ProcessState held = read_process_state(traced);
  EXPECT_TRUE(held.traced);
  EXPECT_FALSE(held.dumping);
}

}  // namespace
}  // namespace trireme::test_process_state
