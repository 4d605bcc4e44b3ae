#include "parallel/comm/liveness/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>

#include "parallel/comm/liveness/fixed_width.h"

namespace trireme {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Cookie that is unlikely to occur by chance in another process's descriptor table.
std::string fresh_cookie() {
  static std::atomic<uint64_t> counter{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return concat("trireme-", fixed_width(getpid(), 10), "-", fixed_width(now, 20), "-",
                counter.fetch_add(1));
}

[[noreturn]] void fail_system(const std::string& what) {
  throw Error(concat("shared memory: ", what, ": ", std::strerror(errno)));
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  close_address();
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      fd_(std::exchange(other.fd_, -1)),
      address_(std::move(other.address_)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  std::swap(address_, other.address_);
  return *this;
}

void SharedMemory::map(int fd, int64_t bytes) {
  void* address =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) fail_system(concat("mapping ", bytes, " bytes"));
  data_ = static_cast<std::byte*>(address);
  bytes_ = bytes;
  // A hint: most kernels give huge pages to shared memory only if the administrator allows it.
  madvise(address, static_cast<size_t>(bytes), MADV_HUGEPAGE);
}

SharedMemory SharedMemory::create(int64_t bytes) {
  TRIREME_CHECK(bytes > 0, "shared memory of ", bytes, " bytes, expected at least 1");
  SharedMemory memory;
  const std::string cookie = fresh_cookie();
  memory.fd_ = memfd_create(cookie.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory.fd_ < 0) fail_system("memfd_create");
  if (ftruncate(memory.fd_, bytes) != 0) fail_system(concat("reserving ", bytes, " bytes"));
  // Ranks that map the block rely on its size.
  if (fcntl(memory.fd_, F_ADD_SEALS, kSizeSeals) != 0) fail_system("sealing the size");
  memory.map(memory.fd_, bytes);
  memory.address_ = concat(fixed_width(getpid(), 10), " ", memory.fd_, " ", bytes, " ", cookie);
  return memory;
}

SharedMemory SharedMemory::attach(const std::string& address, int64_t bytes) {
  std::istringstream in(address);
  int64_t pid = 0, number = 0, announced = 0;
  std::string cookie;
  if (!(in >> pid >> number >> announced >> cookie) || pid <= 0 || number < 0)
    throw Error(concat("shared memory: \"", address, "\" is not the address of a block"));
  if (announced != bytes)
    throw Error(concat("shared memory: a peer announces ", announced, " bytes, expected ", bytes,
                       " bytes"));
  const std::string path = concat("/proc/", pid, "/fd/", number);
  std::array<char, 256> target{};
  if (readlink(path.c_str(), target.data(), target.size() - 1) < 0)
    fail_system(concat("reading ", path));
  // In another process namespace the same numbers refer to a different file.
  if (target.data() != concat("/memfd:", cookie, " (deleted)"))
    throw Error(concat("shared memory: ", path, " is not the block of this run"));
  SharedMemory memory;
  memory.fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (memory.fd_ < 0) fail_system(concat("opening ", path));
  struct stat info {};
  const bool ours = fstat(memory.fd_, &info) == 0 && info.st_uid == geteuid();
  const int seals = fcntl(memory.fd_, F_GET_SEALS);  // -1: not memory of memfd_create()
  if (!ours || seals < 0 || (seals & kSizeSeals) != kSizeSeals)
    throw Error(concat("shared memory: ", path, " is not a sealed memfd owned by this user"));
  if (info.st_size != bytes)
    throw Error(concat("shared memory: ", path, " has ", info.st_size, " bytes, expected ", bytes,
                       " bytes"));
  memory.map(memory.fd_, bytes);
  memory.close_address();
  return memory;
}

void SharedMemory::close_address() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace trireme
