#include "engine/io/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

bool is_file_at(int descriptor, const std::string& path) {
  struct stat locked {
  }, named{};
  return ::fstat(descriptor, &locked) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
}

// "process 4711 on node17 since 2026-11-24 05:12:03"
std::string holder_text() {
  char host[256] = "", since[32] = "";
  ::gethostname(host, sizeof host - 1);
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  std::strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S", &parts);
  return concat("process ", ::getpid(), " on ", static_cast<const char*>(host), " since ",
                static_cast<const char*>(since));
}

// Text written by the lock's owner, up to the end of its line.
std::string read_holder(int descriptor) {
  char line[512];
  const ssize_t got = ::pread(descriptor, line, sizeof line, 0);
  const std::string all(line, got > 0 ? static_cast<size_t>(got) : 0);
  const std::string first = all.substr(0, all.find('\n'));
  return first.empty() ? "another process" : first;
}

std::string topmost_absent(const std::string& directory) {
  std::error_code ignored;
  fs::path absent;
  for (fs::path at = fs::absolute(directory).lexically_normal();
       !at.empty() && !fs::exists(fs::symlink_status(at, ignored)); at = at.parent_path()) {
    absent = at;
    if (!at.has_relative_path()) break;
  }
  return absent.string();
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& name, const std::string& directory)
    : directory_(directory), path_((fs::path(directory) / kLockName).string()) {
  created_ = topmost_absent(directory);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) {
    remove_created();
    fail_input(name, " ", directory, " cannot be created: ", error.message());
  }
  try {
    open(name);
  } catch (...) {
    remove_created();
    throw;
  }
}

void DirectoryLock::open(const std::string& name) {
  for (;;) {
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor_ < 0) fail_file("create", path_, errno);
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) {
        warning_ = concat(path_, " cannot be locked (", std::strerror(errno),
                          "): a second run would not be kept out of ", directory_);
        break;
      }
      const std::string holder = read_holder(descriptor_);
      ::close(descriptor_);
      fail_input(name, " ", directory_, " is in use by ", holder, " (", path_,
                 "); wait until it ends, or use another output_dir");
    }
    // The previous owner may have removed the name between the open and the lock.
    if (is_file_at(descriptor_, path_)) break;
    ::close(descriptor_);
  }
  const std::string text = holder_text() + "\n";
  // The text is informative only: the lock is valid without it.
  if (::ftruncate(descriptor_, 0) == 0) append_whole(descriptor_, path_, text);
}

DirectoryLock::~DirectoryLock() {
  // Removed while locked: no other process can have locked this file.
  if (is_file_at(descriptor_, path_)) ::unlink(path_.c_str());
  ::close(descriptor_);
  remove_created();
}

bool DirectoryLock::holds() const {
  struct stat named {};
  if (::lstat(path_.c_str(), &named) != 0 && errno != ENOENT && errno != ENOTDIR)
    return true;  // a file system that does not respond now
  return is_file_at(descriptor_, path_);
}

void DirectoryLock::remove_created() {
  if (created_.empty()) return;
  std::error_code ignored;
  const fs::path top = fs::path(created_).parent_path();
  for (fs::path at = fs::absolute(directory_).lexically_normal(); !at.empty() && at != top;
       at = at.parent_path())
    if (::rmdir(at.c_str()) != 0 && errno != ENOENT) return;
}

}  // namespace trireme
