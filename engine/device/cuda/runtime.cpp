#include <cuda_runtime.h>

#include <limits>

#include "engine/device/cuda/launch_times.h"
#include "engine/device/cuda/libraries.h"
#include "engine/device/cuda/staging.h"
#include "engine/device/cuda/wait_times.h"
#include "engine/device/launch.h"

#ifndef TRIREME_EMULATED
#include <nvtx3/nvToolsExt.h>
#endif

namespace trireme::cuda {
namespace {

constexpr int kMinCapability = 8;  // Ampere: the oldest architecture that kernels are compiled
                                   // for

cudaStream_t handle(const Stream& stream) { return static_cast<cudaStream_t>(stream.raw); }
cudaEvent_t handle(const Event& event) { return static_cast<cudaEvent_t>(event.raw()); }

std::string version_text(int version) {
  return version == 0 ? std::string() : concat(version / 1000, ".", version % 1000 / 10);
}

Stream make_stream(int priority) {
  cudaStream_t raw = nullptr;
  check_runtime(cudaStreamCreateWithPriority(&raw, cudaStreamNonBlocking, priority), "open device",
                "cudaStreamCreateWithPriority");
  return {raw};
}

// Switches the calling thread's device to the one that owns `pointer`, or to number `device`, until
// destroyed: a destructor may run on a thread that works with another device.
class OnDevice {
 public:
  explicit OnDevice(const void* pointer) {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, pointer) == cudaSuccess) change(attributes.device);
  }
  explicit OnDevice(int device) { change(device); }
  ~OnDevice() {
    if (before_ >= 0) (void)cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  void change(int device) {
    int now = -1;
    if (cudaGetDevice(&now) != cudaSuccess || now == device || device < 0) return;
    if (cudaSetDevice(device) == cudaSuccess) before_ = now;
  }
  int before_ = -1;  // the device to restore; -1: it was current already
};

// Context that releases its resources.
struct OpenContext : Context {
  ~OpenContext() override {
    const OnDevice here(device);
    // Destructors do not throw: errors that the device reports now are lost.
    (void)cudaDeviceSynchronize();
    staging.reset();
    waits.reset();
    times.reset();
    attention.reset();
    blas.reset();
    for (const Stream& stream : {main, comm})
      if (stream.raw != nullptr) (void)cudaStreamDestroy(handle(stream));
  }
};

DeviceInfo read_info(int device) {
  cudaDeviceProp p{};
  check_runtime(cudaGetDeviceProperties(&p, device), "open device", "cudaGetDeviceProperties");
  int clock_khz = 0;
  check_runtime(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device), "open device",
                "cudaDeviceGetAttribute");
  return {.name = p.name,
          .compute_major = p.major,
          .compute_minor = p.minor,
          .multiprocessors = p.multiProcessorCount,
          .memory_bytes = static_cast<int64_t>(p.totalGlobalMem),
          .l2_bytes = p.l2CacheSize,
          .shared_bytes_per_block = static_cast<int64_t>(p.sharedMemPerBlockOptin),
          .clock_khz = clock_khz};
}

}  // namespace

void fail_runtime(int error, const char* op, const char* call) {
  const auto e = static_cast<cudaError_t>(error);
  throw Error(concat(op, ": ", call, " failed: ", cudaGetErrorName(e), " (", cudaGetErrorString(e),
                     "); the fault may be that of earlier work: cuda.synchronous names its op"));
}

DeviceStatus probe_devices() {
  DeviceStatus status;
  int runtime = 0, driver = 0, devices = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  (void)cudaDriverGetVersion(&driver);
  status.runtime = version_text(runtime);
  status.driver = version_text(driver);
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess) {
    for (int d = 0; d < devices && status.reason.empty(); ++d) {
      int major = 0;
      if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d) == cudaSuccess &&
          major < kMinCapability)
        status.reason =
            concat("GPU ", d, " has compute capability ", major, ".x, expected ", kMinCapability,
                   ".0 or later; CUDA_VISIBLE_DEVICES can hide this GPU");
    }
    status.devices = status.reason.empty() ? devices : 0;
  } else {
    (void)cudaGetLastError();  // else the next launch would report it
  }
  if (status.devices > 0 || !status.reason.empty()) return status;
  // A stub library, no driver, and a driver without devices all mean the same to a user: no GPU.
  if (error == cudaErrorInsufficientDriver && driver != 0)
    status.reason =
        concat("the driver supports CUDA ", status.driver, ", this build needs ", status.runtime);
  else
    status.reason = error == cudaSuccess || error == cudaErrorNoDevice
                        ? "no GPU is visible"
                        : concat("no driver (", cudaGetErrorString(error), ")");
  return status;
}

std::unique_ptr<Context> open_device(int device) {
  check_runtime(cudaSetDevice(device), "open device", "cudaSetDevice");
  auto gpu = std::make_unique<OpenContext>();
  gpu->device = device;
  gpu->info = read_info(device);
  int least = 0, greatest = 0;
  check_runtime(cudaDeviceGetStreamPriorityRange(&least, &greatest), "open device",
                "cudaDeviceGetStreamPriorityRange");
  gpu->main = make_stream(least);
  gpu->comm = make_stream(greatest);  // work that other ranks wait for has priority
  gpu->staging = std::make_shared<Staging>();
  gpu->waits = std::make_shared<WaitTimes>();
  open_libraries(*gpu);
  return gpu;
}

void use_device(const Context& gpu) {
  check_runtime(cudaSetDevice(gpu.device), "use device", "cudaSetDevice");
}

void* allocate_device(int64_t bytes) {
  void* data = nullptr;
  if (cudaMalloc(&data, static_cast<size_t>(bytes)) == cudaSuccess) return data;
  (void)cudaGetLastError();
  return nullptr;
}

void free_device(void* data) {
  const OnDevice there(data);
  // Queued work may still use the memory; cudaFree() waits for it as well, but does not guarantee
  // to.
  (void)cudaDeviceSynchronize();
  (void)cudaFree(data);
}

void* allocate_pinned(int64_t bytes) {
  void* data = nullptr;
  if (cudaMallocHost(&data, static_cast<size_t>(bytes)) == cudaSuccess) return data;
  (void)cudaGetLastError();
  return nullptr;
}

void free_pinned(void* data) {
  const OnDevice there(data);
  (void)cudaDeviceSynchronize();
  (void)cudaFreeHost(data);
}

void copy_async(Context&, const Stream& stream, void* dst, const void* src, int64_t bytes) {
  if (bytes == 0) return;
  check_runtime(
      cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), cudaMemcpyDefault, handle(stream)),
      "copy", "cudaMemcpyAsync");
}

void upload(Context& gpu, void* device, const void* host, int64_t bytes) {
  gpu.staging->upload(gpu, device, host, bytes);
}

void download(Context& gpu, void* host, const void* device, int64_t bytes) {
  gpu.staging->download(gpu, host, device, bytes);
}

void fill_bytes(Context&, const Stream& stream, void* device, int value, int64_t bytes) {
  if (bytes == 0) return;
  check_runtime(cudaMemsetAsync(device, value, static_cast<size_t>(bytes), handle(stream)), "fill",
                "cudaMemsetAsync");
}

Event make_event(Context&) {
  cudaEvent_t raw = nullptr;
  check_runtime(cudaEventCreateWithFlags(&raw, cudaEventDisableTiming), "event",
                "cudaEventCreateWithFlags");
  return Event(raw);
}

void destroy_event(void* raw) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(raw)); }

void record(const Event& event, const Stream& stream) {
  check_runtime(cudaEventRecord(handle(event), handle(stream)), "event", "cudaEventRecord");
}

void wait(const Stream& stream, const Event& event) {
  check_runtime(cudaStreamWaitEvent(handle(stream), handle(event), 0), "event",
                "cudaStreamWaitEvent");
}

bool done(const Event& event) {
  const cudaError_t error = cudaEventQuery(handle(event));
  if (error == cudaErrorNotReady) {
    (void)cudaGetLastError();  // expected, but sticky: the next launch would report it
    return false;
  }
  check_runtime(error, "event", "cudaEventQuery");
  return true;
}

void synchronize(const Event& event) {
  check_runtime(cudaEventSynchronize(handle(event)), "event", "cudaEventSynchronize");
}

void synchronize(Context&, const Stream& stream) {
  check_runtime(cudaStreamSynchronize(handle(stream)), "stream", "cudaStreamSynchronize");
}

namespace {

// Whether kernels wait in begin_kernel(): kernels built for older devices, which the driver
// compiles for this one, do not. All kernels are built alike.
bool kernels_wait(Context& gpu, [[maybe_unused]] const char* op,
                  [[maybe_unused]] const void* kernel) {
#ifndef TRIREME_EMULATED
  if (!gpu.kernels_wait) {
    constexpr int kHopper = 90;
    cudaFuncAttributes attributes{};
    check_runtime(cudaFuncGetAttributes(&attributes, kernel), op, "cudaFuncGetAttributes");
    gpu.kernels_wait = attributes.ptxVersion >= kHopper;
  }
#endif
  return gpu.kernels_wait.value_or(false);
}

}  // namespace

PreparedLaunch prepare_launch(Context& gpu, const char* op, const Grid& grid, const void* kernel) {
  constexpr int64_t kMaxX = std::numeric_limits<int32_t>::max(), kMaxYZ = 65535;
  const auto [x, y, z] = grid.blocks;
  TRIREME_CHECK(x >= 0 && y >= 0 && z >= 0 && x <= kMaxX && y <= kMaxYZ && z <= kMaxYZ, op,
                ": a grid of ", x, " x ", y, " x ", z, " blocks, expected at most ", kMaxX, " x ",
                kMaxYZ, " x ", kMaxYZ);
  TRIREME_CHECK(grid.threads > 0 && grid.threads <= 1024 && grid.threads % 32 == 0, op, ": ",
                grid.threads, " threads in a block, expected a multiple of 32 up to 1024");
  TRIREME_CHECK(grid.shared <= gpu.info.shared_bytes_per_block, op, ": ", grid.shared,
                " bytes of shared memory, a block has at most ", gpu.info.shared_bytes_per_block);
  const Stream& stream = grid.stream != nullptr ? *grid.stream : gpu.main;
  const PreparedLaunch prepared{
      .grid = dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)),
      .block = dim3(static_cast<unsigned>(grid.threads)),
      .stream = handle(stream),
      .empty = x == 0 || y == 0 || z == 0,
      .overlaps = kernels_wait(gpu, op, kernel)};
  if (prepared.empty) return prepared;
  // A block has 48 KiB without opt-in, its static memory included. The amount requested is the same
  // in every launch, so that ranks that share a GPU do not lower it for one another.
  constexpr int64_t kMaxStatic = 4 << 10, kWithoutAsking = (48 << 10) - kMaxStatic;
  if (grid.shared > kWithoutAsking) {
    const int64_t most = gpu.info.shared_bytes_per_block - kMaxStatic;
    TRIREME_CHECK(grid.shared <= most, op, ": ", grid.shared,
                  " bytes of shared memory, a block has at most ", most);
    check_runtime(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       static_cast<int>(most)),
                  op, "cudaFuncSetAttribute");
  }
#ifndef TRIREME_EMULATED
  nvtxRangePushA(op);
#endif
  if (gpu.times != nullptr) gpu.times->begin(gpu, op, prepared.stream);
  return prepared;
}

void finish_launch(Context& gpu, const char* op, const PreparedLaunch& prepared) {
#ifndef TRIREME_EMULATED
  nvtxRangePop();
#endif
  check_runtime(cudaGetLastError(), op, "launch");
  if (gpu.times != nullptr) gpu.times->end(gpu, prepared.stream);
  ++gpu.launches;
  if (gpu.synchronous)
    check_runtime(cudaStreamSynchronize(prepared.stream), op, "cudaStreamSynchronize");
}

}  // namespace trireme::cuda
