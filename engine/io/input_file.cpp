#include "engine/io/input_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "engine/core/error.h"
#include "engine/io/file_error.h"

namespace trireme {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown kind";
}

// Unnamed pipe: opening it does not wait for a writer.
bool is_anonymous_pipe(const std::string& path, mode_t mode) {
  struct statfs info {};
  return S_ISFIFO(mode) && ::statfs(path.c_str(), &info) == 0 && info.f_type == PIPEFS_MAGIC;
}

}  // namespace

void fail_file_type(const std::string& path, mode_t mode) {
  fail_input("cannot read ", path, ": it is ", kind_of(mode), ", not a file");
}

void fail_shrunk(const std::string& path, int64_t bytes) {
  fail_input("cannot read ", path, ": it shrank from ", bytes, " bytes while it was read; ",
             "wait until its writer has finished, or write to another file and rename it");
}

void require_regular_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    fail_file_type(path, info.st_mode);
}

bool is_input_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  if (!S_ISREG(info.st_mode)) fail_file_type(path, info.st_mode);
  return true;
}

void require_file_or_pipe(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) return;
  if (!is_anonymous_pipe(path, info.st_mode)) fail_file_type(path, info.st_mode);
}

int open_regular_file(const std::string& path, const char* action) {
  // Opening a socket fails with a reason that does not help the user.
  require_regular_file(path);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail_file(action, path, errno);
  struct stat info {};
  if (::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode)) return descriptor;
  ::close(descriptor);
  fail_file_type(path, info.st_mode);  // replaced in between
}

std::string read_exactly(int descriptor, int64_t bytes, const std::string& path) {
  std::string contents(static_cast<size_t>(bytes), '\0');
  size_t done = 0;
  while (done < contents.size()) {
    const ssize_t got = ::read(descriptor, contents.data() + done, contents.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_file("read", path, errno);
    if (got == 0) fail_shrunk(path, bytes);
    done += static_cast<size_t>(got);
  }
  return contents;
}

}  // namespace trireme
