// Runs a grid of fibers on the calling thread.
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

// The name of the kernel whose threads run on this OS thread, nullptr elsewhere.
const char* running_kernel();
// Whether the address lies in the guard page of a fiber's stack of this OS thread.
bool in_stack_guard(const void* address);

}  // namespace emulator::detail
