// Stream operations: kernels, library work, copies and fills.
#include <cstring>
#include <memory>

#include "tests/emulator/block.h"
#include "tests/emulator/fiber.h"
#include "tests/emulator/kernels.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/report.h"
#include "tests/emulator/stream.h"

namespace emulator {

using namespace detail;

namespace {

constexpr std::size_t kSharedDefault = 48 << 10, kSharedLargest = 227 << 10;

bool grid_fits(dim3 grid, dim3 block) {
  const bool some = grid.x && grid.y && grid.z && block.x && block.y && block.z;
  return some && grid.x <= 0x7fffffffu && grid.y <= 65535 && grid.z <= 65535 && block.x <= 1024 &&
         block.y <= 1024 && block.z <= 64 && std::uint64_t{block.x} * block.y * block.z <= 1024;
}

std::size_t shared_limit(const void* function) {
  const Lock lock(state().mutex);
  if (!function) return kSharedLargest;
  const auto found = state().shared_limits.find(function);
  return found == state().shared_limits.end() ? kSharedDefault
                                              : static_cast<std::size_t>(found->second);
}

// Kernels launched so far; call with the lock held.
std::set<const void*>& launched() {
  static std::set<const void*>& the = *new std::set<const void*>;
  return the;
}

// Below this address the program has no memory, and numbers would be taken for addresses: the
// sanitizers map their own data there.
#if TRIREME_EMULATOR_ASAN || TRIREME_EMULATOR_TSAN
constexpr std::uintptr_t kLowestAddress = 0x100000000000;
#else
constexpr std::uintptr_t kLowestAddress = 65536;
#endif

// Allocations that the words point into. Refuses pointers that a kernel cannot use.
std::vector<std::uintptr_t> check_words(const char* name, const Arguments& arguments) {
  std::vector<std::uintptr_t> memory;
  for (const std::uintptr_t word : arguments.words) {
    if (word < kLowestAddress || word >> 47) continue;  // not an address of this process
    const Region r = find_region(reinterpret_cast<const void*>(word));
    const auto shown = static_cast<std::size_t>(word);
    if (r.where == Where::kFreed)
      die("kernel %s: an argument points into freed device memory (0x%zx)", name, shown);
    if (r.where == Where::kPageable && is_mapped(word))
      die("kernel %s: an argument points into host memory (0x%zx)", name, shown);
    if (r.where != Where::kDevice) continue;
    if (r.device != current_device())
      die("kernel %s: an argument points into memory of device %d, it runs on device %d", name,
          r.device, current_device());
    memory.push_back(r.start);
  }
  return memory;
}

}  // namespace

void Arguments::add(const void* argument, std::size_t bytes) {
  const char* from = static_cast<const char*>(argument);
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
    std::uintptr_t word = 0;
    std::memcpy(&word, from + at, sizeof(word));
    words.push_back(word);
  }
}

cudaError_t launch(cudaStream_t stream, const char* name, dim3 grid, dim3 block,
                   std::size_t shared_bytes, std::function<void()> body, Arguments arguments) {
  if (!enter(name)) return keep(cudaErrorNoDevice);
  if (!grid_fits(grid, block)) return keep(cudaErrorInvalidConfiguration);
  if (shared_bytes > shared_limit(arguments.function)) return keep(cudaErrorInvalidValue);
  Operation operation;
  operation.name = name;
  operation.memory = check_words(name, arguments);
  operation.run = [kernel = std::string(name), grid, block, shared_bytes, body = std::move(body)] {
    Order order{};
    {
      const Lock lock(state().mutex);
      order = state().order;
    }
    const bool backward = order == Order::kBackward;
    run_grid({kernel.c_str(), grid, block, shared_bytes, backward}, body);
  };
  const cudaError_t error = add(stream, std::move(operation));
  if (error == cudaSuccess) {
    const Lock lock(state().mutex);
    ++state().counters.launches[name];
    state().counters.blocks += std::int64_t{grid.x} * grid.y * grid.z;
    launched().insert(arguments.function);
  }
  return keep(error);
}

std::set<const void*> launched_kernels() {
  const Lock lock(state().mutex);
  return launched();
}

cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> work) {
  if (!enter(name)) return keep(cudaErrorNoDevice);
  Operation operation;
  operation.name = name;
  operation.run = std::move(work);
  const cudaError_t error = add(stream, std::move(operation));
  if (error == cudaSuccess) {
    const Lock lock(state().mutex);
    ++state().counters.launches[name];
  }
  return keep(error);
}

}  // namespace emulator

namespace {

using namespace emulator::detail;

// A copy of rows; a plain copy is one row.
struct Copy {
  const char* call;
  char* to;
  const char* from;
  std::size_t to_pitch, from_pitch, width, height;

  std::size_t bytes() const { return width * height; }
  std::size_t span(std::size_t pitch) const { return (height - 1) * pitch + width; }
  void run(const char* source, std::size_t pitch) const {
    for (std::size_t row = 0; row < height; ++row)
      std::memmove(to + row * to_pitch, source + row * pitch, width);
  }
};

bool on_device(const void* pointer) {
  const Where where = find_region(pointer).where;
  return where == Where::kDevice || where == Where::kFreed;
}

void require_host(const char* call, const void* pointer, std::size_t bytes) {
  const Region r = find_region(pointer);
  const auto shown = reinterpret_cast<std::size_t>(pointer);
  if (r.where == Where::kDevice || r.where == Where::kFreed)
    die("%s: 0x%zx is device memory, not host memory", call, shown);
  if (r.where == Where::kPinned && bytes > r.bytes - (shown - r.start))
    die("%s: %zu bytes at 0x%zx end outside the pinned memory of %zu bytes", call, bytes, shown,
        r.bytes);
}

// Checks the addresses against the direction; cudaMemcpyDefault derives it from the addresses.
cudaMemcpyKind check_kind(const Copy& c, cudaMemcpyKind kind) {
  const bool to_device = on_device(c.to), from_device = on_device(c.from);
  if (kind == cudaMemcpyDefault)
    kind = static_cast<cudaMemcpyKind>((from_device ? 2 : 0) + (to_device ? 1 : 0));
  const bool wants_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool wants_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const int from_number = find_region(c.from).device, to_number = find_region(c.to).device;
  if (wants_from)
    require_device(c.call, c.from, c.span(c.from_pitch), from_number);
  else
    require_host(c.call, c.from, c.span(c.from_pitch));
  if (wants_to)
    require_device(c.call, c.to, c.span(c.to_pitch), to_number);
  else
    require_host(c.call, c.to, c.span(c.to_pitch));
  return kind;
}

void count_copy(const Copy& c, cudaMemcpyKind kind) {
  const Lock lock(state().mutex);
  auto& counters = state().counters;
  const auto bytes = static_cast<std::int64_t>(c.bytes());
  if (kind == cudaMemcpyHostToDevice) counters.bytes_to_device += bytes;
  if (kind == cudaMemcpyDeviceToHost) counters.bytes_to_host += bytes;
  if (kind == cudaMemcpyDeviceToDevice) counters.bytes_on_device += bytes;
}

bool capturing(cudaStream_t handle) {
  const Lock lock(state().mutex);
  const auto stream = find_stream(handle);
  return stream && stream->capture;
}

// Work of a copy. A pageable source is read at the call; in a captured graph, at each launch.
std::function<void()> copy_work(const Copy& c, cudaMemcpyKind kind, bool captured) {
  const bool take =
      kind == cudaMemcpyHostToDevice && !captured && find_region(c.from).where == Where::kPageable;
  if (!take) return [c] { c.run(c.from, c.from_pitch); };
  auto bytes = std::make_shared<std::vector<char>>(c.bytes());
  for (std::size_t row = 0; row < c.height; ++row)
    std::memcpy(bytes->data() + row * c.width, c.from + row * c.from_pitch, c.width);
  return [c, bytes] { c.run(bytes->data(), c.width); };
}

void synchronize(const char* call, cudaStream_t handle) {
  Lock lock(state().mutex);
  count_synchronization(call);
  const auto stream = find_stream(handle);
  run_until(stream, stream->issued, lock);
}

cudaError_t copy(Copy c, cudaMemcpyKind kind, cudaStream_t stream, bool wait) {
  if (!enter(c.call)) return keep(cudaErrorNoDevice);
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
    return keep(cudaErrorInvalidMemcpyDirection);
  if (c.width > c.to_pitch || c.width > c.from_pitch) return keep(cudaErrorInvalidPitchValue);
  if (c.bytes() == 0) return cudaSuccess;
  if (!c.to || !c.from) return keep(cudaErrorInvalidValue);
  if (wait) {
    Lock lock(state().mutex);
    if (const cudaError_t error = refuse_in_capture(lock)) return keep(error);
  }
  kind = check_kind(c, kind);
  const bool captured = capturing(stream);
  Operation operation;
  operation.name = c.call;
  for (const void* side : {static_cast<const void*>(c.to), static_cast<const void*>(c.from)})
    if (on_device(side)) operation.memory.push_back(find_region(side).start);
  operation.run = copy_work(c, kind, captured);
  if (const cudaError_t error = add(stream, std::move(operation))) return keep(error);
  count_copy(c, kind);
  const bool to_pageable =
      kind == cudaMemcpyDeviceToHost && find_region(c.to).where == Where::kPageable;
  if (wait)
    synchronize(c.call, stream);
  else if (to_pageable && !captured)
    synchronize("cudaMemcpyAsync to pageable memory", stream);
  return cudaSuccess;
}

Copy plain(const char* call, void* to, const void* from, std::size_t bytes) {
  return {call, static_cast<char*>(to), static_cast<const char*>(from), bytes, bytes, bytes, 1};
}

cudaError_t fill(const char* call, void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (!enter(call)) return keep(cudaErrorNoDevice);
  if (bytes == 0) return cudaSuccess;
  if (!to) return keep(cudaErrorInvalidValue);
  require_device(call, to, bytes, current_device());
  Operation operation;
  operation.name = call;
  operation.memory.push_back(find_region(to).start);
  operation.run = [to, value, bytes] { std::memset(to, value, bytes); };
  return keep(add(stream, std::move(operation)));
}

}  // namespace

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return copy(plain("cudaMemcpy", to, from, bytes), kind, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(plain("cudaMemcpyAsync", to, from, bytes), kind, stream, false);
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  return copy({"cudaMemcpy2D", static_cast<char*>(to), static_cast<const char*>(from), to_pitch,
               from_pitch, width, height},
              kind, nullptr, true);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return copy({"cudaMemcpy2DAsync", static_cast<char*>(to), static_cast<const char*>(from),
               to_pitch, from_pitch, width, height},
              kind, stream, false);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return fill("cudaMemset", to, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return fill("cudaMemsetAsync", to, value, bytes, stream);
}
