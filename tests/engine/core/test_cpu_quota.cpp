#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/core/cpu_quota.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_cpu_quota {
namespace {

constexpr int kNone = 1 << 20;

class CpuQuota : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void in_group(const std::string& line) { write("proc/self/cgroup", line + "\n"); }
  int cores() const { return quota_cores(root.path()); }

  test::ScratchDirectory root;
};

TEST_F(CpuQuota, NoneWithoutFiles) {
  EXPECT_EQ(cores(), kNone);
  in_group("0::/job");
  EXPECT_EQ(cores(), kNone);
  EXPECT_GE(quota_cores(), 1);
}

TEST_F(CpuQuota, SecondVersion) {
  in_group("0::/");  // as a container sees its group
  write("sys/fs/cgroup/cpu.max", "100000 100000\n");
  EXPECT_EQ(cores(), 1);
  write("sys/fs/cgroup/cpu.max", "150000 100000");  // one and a half cores
  EXPECT_EQ(cores(), 2);
  write("sys/fs/cgroup/cpu.max", "1000 100000");
  EXPECT_EQ(cores(), 1);
  write("sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_EQ(cores(), kNone);
}

TEST_F(CpuQuota, SmallestOfAllParents) {
  in_group("0::/job.slice/a.scope");
  write("sys/fs/cgroup/job.slice/a.scope/cpu.max", "400000 100000");
  EXPECT_EQ(cores(), 4);
  write("sys/fs/cgroup/job.slice/cpu.max", "300000 100000");
  EXPECT_EQ(cores(), 3);
  write("sys/fs/cgroup/cpu.max", "200000 100000");
  EXPECT_EQ(cores(), 2);
  write("sys/fs/cgroup/other/cpu.max", "100000 100000");  // not this process's
  EXPECT_EQ(cores(), 2);
}

TEST_F(CpuQuota, FirstVersion) {
  in_group("5:memory:/job\n4:cpu,cpuacct:/job");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), kNone);
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cores(), 3);
  // A container has its group at the root, here under the short name.
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cores(), 1);
}

TEST_F(CpuQuota, OtherContentsAreNoQuota) {
  in_group("0::/");
  for (const char* text : {"", "max", "max max", "junk", "junk 100000", "100000", "100000 junk",
                           "100000 0", "0 100000", "-5 100000", "100000 -1",
                           "99999999999999999999 100000", "100000 99999999999999999999"}) {
    write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(cores(), kNone) << text;
  }
  write("sys/fs/cgroup/cpu.max", "9223372036854775807 1");  // maximum of the type
  EXPECT_EQ(cores(), kNone);
  for (const char* line : {"", ":", "::", "0:", "0::", "0::..", "0::/../../..", "junk"}) {
    in_group(line);
    EXPECT_GE(cores(), 1) << line;
  }
}

}  // namespace
}  // namespace trireme::test_cpu_quota
