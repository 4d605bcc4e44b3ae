// Names of a server's threads.
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/serving/http/service/recorded_server.h"

namespace trireme::test_threads {
namespace {

std::set<std::string> names_of_threads() {
  std::set<std::string> names;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    names.insert(name);
  }
  return names;
}

TEST(Threads, HaveNamesThatTellWhatTheyDo) {
  test::RecordedServer server;
  for (const char* name : {"http-0", "http-1", "worker-0", "worker-1", "grammar-0", "engine"})
    EXPECT_TRUE(test::eventually([&] { return names_of_threads().contains(name); })) << name;
}

}  // namespace
}  // namespace trireme::test_threads
