#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/core/host_memory.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_host_memory {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A machine with 8 MiB of available memory.
class HostMemory : public testing::Test {
 protected:
  void SetUp() override {
    write("proc/meminfo",
          "MemTotal:       16384 kB\nMemFree:        1024 kB\nMemAvailable:   8192 kB\n");
  }
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // A control group of version 2.
  void group(const std::string& path, const std::string& limit, int64_t used, int64_t of_files) {
    const std::string folder = "sys/fs/cgroup" + path;
    write(folder + "/memory.max", limit + "\n");
    write(folder + "/memory.current", std::to_string(used));
    write(folder + "/memory.stat", "anon 1\nfile 2\ninactive_file " +
                                       std::to_string(of_files - 100) + "\nactive_file 100\n");
  }
  int64_t free() const { return free_host_memory(root.path()); }

  test::ScratchDirectory root;
};

TEST_F(HostMemory, IsWhatTheSystemSaysIsAvailable) {
  EXPECT_EQ(free(), 8 * kMiB);
  EXPECT_EQ(free_host_memory(root / "nothing"), INT64_MAX);
  EXPECT_GT(free_host_memory(), 0);
  EXPECT_LT(free_host_memory(), int64_t{1} << 50);
}

TEST_F(HostMemory, IsWhatTheNarrowestGroupLeaves) {
  write("proc/self/cgroup", "0::/slice/server\n");
  group("/slice/server", "max", 3 * kMiB, kMiB);
  EXPECT_EQ(free(), 8 * kMiB);
  group("/slice/server", std::to_string(6 * kMiB), 3 * kMiB, kMiB);
  EXPECT_EQ(free(), 4 * kMiB);  // page cache is reclaimable
  group("/slice", std::to_string(6 * kMiB), 5 * kMiB, kMiB);
  EXPECT_EQ(free(), 2 * kMiB);  // together with its neighbours
  group("/slice", std::to_string(6 * kMiB), 9 * kMiB, kMiB);
  EXPECT_EQ(free(), 0);
}

// A container sees its own group at the root, and the path of its group is one outside.
TEST_F(HostMemory, IsThatOfAContainer) {
  group("", std::to_string(5 * kMiB), kMiB, 1000);
  write("proc/self/cgroup", "0::/docker/0123\n");
  EXPECT_EQ(free(), 4 * kMiB + 1000);
  write("proc/self/cgroup", "0::/../..\n");
  EXPECT_EQ(free(), 4 * kMiB + 1000);
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(free(), 4 * kMiB + 1000);
}

TEST_F(HostMemory, IsThatOfGroupsOfTheFirstVersion) {
  write("proc/self/cgroup", "5:devices:/\n4:cpuset,memory:/server\n0::/\n");
  const std::string folder = "sys/fs/cgroup/memory/server/memory.";
  write(folder + "limit_in_bytes", "7340032\n");
  write(folder + "usage_in_bytes", "2097152\n");
  write(folder + "stat", "inactive_file 5\ntotal_inactive_file 1000\ntotal_active_file 24\n");
  EXPECT_EQ(free(), 5 * kMiB + 1024);
  write(folder + "limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(free(), 8 * kMiB);
}

}  // namespace
}  // namespace trireme::test_host_memory
