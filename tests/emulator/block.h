// Execution of a grid of fibers on the calling thread.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <functional>

namespace emulator::detail {

struct GridShape {
  const char* name;
  dim3 grid, block;
  std::size_t shared_bytes;
  bool backward;
};
void run_grid(const GridShape& shape, const std::function<void()>& body);

// Name of the kernel whose threads run on this OS thread, nullptr if none.
const char* running_kernel();
// Returns whether the address is in the guard page of a fiber's stack of this OS thread.
bool in_stack_guard(const void* address);

}  // namespace emulator::detail
