// Libraries that are opened when a device is, so that a program built with CUDA starts fast and
// runs on machines that have none of them. Looked for where the loader looks (LD_LIBRARY_PATH, its
// cache), then in the library folder of the toolkit this was built with.
#pragma once

#include <string>

namespace trireme::cuda {

// Stays open for the life of the process: these libraries keep threads and device state.
struct SharedLibrary {
  void* handle = nullptr;
  std::string name;    // "libcublasLt.so.13"
  std::string reason;  // why it could not be opened
  bool present() const { return handle != nullptr; }
};
SharedLibrary open_shared_library(std::string name);

// Throws InputError where the library lacks the function: it is another version than the headers.
void* find_function(const SharedLibrary& library, const char* function);

// function = the library's function of that name.
template <class F>
void load_function(const SharedLibrary& library, F*& function, const char* name) {
  function = reinterpret_cast<F*>(find_function(library, name));
}

}  // namespace trireme::cuda
