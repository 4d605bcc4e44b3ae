// Runs CUDA programs on the CPU, in a way that finds the mistakes a GPU would hide. The program's
// sources are compiled by a plain C++20 compiler with TRIREME_EMULATED=1 and tests/emulator/include
// first in the include path; this header is for engine/device/launch.h, for stand-ins of libraries
// and for tests.
//
// Streams are lazy: kernels, asynchronous copies, event records and waits are queued, and run only
// when something waits for them: a synchronisation of the stream, of an event recorded in it, of
// the device, a synchronous copy, or another stream that waits for its event. A missing wait
// therefore gives wrong results, always. cudaStreamQuery and cudaEventQuery run one queued
// operation each, so polling ends. The null stream waits for blocking streams and they for it; it
// does not wait for non-blocking ones.
// Copies from pageable memory take the bytes at the call; copies to pageable memory finish before
// the call returns (and count as a synchronisation); pinned memory is touched when the copy runs.
//
// Device memory is open only while queued work runs; at other times a host access stops the program
// with "the host touched device memory at ...". (While another thread's work runs it goes unseen.)
// New device memory holds 0xFF bytes. What follows an allocation is a red zone, checked at cudaFree
// and cudaDeviceSynchronize. Freed memory stays closed.
// A misuse that the real runtime would leave undefined prints a line that begins with "emulator:"
// and names the call, and aborts; errors that the real runtime returns are returned.
//
// A kernel's threads are fibers: a block runs after the other, a thread until its next barrier or
// warp collective. A barrier that not all threads reach stops the program and says who is missing.
// Under ThreadSanitizer only barriers order the threads of a block, so a missing __syncthreads is
// reported as a data race. Races between blocks are not seen: run twice with both orders
// (set_order) and compare bits.
// Not seen: the device's memory model beyond that, host pointers that a kernel gets inside a
// structure in memory, static shared memory that is used before it is written.
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

// What a kernel gets: the words of its arguments that may be addresses. With them a launch is
// refused ("emulator: ...") when a pointer leads into host memory, freed memory or another device,
// and cudaFree when queued kernels still use the memory.
class Arguments {
 public:
  Arguments() = default;
  // `function` is the kernel, for its limit of dynamic shared memory (cudaFuncSetAttribute).
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
    // Padding holds stale bytes of the stack, perhaps an address. Clang 16 cannot clear it: there
    // structs that may have padding are skipped.
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(&argument);
    add(&argument, sizeof(A));
#else
    if constexpr (std::has_unique_object_representations_v<A>) add(&argument, sizeof(A));
#endif
  }
  void add(const void* argument, std::size_t bytes);
};

// Queues a kernel: `body` is the call of the kernel function, made once by each thread of each
// block. Returns (and keeps for cudaGetLastError) the error that the real launch would.
cudaError_t launch(cudaStream_t stream, const char* name, dim3 grid, dim3 block,
                   std::size_t shared_bytes, std::function<void()> body, Arguments arguments = {});

// Dynamic shared memory of the running block, 128-byte aligned; 0xFF bytes when the block starts.
void* dynamic_shared();

// Queues work of a library's stand-in, which runs as one piece on some host thread with device
// memory open. It may wait for other streams' work only through block_until.
cudaError_t enqueue(cudaStream_t stream, const char* name, std::function<void()> work);

// Waits inside queued work, as a collective does for the other ranks. Since the host threads of
// those may themselves be waiting for this rank outside of CUDA, other streams with queued work
// are run by helper threads after a while. `ready` is asked every now and then without any lock.
void block_until(const std::function<bool()>& ready);

// What happened since the last reset, over all devices and threads.
struct Counters {
  std::map<std::string, std::int64_t> launches;          // by name: kernels, enqueued work
  std::map<std::string, std::int64_t> synchronisations;  // by the call: "cudaStreamSynchronize"...
  std::int64_t blocks = 0;                               // of all kernels launched
  std::int64_t bytes_to_device = 0, bytes_to_host = 0, bytes_on_device = 0;
  std::int64_t allocations = 0, frees = 0;  // of device memory
  std::int64_t graph_launches = 0;

  std::int64_t launched() const;
  std::int64_t synchronised() const;
};
Counters counters();

// Counters to zero, one device, the default order and memory size, no error pending. Streams that
// still hold work or device memory that is not freed are a failure of the program before: aborts.
void reset();

void set_devices(int count);                // 0: every call says cudaErrorNoDevice
void set_device_memory(std::size_t bytes);  // what one device has; 16 GiB
enum class Order { kForward, kBackward };
void set_order(Order order);  // in which a grid's blocks and a block's threads run

// Opens device memory to the test that looks into it. No queued work may be in doubt: synchronise.
class ScopedDeviceAccess {
 public:
  ScopedDeviceAccess();
  ~ScopedDeviceAccess();
  ScopedDeviceAccess(const ScopedDeviceAccess&) = delete;
  ScopedDeviceAccess& operator=(const ScopedDeviceAccess&) = delete;
};

}  // namespace emulator
