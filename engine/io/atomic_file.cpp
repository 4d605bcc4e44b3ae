#include "engine/io/atomic_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/lfs_pointer.h"
#include "engine/io/input_file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
constexpr size_t kPendingBytes = 64 << 10;
constexpr size_t kLargestWrite = 1 << 30;  // Linux writes at most 2 GiB - 4 KiB in one call
constexpr int64_t kStartedTogether = 8 << 20;

std::string parent_of(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

// write() that reports a file size limit as EFBIG instead of killing the process by SIGXFSZ.
ssize_t write_without_signal(int descriptor, const std::byte* data, size_t bytes) {
  sigset_t file_size, before;
  sigemptyset(&file_size);
  sigaddset(&file_size, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &file_size, &before);
  const ssize_t written = ::write(descriptor, data, bytes);
  const int error_number = errno;
  if (written < 0 && error_number == EFBIG) {
    const timespec now{};
    sigtimedwait(&file_size, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error_number;
  return written;
}

// Opens and locks the temporary file. Its previous owner may rename it between our open and our
// lock, so the name must still lead to the locked file.
int open_locked(const std::string& temporary, const std::string& path) {
  for (;;) {
    // O_NOFOLLOW: a symbolic link placed there would redirect the writes to another file.
    const int descriptor =
        ::open(temporary.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (descriptor < 0) fail_file("create", temporary, errno);
    // Some network file systems have no locks: continue without one.
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(descriptor);
      fail_input("cannot write ", path, ": another process is writing it now; wait for it or ",
                 "choose another output directory");
    }
    struct stat locked {
    }, named{};
    const bool same = ::fstat(descriptor, &locked) == 0 &&
                      ::lstat(temporary.c_str(), &named) == 0 && locked.st_ino == named.st_ino &&
                      locked.st_dev == named.st_dev;
    if (same && S_ISREG(locked.st_mode)) return descriptor;
    ::close(descriptor);
    if (same)
      fail_input("cannot create ", temporary, ": it exists and is not a regular file; remove it");
  }
}

}  // namespace

void read_fully(int descriptor, int64_t offset, std::span<std::byte> destination,
                const std::string& path) {
  while (!destination.empty()) {
    const size_t wanted = std::min<size_t>(destination.size(), 1 << 30);
    const ssize_t got = ::pread(descriptor, destination.data(), wanted, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file("read", path, errno);
    if (got == 0) fail_input("cannot read ", path, ": it ends at byte ", offset);
    destination = destination.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

AtomicFile::AtomicFile(std::string path, int64_t expected_bytes, const std::string& resume_as)
    : path_(std::move(path)), temporary_(path_ + ".tmp"), expected_(expected_bytes) {
  if (fs::is_directory(path_)) fail_file("write", path_, EISDIR);
  descriptor_ = open_locked(temporary_, path_);
  try {
    open_temporary(resume_as);
  } catch (...) {
    discard();
    throw;
  }
  pending_.reserve(kPendingBytes);
}

void AtomicFile::open_temporary(const std::string& resume_as) {
  if (!resume_as.empty()) {
    try {
      journal_ =
          std::make_unique<ResumeJournal>(path_ + ".journal", resume_as, descriptor_, checksum_);
    } catch (...) {
      // The partial file of an earlier writer stays: its journal may be readable the next time.
      if (::lseek(descriptor_, 0, SEEK_END) > 0) ::close(std::exchange(descriptor_, -1));
      throw;
    }
  }
  written_ = started_ = kept();
  if (::ftruncate(descriptor_, written_) != 0 || ::lseek(descriptor_, written_, SEEK_SET) < 0)
    fail("write", errno);
  const int64_t left = expected_ - written_;
  if (left > 0 && left > free_bytes_at(path_).value_or(left)) fail("write", ENOSPC);
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() noexcept {
  if (descriptor_ < 0) return;
  if (journal_ == nullptr || journal_->empty()) {
    ::unlink(temporary_.c_str());
    if (journal_ != nullptr) journal_->remove();
  }
  ::close(descriptor_);
  descriptor_ = -1;
}

void AtomicFile::fail(const char* action, int error_number) {
  const int64_t needed = std::max(expected_, size_) - written_;
  // Free space is read before the temporary file is removed, so that the numbers are those of the
  // failure.
  try {
    fail_file(action, path_, error_number, needed);
  } catch (const InputError&) {
    discard();
    throw;
  }
}

void AtomicFile::put(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t wanted = std::min(bytes.size(), kLargestWrite);
    const ssize_t written = write_without_signal(descriptor_, bytes.data(), wanted);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    written_ += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  if (written_ - started_ < kStartedTogether) return;
  // Starts writeback without waiting; if the file system cannot, commit() does all of it.
  ::sync_file_range(descriptor_, started_, written_ - started_, SYNC_FILE_RANGE_WRITE);
  started_ = written_;
}

void AtomicFile::flush() {
  put(std::as_bytes(std::span(pending_)));
  pending_.clear();
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  checksum_.update(bytes);
  size_ += std::ssize(bytes);
  if (pending_.size() + bytes.size() > kPendingBytes) flush();
  if (bytes.size() > kPendingBytes) {
    put(bytes);
  } else {
    pending_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  TRIREME_CHECK(descriptor_ >= 0, "write to ", path_, " after commit or failure");
  const auto kept_of_it = std::clamp<int64_t>(kept() - size_, 0, std::ssize(bytes));
  size_ += kept_of_it;
  bytes = bytes.subspan(static_cast<size_t>(kept_of_it));
  if (journal_ == nullptr) return append(bytes);
  while (!bytes.empty()) {
    const int64_t to_step = kJournalStep - size_ % kJournalStep;
    const auto n = static_cast<size_t>(std::min(std::ssize(bytes), to_step));
    append(bytes.first(n));
    bytes = bytes.subspan(n);
    if (size_ % kJournalStep != 0) continue;
    flush();
    journal_->append(checksum_.value());
  }
}

void AtomicFile::skip(int64_t bytes) {
  TRIREME_CHECK(bytes == 0 || (bytes > 0 && size_ + bytes <= kept()), path_, ": cannot skip ",
                bytes, " bytes after ", size_, ": ", kept(), " are kept");
  size_ += bytes;
}

void AtomicFile::read_kept(int64_t offset, std::span<std::byte> destination) const {
  TRIREME_CHECK(offset >= 0 && offset + std::ssize(destination) <= kept(), path_, ": bytes from ",
                offset, " on are not kept");
  while (!destination.empty()) {
    const ssize_t got = ::pread(descriptor_, destination.data(), destination.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail_file("read", temporary_, got < 0 ? errno : EIO);
    destination = destination.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

void AtomicFile::write(std::string_view characters) { write(std::as_bytes(std::span(characters))); }

void AtomicFile::sync() {
  TRIREME_CHECK(descriptor_ >= 0, "sync of ", path_, " after commit or failure");
  flush();
  // A full disk is reported here at the latest, because of delayed allocation.
  if (::fsync(descriptor_) != 0) fail("write", errno);
}

void AtomicFile::commit() {
  sync();
  // Before the rename: afterwards the next writer may have begun its own journal.
  if (journal_ != nullptr) journal_->remove();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error_number = errno;
    if (journal_ != nullptr) journal_->restore();
    fail("rename", error_number);
  }
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail_file("write", path_, errno);
  sync_directory(parent_of(path_));
}

void write_file_atomically(const std::string& path, std::string_view contents) {
  AtomicFile file(path, static_cast<int64_t>(contents.size()));
  file.write(contents);
  file.commit();
}

int append_whole(int descriptor, const std::string& path, std::string_view bytes) {
  const std::span<const std::byte> data = std::as_bytes(std::span(bytes));
  ssize_t written = 0;
  do {
    written = write_without_signal(descriptor, data.data(), data.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(data.size())) return 0;
  if (written < 0) return errno;
  const off_t begin = ::lseek(descriptor, 0, SEEK_END) - written;
  if (::ftruncate(descriptor, begin) != 0 || ::lseek(descriptor, begin, SEEK_SET) != begin)
    fail_file("truncate", path, errno);  // the next bytes would be appended to a partial record
  return ENOSPC;
}

std::string read_small_file(const std::string& path, int64_t max_bytes) {
  const int descriptor = open_regular_file(path, "read");
  std::string contents;
  try {
    struct stat info {};
    if (::fstat(descriptor, &info) != 0) fail_file("read", path, errno);
    if (info.st_size > max_bytes)
      fail_input("cannot read ", path, ": it has ", info.st_size, " bytes, at most ", max_bytes,
                 " are expected of such a file");
    contents = read_exactly(descriptor, info.st_size, path);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
  refuse_lfs_pointer(contents, path);
  return contents;
}

void sync_directory(const std::string& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail_file("open", directory, errno);
  const int result = ::fsync(descriptor);
  const int error_number = errno;
  ::close(descriptor);
  // Some file systems report that they cannot fsync a directory; the rename is then as durable as
  // it can be.
  if (result != 0 && error_number != EINVAL && error_number != ENOTSUP) {
    fail_file("sync", directory, error_number);
  }
}

void make_directories(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_file("create directory", directory, error.value());
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_file("remove", path, error.value());
}

}  // namespace trireme
