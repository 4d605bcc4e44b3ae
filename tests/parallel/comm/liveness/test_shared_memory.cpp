// Ranks map each other's memory by an address from a peer, which may name anything.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "parallel/comm/liveness/shared_memory.h"
#include "parallel/comm/transport/tcp_socket.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_shared_memory {
namespace {

constexpr int64_t kPage = 4096;

TEST(SharedMemory, IsSeenByWhoAttaches) {
  const SharedMemory mine = SharedMemory::create(kPage);
  const SharedMemory theirs = SharedMemory::attach(mine.address(), kPage);
  mine.data()[17] = std::byte{5};
  EXPECT_EQ(theirs.data()[17], std::byte{5});
}

TEST(SharedMemory, HasTheExpectedSizeOrIsRefused) {
  const SharedMemory mine = SharedMemory::create(kPage);
  EXPECT_THROW(SharedMemory::attach(mine.address(), 2 * kPage), Error);
  EXPECT_THROW(SharedMemory::attach(mine.address(), kPage - 1), Error);
  for (const char* odd : {"", "1 2", "-1 2 4096 a", "1 -2 4096 a", "a b c d"})
    EXPECT_THROW(SharedMemory::attach(odd, kPage), Error) << odd;
}

// A file of this user whose name contains the address: if it were mapped, it would be written to.
TEST(SharedMemory, IsNoFile) {
  const test::ScratchDirectory folder;
  const std::string path = folder / "precious";
  const Socket file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(file.fd(), kPage), 0);
  EXPECT_THROW(
      SharedMemory::attach(concat(getpid(), " ", file.fd(), " ", kPage, " precious"), kPage),
      Error);
}

// Its creator could truncate it while others have it mapped.
TEST(SharedMemory, IsNoBlockWhoseSizeCanChange) {
  const Socket block(memfd_create("trireme-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(block.fd(), kPage), 0);
  const std::string address = concat(getpid(), " ", block.fd(), " ", kPage, " trireme-test");
  EXPECT_THROW(SharedMemory::attach(address, kPage), Error);
  ASSERT_EQ(fcntl(block.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(SharedMemory::attach(address, kPage).bytes(), kPage);
}

}  // namespace
}  // namespace trireme::test_shared_memory
