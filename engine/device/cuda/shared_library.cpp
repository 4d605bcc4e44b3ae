#include "engine/device/cuda/shared_library.h"

#include <dlfcn.h>

#include <utility>

#include "engine/core/error.h"

#ifndef TRIREME_CUDA_LIBRARY_DIR
#define TRIREME_CUDA_LIBRARY_DIR ""
#endif

namespace trireme::cuda {

SharedLibrary open_shared_library(std::string name) {
  SharedLibrary library;
  library.name = std::move(name);
  const std::string folder = TRIREME_CUDA_LIBRARY_DIR;
  for (const std::string& path : {library.name, concat(folder, "/", library.name)}) {
    if (path.front() == '/' && folder.empty()) break;
    library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.present()) return library;
    if (!library.reason.empty()) library.reason += "; ";
    library.reason += dlerror();
  }
  return library;
}

void* find_function(const SharedLibrary& library, const char* function) {
  void* const found = dlsym(library.handle, function);
  if (found == nullptr)
    fail_input(
        library.name, " has no function ", function,
        ": it is older than the headers this program was built with; put a newer one first in "
        "LD_LIBRARY_PATH");
  return found;
}

}  // namespace trireme::cuda
