// Shared libraries that are loaded when a device is opened, so that a program built with CUDA
// starts fast and runs on machines without them. Search order: the loader's own (LD_LIBRARY_PATH,
// its cache), then the library folder of the CUDA toolkit used for the build.
#pragma once

#include <string>

namespace trireme::cuda {

// Library that stays loaded for the life of the process, because it keeps threads and device state.
struct SharedLibrary {
  void* handle = nullptr;
  std::string name;    // "libcublasLt.so.13"
  std::string reason;  // why it could not be loaded, if not present()
  bool present() const { return handle != nullptr; }
};
SharedLibrary open_shared_library(std::string name);

// Throws InputError if the library lacks the function: its version differs from the headers'.
void* find_function(const SharedLibrary& library, const char* function);

// Sets `function` to the library's function of that name.
template <class F>
void load_function(const SharedLibrary& library, F*& function, const char* name) {
  function = reinterpret_cast<F*>(find_function(library, name));
}

}  // namespace trireme::cuda
