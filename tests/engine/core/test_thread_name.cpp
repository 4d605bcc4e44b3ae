#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>

#include "engine/core/thread_name.h"

namespace trireme::test_thread_name {
namespace {

std::string own_name() {
  std::string name;
  std::getline(std::ifstream("/proc/thread-self/comm"), name);
  return name;
}

TEST(ThreadName, IsOfTheCallingThreadAlone) {
  const std::string before = own_name();
  std::string plain, numbered, longest, longer;
  std::thread([&] {
    name_thread("engine");
    plain = own_name();
    name_thread("http", 12);
    numbered = own_name();
    name_thread("fifteen-letters");
    longest = own_name();
    name_thread("fifteen-letters", 3);
    longer = own_name();
  }).join();
  EXPECT_EQ(plain, "engine");
  EXPECT_EQ(numbered, "http-12");
  EXPECT_EQ(longest, "fifteen-letters");
  EXPECT_EQ(longer, "fifteen-letters");
  EXPECT_EQ(own_name(), before);
}

}  // namespace
}  // namespace trireme::test_thread_name
