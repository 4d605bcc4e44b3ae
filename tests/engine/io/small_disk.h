// File system of a given size for one test, where the process may mount one.
#pragma once

#include <sys/mount.h>

#include <string>

#include "engine/io/atomic_file.h"

namespace trireme::test {

class SmallDisk {
 public:
  SmallDisk(const std::string& path, int64_t bytes) : path_(path) {
    make_directories(path_);
    const std::string options = "size=" + std::to_string(bytes);
    mounted_ = ::mount("none", path_.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }  // false without permission to mount
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
  bool mounted_ = false;
};

}  // namespace trireme::test
