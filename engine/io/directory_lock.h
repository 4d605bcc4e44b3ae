// Exclusive use of a directory: an advisory lock (flock) on a file in it, for the life of this
// object.
//
// The kernel releases the lock when the process ends, SIGKILL included. The file identifies the
// owner: process, host, start time. Releasing removes the file, and the directories that were
// created for it if they are still empty.
#pragma once

#include <string>

namespace trireme {

inline constexpr const char* kLockName = "run.lock";

class DirectoryLock {
 public:
  // Creates the directory if absent. `name` denotes it in messages ("output_dir"). Throws
  // InputError naming the owner if the lock is held, or the reason if the directory or the file
  // cannot be created.
  DirectoryLock(const std::string& name, const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

  // Whether the directory's path still leads to the locked file: false once it was removed, moved
  // or replaced; true while the path cannot be inspected for any other reason (I/O error).
  bool holds() const;
  // Warning that the file system has no locks and the directory is not protected; else empty.
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
