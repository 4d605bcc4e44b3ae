// The table of device and pinned memory, and its protection. All functions may be called by any
// thread; they take the table's own lock, which is never held while work runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulator::detail {

// nullptr: more than the device has. The bytes are 0xFF.
void* allocate_device(int device, std::size_t bytes);
// Aborts with the call's name where the pointer is not the start of device memory that lives.
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
// What an address belongs to; its red zone counts as part.
Region find_region(const void* address);
// Aborts unless [pointer, pointer + bytes) lies in one piece of device memory of `device`.
void require_device(const char* call, const void* pointer, std::size_t bytes, int device);

std::size_t device_bytes_in_use(int device);
std::size_t live_allocations();
void set_capacity(std::size_t bytes);
std::size_t capacity();
// Aborts, naming the call, where something was written behind an allocation of the device.
void check_red_zones(const char* call, int device);

// Device memory is open while the count of opens exceeds that of closes.
void open_device_memory();
void close_device_memory();

// Lets faults on device memory and on fibers' stacks say what they are, before whoever handled
// them.
void handle_faults();

// Whether the page of an address is mapped: telling host pointers from other numbers.
bool is_mapped(std::uintptr_t address);

}  // namespace emulator::detail
