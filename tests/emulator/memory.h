// Table of device and pinned memory, and its protection. All functions are thread-safe: they take
// the table's own lock, which is never held while work runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulator::detail {

// nullptr: more than the free device memory. Filled with 0xFF bytes.
void* allocate_device(int device, std::size_t bytes);
// Aborts with the call's name where the pointer is not the start of live device memory.
void free_device(const char* call, void* pointer);
void* allocate_pinned(std::size_t bytes);
bool free_pinned(void* pointer);

enum class Where { kPageable, kPinned, kDevice, kFreed };
struct Region {
  Where where = Where::kPageable;
  std::uintptr_t start = 0;
  std::size_t bytes = 0;
  int device = 0;
};
// Region that an address belongs to; its red zone counts as part of it.
Region find_region(const void* address);
// Aborts unless [pointer, pointer + bytes) is inside one allocation of `device`.
void require_device(const char* call, const void* pointer, std::size_t bytes, int device);

std::size_t device_bytes_in_use(int device);
std::size_t live_allocations();
void set_capacity(std::size_t bytes);
std::size_t capacity();
// Aborts, naming the call, where a red zone after an allocation of the device was written.
void check_red_zones(const char* call, int device);

// Device memory is accessible while open calls outnumber close calls.
void open_device_memory();
void close_device_memory();

// Installs a handler that describes faults on device memory and fiber stacks before it calls the
// previous handler.
void handle_faults();

// Returns whether the page of an address is mapped: distinguishes host pointers from other numbers.
bool is_mapped(std::uintptr_t address);

}  // namespace emulator::detail
