// One rank's GPU: its streams, its libraries' handles, its staging memory. Passed as Ctx::gpu;
// nothing here is global. What needs the runtime is implemented in engine/device/cuda/
// (TRIREME_CUDA_DECL).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/device_memory.h"
#include "engine/core/memory.h"

namespace trireme::cuda {

// What can be used on this machine, and if nothing, why. Never throws; no device is opened.
struct DeviceStatus {
  int devices = 0;
  std::string reason = {};  // why there are none: "built without CUDA", "no driver", ...
  std::string runtime = {}, driver = {};  // versions, "13.0"; empty where unknown
};
DeviceStatus device_status();

struct DeviceInfo {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // with opt-in
  int64_t clock_khz = 0;               // the highest of the multiprocessors
};
// Dense TFLOP/s of matrix products with operands of this type that the maker states, without
// sparsity:
// the denominator of MFU. Of float32 and float64 without tensor cores. 0: not known.
double nominal_tflops(const DeviceInfo& info, DType operands);

// A queue of work in order. raw: the runtime's handle.
struct Stream {
  void* raw = nullptr;
};

class Event {
 public:
  Event() = default;
  explicit Event(void* raw) : raw_(raw) {}
  Event(Event&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~Event();
  void* raw() const { return raw_; }

 private:
  void* raw_ = nullptr;
};

class WaitTimes;    // engine/device/cuda/wait_times.h
class LaunchTimes;  // engine/device/launch_times.h
class Staging;      // engine/device/cuda/staging.h

// Which implementation computed attention.
enum class AttentionPath { kCudnn, kTensorCores, kPlain, kPagedTensorCores, kPagedPlain };
inline constexpr size_t kAttentionPaths = 5;

// A library's handle on one device, of a room above that defines and uses it; the context owns it.
struct LibraryHandle {
  LibraryHandle() = default;
  LibraryHandle(const LibraryHandle&) = delete;
  LibraryHandle& operator=(const LibraryHandle&) = delete;
  virtual ~LibraryHandle() = default;
};

// Made on the thread that will use it, whose current device it sets; one thread uses it.
struct Context {
  Context() = default;
  virtual ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int device = 0;
  DeviceInfo info;
  Stream main;                               // compute
  Stream comm;                               // collectives beside it
  std::shared_ptr<LibraryHandle> blas;       // cuBLASLt's
  std::shared_ptr<LibraryHandle> attention;  // cuDNN's; null: our own kernels attend
  std::string no_attention;                  // why it is null
  std::shared_ptr<Staging> staging;
  std::shared_ptr<WaitTimes> waits;
  std::shared_ptr<LaunchTimes> times;  // null: calls are not timed
  bool deterministic = true;
  bool autotune = false;  // time the library's algorithms for each product once; not reproducible
  bool synchronous = false;          // wait after every launch, so that a fault is named by its op
  int64_t launches = 0;              // kernels and library calls so far
  std::optional<bool> kernels_wait;  // in begin_kernel() (launch.h); the first launch tells
  bool capturing = false;            // inside capture() of engine/device/graph.h
  int64_t library_moves = 0;  // of libraries' working memory, whose address is in recorded work
  // Calls by AttentionPath; those of recorded work count when it is recorded.
  std::array<int64_t, kAttentionPaths> attention_calls = {};
  std::vector<std::string> notes;  // what a library refused, once each; who logs takes them
};

// "cudnn 48, paged tensor cores 12"; "none" without a call.
std::string attention_paths(const Context& gpu);
// How the library's algorithm of a matrix product is chosen: "heuristic" or "timed".
std::string gemm_choice(const Context& gpu);
inline void count_attention(Context& gpu, AttentionPath path) {
  ++gpu.attention_calls[static_cast<size_t>(path)];
}

// Throws InputError when device number `device` cannot be used, naming the reason.
std::unique_ptr<Context> open(int device);

// --- implemented with the runtime
// ---------------------------------------------------------------------

TRIREME_CUDA_DECL DeviceStatus probe_devices();
TRIREME_CUDA_DECL std::unique_ptr<Context> open_device(int device);

// Makes the calling thread use the context's device; each thread that works with it, once.
TRIREME_CUDA_DECL void use_device(const Context& gpu);

// dst = src for `bytes` bytes, on `stream`, between host and device in any direction. A host
// address must be pinned memory that stays until the stream is there.
TRIREME_CUDA_DECL void copy_async(Context& gpu, const Stream& stream, void* dst, const void* src,
                                  int64_t bytes);
// The same from pageable memory, on the main stream, through staging memory: src may be changed at
// once.
TRIREME_CUDA_DECL void upload(Context& gpu, void* device, const void* host, int64_t bytes);
// To pageable memory; waits for the main stream. Not for use inside a step.
TRIREME_CUDA_DECL void download(Context& gpu, void* host, const void* device, int64_t bytes);
TRIREME_CUDA_DECL void fill_bytes(Context& gpu, const Stream& stream, void* device, int value,
                                  int64_t bytes);

TRIREME_CUDA_DECL Event make_event(Context& gpu);
TRIREME_CUDA_DECL void destroy_event(void* raw);
TRIREME_CUDA_DECL void record(const Event& event, const Stream& stream);
TRIREME_CUDA_DECL void wait(const Stream& stream,
                            const Event& event);  // the stream waits, not the host
// The main stream waits for work of another, and the time it stands is measured there: what
// communication costs that nothing hides. waits_counted: waits whose times were not taken so far.
// take_wait_seconds: of the first `count` of them, which the stream must be through with.
TRIREME_CUDA_DECL void wait_for(Context& gpu, const Event& event);
TRIREME_CUDA_DECL int64_t waits_counted(const Context& gpu);
TRIREME_CUDA_DECL double take_wait_seconds(Context& gpu, int64_t count);
TRIREME_CUDA_DECL bool done(const Event& event);
TRIREME_CUDA_DECL void synchronize(const Event& event);  // the host waits
TRIREME_CUDA_DECL void synchronize(Context& gpu, const Stream& stream);

}  // namespace trireme::cuda
