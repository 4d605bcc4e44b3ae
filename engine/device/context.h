// One rank's GPU: its streams, library handles and staging memory. Passed as Ctx::gpu; no globals.
// Functions that need the CUDA runtime are implemented in engine/device/cuda/ (TRIREME_CUDA_DECL).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/device_memory.h"
#include "engine/core/memory.h"

namespace trireme::cuda {

// GPUs visible to this process (CUDA_VISIBLE_DEVICES), or the reason for having none. If one of
// them has a compute capability below 8.0, none counts. Never throws; opens no device.
struct DeviceStatus {
  int devices = 0;
  std::string reason = {};  // why there are no devices: "built without CUDA", "no driver", ...
  std::string runtime = {}, driver = {};  // CUDA versions, "13.0"; empty if unknown
};
DeviceStatus device_status();

struct DeviceInfo {
  std::string name;
  int compute_major = 0, compute_minor = 0;
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  int64_t shared_bytes_per_block = 0;  // maximum, with opt-in
  int64_t clock_khz = 0;               // maximum multiprocessor clock
};
// Vendor's nominal peak of matrix products with operands of this type, in dense TFLOP/s (without
// sparsity), lowered to the device's maximum clock: the denominator of MFU. float32 and float64:
// without tensor cores; any other type: as 16-bit floats. 0: unknown compute capability.
double nominal_tflops(const DeviceInfo& info, DType operands);

// In-order queue of device work; does not own it. raw: a cudaStream_t.
struct Stream {
  void* raw = nullptr;
};

// Owner of a cudaEvent_t.
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

// Implementation that computed attention.
enum class AttentionPath { kCudnn, kTensorCores, kPlain, kPagedTensorCores, kPagedPlain };
inline constexpr size_t kAttentionPaths = 5;

// A library's handle on one device, owned by the context. Subclasses: BlasLt
// (engine/ops/gemm/blas_lt.cuda.h) and Attention (engine/ops/attention/cudnn_attention.cuda.cpp).
struct LibraryHandle {
  LibraryHandle() = default;
  LibraryHandle(const LibraryHandle&) = delete;
  LibraryHandle& operator=(const LibraryHandle&) = delete;
  virtual ~LibraryHandle() = default;
};

// Context of one GPU, for the thread that opened it, whose current device it becomes. Other threads
// only queue work on `comm`, after use_device().
struct Context {
  Context() = default;
  virtual ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int device = 0;
  DeviceInfo info;
  Stream main;                               // compute
  Stream comm;                               // collectives, concurrent with compute
  std::shared_ptr<LibraryHandle> blas;       // cuBLASLt's
  std::shared_ptr<LibraryHandle> attention;  // cuDNN's; null: our own kernels are used
  std::string no_attention;                  // reason why `attention` is null
  std::shared_ptr<Staging> staging;          // of upload() and download()
  std::shared_ptr<WaitTimes> waits;          // of wait_for()
  std::shared_ptr<LaunchTimes> times;        // null: calls are not timed
  bool deterministic = true;                 // the attention library gives equal calls equal bits
  bool autotune = false;  // time the library's algorithms for each product once; not reproducible
  // Waits after every launch and library call, so that an error names its op.
  bool synchronous = false;
  int64_t launches = 0;              // kernels and library calls so far
  std::optional<bool> kernels_wait;  // all do, in begin_kernel() (launch.h); set at first launch
  bool capturing = false;            // inside capture() of engine/device/graph.h
  int64_t library_moves = 0;  // relocations of libraries' workspaces, whose addresses recorded
                              // work contains
  // Calls by AttentionPath; those of recorded work count when they are recorded.
  std::array<int64_t, kAttentionPaths> attention_calls = {};
  std::vector<std::string>
      notes;  // calls that a library refused, once each; read and cleared by the logging code
};

// "cudnn 48, paged tensor cores 12"; "none" without a call.
std::string attention_paths(const Context& gpu);
// How the library's algorithm for a matrix product is selected: "heuristic" or "timed".
std::string gemm_choice(const Context& gpu);
inline void count_attention(Context& gpu, AttentionPath path) {
  ++gpu.attention_calls[static_cast<size_t>(path)];
}

// Opens device number `device` (from 0, of the visible ones). Throws InputError with the reason if
// there is no such device, Error if a call of the runtime fails.
std::unique_ptr<Context> open(int device);

// --- implemented with the runtime ---

TRIREME_CUDA_DECL DeviceStatus probe_devices();
TRIREME_CUDA_DECL std::unique_ptr<Context> open_device(int device);

// Makes the device the calling thread's current one. Call once on each other thread that uses it.
TRIREME_CUDA_DECL void use_device(const Context& gpu);

// Copies `bytes` bytes from src to dst on `stream`, between host and device in any direction. A
// host address must be pinned memory that stays valid until the stream has run the copy.
TRIREME_CUDA_DECL void copy_async(Context& gpu, const Stream& stream, void* dst, const void* src,
                                  int64_t bytes);
// Copies from pageable memory on the main stream, through staging memory: `host` may be changed as
// soon as it returns.
TRIREME_CUDA_DECL void upload(Context& gpu, void* device, const void* host, int64_t bytes);
// Copies to pageable memory; waits for the main stream. Not for use inside a step.
TRIREME_CUDA_DECL void download(Context& gpu, void* host, const void* device, int64_t bytes);
// Sets `bytes` bytes to `value` (0 to 255) on `stream`.
TRIREME_CUDA_DECL void fill_bytes(Context& gpu, const Stream& stream, void* device, int value,
                                  int64_t bytes);

TRIREME_CUDA_DECL Event make_event(Context& gpu);  // without timing; see timing.h
TRIREME_CUDA_DECL void destroy_event(void* raw);
TRIREME_CUDA_DECL void record(const Event& event, const Stream& stream);
TRIREME_CUDA_DECL void wait(const Stream& stream,
                            const Event& event);  // the stream waits, not the host
// wait_for: makes the main stream wait for work of another stream and measures how long it waits
// there: exposed communication time. At most 16384 waits are counted; while that many are, further
// ones are not measured. pending_wait_count: waits measured and not yet removed. take_wait_seconds:
// removes the first `count` of them, which the stream must have completed, and returns their total.
TRIREME_CUDA_DECL void wait_for(Context& gpu, const Event& event);
TRIREME_CUDA_DECL int64_t pending_wait_count(const Context& gpu);
TRIREME_CUDA_DECL double take_wait_seconds(Context& gpu, int64_t count);
TRIREME_CUDA_DECL bool done(const Event& event);         // all work before record() has completed
TRIREME_CUDA_DECL void synchronize(const Event& event);  // the host waits
TRIREME_CUDA_DECL void synchronize(Context& gpu, const Stream& stream);

}  // namespace trireme::cuda
