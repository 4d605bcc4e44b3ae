// Devices, errors and memory of the host interface, and the emulator's own switches.
#include <cstdio>
#include <cstring>

#include "tests/emulator/memory.h"
#include "tests/emulator/report.h"
#include "tests/emulator/stream.h"

using namespace emulator::detail;

namespace {

constexpr int kVersion = 13000;

struct Named {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr Named kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "driver shutting down"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorStubLibrary, "cudaErrorStubLibrary", "CUDA driver is a stub library"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled",
     "peer access has not been enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorSystemDriverMismatch, "cudaErrorSystemDriverMismatch",
     "system has unsupported display driver / cuda driver combination"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

int device_count() {
  const Lock lock(state().mutex);
  return state().devices;
}

cudaError_t check_device(int device) {
  const int count = device_count();
  if (count == 0) return keep(cudaErrorNoDevice);
  return device < 0 || device >= count ? keep(cudaErrorInvalidDevice) : cudaSuccess;
}

cudaDeviceProp properties_of(int device) {
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof(p.name), "emulated");
  p.totalGlobalMem = capacity();
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = 227 << 10;
  p.sharedMemPerMultiprocessor = 228 << 10;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.major = 9;
  p.minor = 0;
  p.multiProcessorCount = 8;  // few, so that grids cover the GPU and loops wrap around
  p.concurrentKernels = p.unifiedAddressing = 1;
  p.pciBusID = device + 1;
  p.asyncEngineCount = 3;
  p.memoryBusWidth = 5120;
  p.l2CacheSize = 50 << 20;
  p.maxThreadsPerMultiProcessor = 2048;
  p.maxBlocksPerMultiProcessor = 32;
  return p;
}

cudaError_t unsafe_call(const char* call) {
  if (!enter(call)) return keep(cudaErrorNoDevice);
  Lock lock(state().mutex);
  return keep(refuse_in_capture(lock));
}

// Queued or running work that is known to use the allocation; call with the lock held.
const Operation* user_of(std::uintptr_t start) {
  const auto uses = [start](const Operation& operation) {
    for (const std::uintptr_t used : operation.memory)
      if (used == start) return true;
    return false;
  };
  const auto in_stream = [&](const Stream& stream) -> const Operation* {
    if (stream.running && uses(*stream.running)) return stream.running;
    for (const Operation& operation : stream.queue)
      if (uses(operation)) return &operation;
    return nullptr;
  };
  State& s = state();
  for (const auto& [handle, stream] : s.streams)
    if (const Operation* user = in_stream(*stream)) return user;
  for (const auto& [device, stream] : s.legacy)
    if (const Operation* user = in_stream(*stream)) return user;
  return nullptr;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  for (const Named& named : kErrors)
    if (named.error == error) return named.name;
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  for (const Named& named : kErrors)
    if (named.error == error) return named.text;
  return "unrecognized error code";
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error();
  last_error() = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error(); }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = device_count() ? kVersion : 0;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

// Like the real function, leaves the count unchanged where it fails.
cudaError_t cudaGetDeviceCount(int* count) {
  if (!enter("cudaGetDeviceCount")) return keep(cudaErrorNoDevice);
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  if (!enter("cudaGetDevice")) return keep(cudaErrorNoDevice);
  *device = current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  enter("cudaSetDevice");
  if (const cudaError_t error = check_device(device)) return error;
  set_current_device(device);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = check_device(device)) return error;
  *properties = properties_of(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t error = check_device(device)) return error;
  const cudaDeviceProp p = properties_of(device);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(p.sharedMemPerBlock); break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = p.regsPerBlock; break;
    case cudaDevAttrClockRate: *value = 1980000; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(p.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    default: return keep(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (const cudaError_t error = check_device(device)) return error;
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = unsafe_call("cudaDeviceSynchronize")) return error;
  const int device = current_device();
  {
    Lock lock(state().mutex);
    count_synchronization("cudaDeviceSynchronize");
    run_device(device, lock);
  }
  check_red_zones("cudaDeviceSynchronize", device);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (!pointer) return keep(cudaErrorInvalidValue);
  if (const cudaError_t error = unsafe_call("cudaMalloc")) return error;
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = allocate_device(current_device(), bytes);
  if (!*pointer) return keep(cudaErrorMemoryAllocation);
  const Lock lock(state().mutex);
  ++state().counters.allocations;
  return cudaSuccess;
}
cudaError_t cudaFree(void* pointer) {
  if (const cudaError_t error = unsafe_call("cudaFree")) return error;
  if (!pointer) return cudaSuccess;
  {
    const Lock lock(state().mutex);
    if (const Operation* user = user_of(reinterpret_cast<std::uintptr_t>(pointer)))
      die("cudaFree: 0x%zx is still used by queued work (%s); synchronize first",
          reinterpret_cast<std::size_t>(pointer), user->name.c_str());
    ++state().counters.frees;
  }
  free_device("cudaFree", pointer);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  if (!pointer) return keep(cudaErrorInvalidValue);
  if (const cudaError_t error = unsafe_call("cudaHostAlloc")) return error;
  *pointer = bytes ? allocate_pinned(bytes) : nullptr;
  return bytes && !*pointer ? keep(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}
cudaError_t cudaFreeHost(void* pointer) {
  if (const cudaError_t error = unsafe_call("cudaFreeHost")) return error;
  if (pointer && !free_pinned(pointer))
    die("cudaFreeHost: 0x%zx is no pinned memory", reinterpret_cast<std::size_t>(pointer));
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  if (!enter("cudaMemGetInfo")) return keep(cudaErrorNoDevice);
  *total_bytes = capacity();
  *free_bytes = *total_bytes - device_bytes_in_use(current_device());
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  const Region region = find_region(pointer);
  *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, nullptr};
  void* plain = const_cast<void*>(pointer);
  if (region.where == Where::kDevice)
    *attributes = {cudaMemoryTypeDevice, region.device, plain, nullptr};
  if (region.where == Where::kPinned) *attributes = {cudaMemoryTypeHost, 0, plain, plain};
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  if (!enter("cudaFuncSetAttribute")) return keep(cudaErrorNoDevice);
  if (!function) return keep(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > 227 << 10)
    return keep(cudaErrorInvalidValue);
  const Lock lock(state().mutex);
  state().shared_limits[function] = value;
  return cudaSuccess;
}

namespace emulator {

std::int64_t Counters::launched() const {
  std::int64_t sum = 0;
  for (const auto& [name, count] : launches) sum += count;
  return sum;
}
std::int64_t Counters::synchronized() const {
  std::int64_t sum = 0;
  for (const auto& [call, count] : synchronizations) sum += count;
  return sum;
}

Counters counters() {
  const Lock lock(state().mutex);
  return state().counters;
}

void reset() {
  State& s = state();
  Lock lock(s.mutex);
  s.progress.wait(lock, [&] { return s.helpers == 0; });
  const auto check = [](const Stream& stream) {
    if (!stream.queue.empty())
      die("%zu operations were never waited for; the first is %s", stream.queue.size(),
          stream.queue.front().name.c_str());
  };
  for (const auto& [handle, stream] : s.streams) check(*stream);
  for (const auto& [device, stream] : s.legacy) check(*stream);
  if (const std::size_t live = live_allocations())
    die("%zu allocations of device memory were not freed", live);
  s.counters = {};
  s.devices = 1;
  s.order = Order::kForward;
  set_capacity(0);
  set_current_device(0);
  last_error() = cudaSuccess;
}

void set_devices(int count) {
  const Lock lock(state().mutex);
  state().devices = count;
}
void set_device_memory(std::size_t bytes) { set_capacity(bytes); }
void set_order(Order order) {
  const Lock lock(state().mutex);
  state().order = order;
}

ScopedDeviceAccess::ScopedDeviceAccess() { open_device_memory(); }
ScopedDeviceAccess::~ScopedDeviceAccess() { close_device_memory(); }

}  // namespace emulator
