// Files with the secret of a job.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "engine/core/error.h"
#include "parallel/comm/secret_file.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_secret_file {
namespace {

class SecretFile : public ::testing::Test {
 protected:
  std::string written(const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path_) << text;
    EXPECT_EQ(::chmod(path_.c_str(), mode), 0);
    return path_;
  }
  static std::string problem(const std::string& path) {
    try {
      read_secret_file(path);
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  }
  static std::string warning_of(const std::string& path) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(read_secret_file(path), "0123456789abcdef");
    return ::testing::internal::GetCapturedStderr();
  }
  test::ScratchDirectory folder_;
  const std::string path_ = folder_ / "secret";
};

TEST_F(SecretFile, HasTheSecretInItsFirstLine) {
  EXPECT_EQ(read_secret_file(written("0123456789abcdef")), "0123456789abcdef");
  EXPECT_EQ(read_secret_file(written("0123456789 abcdef\nmore\n")), "0123456789 abcdef");
  EXPECT_EQ(read_secret_file(written("0123456789abcdef\r\nmore\r\n")), "0123456789abcdef");
  EXPECT_EQ(read_secret_file(written("0123456789abcdef\r")), "0123456789abcdef");
  const std::string longest(kMaxSecret, 'x');
  EXPECT_EQ(read_secret_file(written(longest + "\r\n")), longest);
}

TEST_F(SecretFile, RefusesOtherSizes) {
  const std::string path = written("0123456789abcde\r\n0123456789abcdef\n");
  EXPECT_EQ(problem(path), concat("the secret in ", path,
                                  " has 15 characters; give it 16 to 4096, such as the output of "
                                  "openssl rand -hex 32"));
  EXPECT_NE(problem(written("")).find("has 0 characters"), std::string::npos);
  EXPECT_NE(problem(written(std::string(kMaxSecret + 1, 'x'))).find("has 4097 characters"),
            std::string::npos);
}

TEST_F(SecretFile, RefusesFilesOfAnotherTypeWithoutWaiting) {
  EXPECT_NE(problem(path_).find(concat("cannot read ", path_, ": ")), std::string::npos);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(problem(path_), concat("cannot read ", path_, ": it is a FIFO, not a file"));
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(problem(path_), concat("cannot read ", path_, ": it is a directory, not a file"));
}

TEST_F(SecretFile, WarnsIfOthersCanReadIt) {
  EXPECT_EQ(warning_of(written("0123456789abcdef\n", 0600)), "");
  for (const mode_t mode : {0640, 0604, 0644})
    EXPECT_NE(warning_of(written("0123456789abcdef\n", mode)).find("chmod 600 " + path_),
              std::string::npos);
}

}  // namespace
}  // namespace trireme::test_secret_file
