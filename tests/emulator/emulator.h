// Emulator that runs CUDA programs on the CPU and detects errors that a GPU would hide. The
// program's sources are compiled by a plain C++20 compiler with TRIREME_EMULATED=1 and
// tests/emulator/include first in the include path. This header is for engine/device/launch.h,
// library stand-ins and tests.
//
// Streams are lazy: kernels, asynchronous copies, event records and waits are queued, and run only
// when something waits for them: a synchronization of the stream, of an event recorded in it, or of
// the device, a synchronous copy, or another stream that waits for its event. A missing wait
// therefore always gives wrong results. cudaStreamQuery and cudaEventQuery run one queued operation
// each, so that polling ends. The null stream waits for blocking streams and they for it; it does
// not wait for non-blocking ones.
// Copies from pageable memory read the bytes at the call; copies to pageable memory finish before
// the call returns (and count as a synchronization); copies access pinned memory when they run.
//
// Device memory is accessible only while queued work runs; at other times a host access stops the
// program with "the host touched device memory at ...". (An access while another thread's work runs
// is not detected.) New device memory holds 0xFF bytes. After each allocation there is a red zone,
// which cudaFree and cudaDeviceSynchronize check. Freed memory stays inaccessible. A misuse that is
// undefined in the real runtime prints a line that begins with "emulator:" and names the call, and
// aborts; errors that the real runtime returns are returned.
//
// A kernel's threads are fibers: blocks run one after the other, a thread until its next barrier or
// warp collective. A barrier that not all threads reach stops the program and reports the missing
// ones. Under ThreadSanitizer only barriers order the threads of a block, so that a missing
// __syncthreads is reported as a data race. Races between blocks are not detected: run twice with
// both orders (set_order) and compare bits. Also not detected: the rest of the device's memory
// model, host pointers that a kernel receives inside a structure in memory, and static shared
// memory that is read before it is written.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace emulator {

// Arguments of a kernel as words that may be addresses. A launch is refused ("emulator: ...") when
// a pointer refers to host memory, freed memory or another device, and cudaFree when queued kernels
// still use the memory.
class Arguments {
 public:
  Arguments() = default;
  // function: the kernel, for its limit of dynamic shared memory (cudaFuncSetAttribute).
  template <class... A>
  static Arguments of(const void* function, const A&... arguments) {
    Arguments result;
    result.function = function;
    static_assert((std::is_trivially_copyable_v<A> && ...));
    (result.add_value(arguments), ...);
    return result;
  }

  const void* function = nullptr;
  std::vector<std::uintptr_t> words;

 private:
  template <class A>
  void add_value(A argument) {
    // Padding holds stale bytes of the stack, which may look like an address. Clang 16 cannot clear
    // it: there, structs that may have padding are skipped.
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&argument);
    add(&argument, sizeof(A));
#else
    if constexpr (std::has_unique_object_representations_v<A>) add(&argument, sizeof(A));
#endif
  }
  void add(const void* argument, std::size_t bytes);
};

// Queues a kernel. body: call of the kernel function, executed once by each thread of each block.
// Returns (and keeps for cudaGetLastError) the error of the real launch.
cudaError_t launch(cudaStream_t stream, const char* name, dim3 grid, dim3 block,
                   std::size_t shared_bytes, std::function<void()> body, Arguments arguments = {});

// Dynamic shared memory of the running block, 128-byte aligned; filled with 0xFF bytes when the
// block starts.
void* dynamic_shared();

// Queues work of a library stand-in. It runs as one piece on a host thread, with device memory
// accessible, and may wait for other streams' work only through block_until.
cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> work);

// Waits inside queued work, for example in a collective for the other ranks. The host threads of
// those ranks may themselves wait for this rank outside of CUDA, so that after a while helper
// threads run other streams that have queued work. Polls `ready` without holding a lock.
void block_until(const std::function<bool()>& ready);

// Counts since the last reset, over all devices and threads.
struct Counters {
  std::map<std::string, std::int64_t> launches;          // by name: kernels, enqueued work
  std::map<std::string, std::int64_t> synchronizations;  // by call: "cudaStreamSynchronize"...
  std::int64_t blocks = 0;                               // of all launched kernels
  std::int64_t bytes_to_device = 0, bytes_to_host = 0, bytes_on_device = 0;
  std::int64_t allocations = 0, frees = 0;  // of device memory
  std::int64_t graph_launches = 0;

  std::int64_t launched() const;
  std::int64_t synchronized() const;
};
Counters counters();

// Resets the counters, the device count (one), the order and the memory size, and clears a pending
// error. Aborts where streams still hold work or device memory was not freed: a defect of the
// program before.
void reset();

void set_devices(int count);                // 0: every call returns cudaErrorNoDevice
void set_device_memory(std::size_t bytes);  // per device; default 16 GiB
enum class Order { kForward, kBackward };
void set_order(Order order);  // of a grid's blocks and a block's threads

// Makes device memory accessible to a test. Synchronize before: no work may be queued.
class ScopedDeviceAccess {
 public:
  ScopedDeviceAccess();
  ~ScopedDeviceAccess();
  ScopedDeviceAccess(const ScopedDeviceAccess&) = delete;
  ScopedDeviceAccess& operator=(const ScopedDeviceAccess&) = delete;
};

}  // namespace emulator
