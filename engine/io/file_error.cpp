#include "engine/io/file_error.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string advice(int error_number, const std::string& path, int64_t bytes_needed) {
  std::string needed;
  if (bytes_needed > 0) {
    const std::optional<int64_t> free = free_bytes_at(path);
    needed = concat(bytes_needed, " more bytes are needed, ",
                    free ? std::to_string(*free) : std::string("an unknown number"), " are free; ");
  }
  switch (error_number) {
    case ENOSPC: return needed + "free some space there or choose a directory on another disk";
    case EDQUOT:
      return needed + "the user's disk quota is used up: raise it or choose another disk";
    case EFBIG:
      return needed + "the file size limit of this process is reached: raise it (ulimit -f)";
    case EACCES:
    case EPERM: return "check who owns it and its permissions, or choose another directory";
    case EROFS: return "the file system is mounted read-only: choose another directory";
    case ENOENT: return "check the path";
    case ENOTDIR: return "a part of the path is a file: choose another directory";
    case ELOOP: return "it is a symbolic link: remove it";
    case EISDIR: return "it is a directory: give the path of a file";
    case EMFILE:
    case ENFILE: return "too many files are open: raise the limit (ulimit -n)";
    default: return needed + "check the disk and the path";
  }
}

}  // namespace

void fail_file(const char* action, const std::string& path, int error_number,
               int64_t bytes_needed) {
  throw FileError(concat("cannot ", action, " ", path, ": ", std::strerror(error_number), "; ",
                         advice(error_number, path, bytes_needed)),
                  path, error_number);
}

bool is_present(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return true;
  const int error_number = errno;
  if (error_number != ENOENT || ::lstat(path.c_str(), &info) == 0)
    fail_file("inspect", path, error_number);
  return false;
}

std::optional<int64_t> free_bytes_at(const std::string& path) {
  fs::path place = fs::absolute(path);
  while (!fs::exists(place) && place.has_relative_path()) place = place.parent_path();
  struct statvfs info {};
  if (::statvfs(place.c_str(), &info) != 0) return std::nullopt;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

}  // namespace trireme
