// Exclusive use of a directory: an advisory lock (flock) on a file in it, held for the life of this
// object.
//
// The kernel releases the lock when the process ends, SIGKILL included. The file says who holds it:
// process, host, since when. Releasing removes it, and the directories that were created for it if
// they are still empty.
#pragma once

#include <string>

namespace trireme {

inline constexpr const char* kLockName = "run.lock";

class DirectoryLock {
 public:
  // Creates the directory where it is absent. `name`: what messages call it ("output_dir").
  // InputError that names the holder where another process has the lock, or the reason where the
  // directory cannot be created.
  DirectoryLock(const std::string& name, const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  // Whether the directory's name still leads to the file that is locked: false once it was removed,
  // moved or replaced.
  bool holds() const;
  // Where the file system has no locks: a warning that says so; else empty.
  const std::string& warning() const { return warning_; }

 private:
  void open(const std::string& name);
  void remove_created();

  std::string directory_, path_;
  std::string created_;  // topmost directory that did not exist; empty: all did
  std::string warning_;
  int descriptor_ = -1;
};

}  // namespace trireme
