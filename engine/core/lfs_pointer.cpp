#include "engine/core/lfs_pointer.h"

#include "engine/core/error.h"

namespace trireme {

void refuse_lfs_pointer(std::string_view head, const std::string& path) {
  if (!head.starts_with("version https://git-lfs")) return;
  fail_input(path, ": is a Git LFS pointer and not the file itself; fetch the files: ",
             "git lfs install && git lfs pull, in the cloned directory");
}

void refuse_lfs_pointer(std::span<const std::byte> head, const std::string& path) {
  refuse_lfs_pointer({reinterpret_cast<const char*>(head.data()), head.size()}, path);
}

}  // namespace trireme
