// Device memory is inaccessible to the host, poisoned and fenced; copies are checked; counters
// count.
#include <cmath>
#include <cstring>

#include "tests/emulator/fiber.h"
#include "tests/emulator/test_support.h"

namespace emulator::test {
namespace {

using Memory = EmulatorTest;
using MemoryDeathTest = EmulatorTest;

template <class T>
T host_read(const T* address) {
  return *static_cast<const volatile T*>(address);
}

// The sanitizers' own handlers receive the fault after the emulator's message.
TEST_F(MemoryDeathTest, HostTouchesDeviceMemory) {
  DeviceArray<float> a(100);
  EXPECT_DEATH(host_read(a.get() + 3),
               "emulator: the host touched device memory at 0x[0-9a-f]+, allocated as 0x[0-9a-f]+ "
               "with 400 bytes on device 0");
  EXPECT_DEATH(*static_cast<volatile float*>(a.get()) = 1, "the host touched device memory");
}

TEST_F(MemoryDeathTest, HostTouchesDeviceMemoryAfterWorkRan) {
  DeviceArray<float> a(100);
  ok(cudaMemset(a.get(), 0, a.bytes()));
  ok(cudaDeviceSynchronize());
  EXPECT_DEATH(host_read(a.get()), "the host touched device memory");
}

TEST_F(MemoryDeathTest, KernelTouchesFreedMemory) {
  DeviceArray<float> other(4);
  EXPECT_DEATH(
      {
        float* a = nullptr;
        ok(cudaMalloc(&a, 100));
        ok(launch(nullptr, "late", 1, 32, 0, [a] { a[threadIdx.x] = 1; }));
        ok(cudaFree(a));
        cudaDeviceSynchronize();
      },
      "late touched device memory at .*, which is freed; it was allocated as");
}

TEST_F(Memory, ScopedAccessOpens) {
  DeviceArray<float> a(std::vector<float>{1, 2});
  const ScopedDeviceAccess access;
  EXPECT_EQ(host_read(a.get() + 1), 2);
}

TEST_F(Memory, StartsAsNans) {
  DeviceArray<float> a(33);
  DeviceArray<double> b(5);
  for (const float v : a.read()) EXPECT_TRUE(std::isnan(v));
  for (const double v : b.read()) EXPECT_TRUE(std::isnan(v));
}

void write_past_end(std::size_t offset) {
  DeviceArray<char> a(1000);
  char* end = a.get() + a.bytes() + offset;
  // Through an integer, so that compilers and AddressSanitizer do not detect it.
  const auto address = reinterpret_cast<std::uintptr_t>(end);
  ok(launch(nullptr, "overrun", 1, 32, 0, [address] {
    if (threadIdx.x == 0) *reinterpret_cast<volatile char*>(address) = 1;
  }));
  cudaDeviceSynchronize();
}

TEST_F(MemoryDeathTest, RedZone) {
#if TRIREME_EMULATOR_ASAN
  const char* said = "use-after-poison";
#else
  const char* said = "cudaDeviceSynchronize: byte 255 behind device memory 0x.* of 1000 bytes";
#endif
  EXPECT_DEATH(write_past_end(255), said);
}

TEST_F(MemoryDeathTest, RedZoneAtFree) {
  float* a = nullptr;
  ok(cudaMalloc(&a, 4));
#if TRIREME_EMULATOR_ASAN
  const char* said = "use-after-poison";
#else
  const char* said = "cudaFree: byte 0 behind";
#endif
  EXPECT_DEATH(
      {
        ok(launch(nullptr, "overrun", 1, 1, 0, [a] { a[1] = 0; }));
        ok(cudaStreamSynchronize(nullptr));
        cudaFree(a);
      },
      said);
  ok(cudaFree(a));
}

TEST_F(MemoryDeathTest, WrongFrees) {
  float* a = nullptr;
  ok(cudaMalloc(&a, 400));
  float host = 0;
  EXPECT_DEATH(cudaFree(a + 1), "cudaFree: 0x.* is not the start of an allocation");
  EXPECT_DEATH(cudaFree(&host), "cudaFree: 0x.* is not device memory");
  EXPECT_DEATH(cudaFreeHost(&host), "cudaFreeHost: 0x.* is no pinned memory");
  ok(cudaFree(a));
  EXPECT_DEATH(cudaFree(a), "cudaFree: 0x.* of 400 bytes was freed before");
}

TEST_F(MemoryDeathTest, FreeWithQueuedWork) {
  DeviceArray<float> a(8);
  TestStream stream;
  EXPECT_DEATH(
      {
        ok(cudaMemsetAsync(a.get(), 0, a.bytes(), stream));
        cudaFree(a.get());
      },
      "cudaFree: 0x.* is still used by queued work \\(cudaMemsetAsync\\)");
  struct Two {
    long n;
    const float* data;
  };
  const Two two{1, a.get() + 1};
  EXPECT_DEATH(
      {
        ok(launch(
            stream, "user", 1, 32, 0, [] {}, Arguments::of(nullptr, 5, two)));
        cudaFree(a.get());
      },
      "cudaFree: 0x.* is still used by queued work \\(user\\)");
}

TEST_F(MemoryDeathTest, KernelArguments) {
  const auto start = [](const void* pointer) {
    launch(
        nullptr, "k", 1, 32, 0, [] {}, Arguments::of(nullptr, 1.5, pointer));
  };
  const std::vector<float> host(4);
  EXPECT_DEATH(start(host.data()), "kernel k: an argument points into host memory");
  float* freed = nullptr;
  ok(cudaMalloc(&freed, 4));
  ok(cudaFree(freed));
  EXPECT_DEATH(start(freed), "kernel k: an argument points into freed device memory");
  set_devices(2);
  DeviceArray<float> a(1);
  ok(cudaSetDevice(1));
  EXPECT_DEATH(start(a.get()), "memory of device 0, it runs on device 1");
  ok(cudaSetDevice(0));
  PinnedArray<float> pinned(1);
  start(a.get());
  start(pinned.get());  // unified addresses: kernels may read it
  start(nullptr);
  ok(cudaDeviceSynchronize());
}

TEST_F(MemoryDeathTest, Copies) {
  DeviceArray<float> a(10);
  std::vector<float> host(20);
  EXPECT_DEATH(cudaMemcpy(a.get() + 1, host.data(), 40, cudaMemcpyHostToDevice),
               "cudaMemcpy: 40 bytes at 0x.* end outside the device memory 0x.* of 40 bytes");
  EXPECT_DEATH(cudaMemcpy(host.data(), a.get(), 40, cudaMemcpyHostToDevice),
               "cudaMemcpy: 0x.* is device memory, not host memory");
  EXPECT_DEATH(cudaMemcpyAsync(host.data(), host.data() + 10, 40, cudaMemcpyDeviceToHost),
               "cudaMemcpyAsync: 0x.* is host memory, not device memory");
  EXPECT_DEATH(cudaMemsetAsync(a.get(), 0, 41), "cudaMemsetAsync: 41 bytes");
  EXPECT_DEATH(cudaMemset(host.data(), 0, 4), "cudaMemset: 0x.* is host memory");
  EXPECT_DEATH(cudaMemcpy2DAsync(a.get(), 16, host.data(), 16, 12, 3, cudaMemcpyHostToDevice),
               "cudaMemcpy2DAsync: 44 bytes");
  PinnedArray<char> pinned(8);
  EXPECT_DEATH(cudaMemcpyAsync(pinned.get(), a.get(), 9, cudaMemcpyDeviceToHost),
               "end outside the pinned memory of 8 bytes");
  EXPECT_EQ(cudaMemcpy2D(a.get(), 8, host.data(), 16, 12, 2, cudaMemcpyHostToDevice),
            cudaErrorInvalidPitchValue);
}

TEST_F(Memory, Copy2D) {
  const std::vector<int> host{1, 2, 3, 4, 5, 6, 7, 8, 9};
  DeviceArray<int> a(std::vector<int>(8, 0));
  ok(cudaMemcpy2D(a.get(), 16, host.data() + 1, 12, 8, 2, cudaMemcpyDefault));
  EXPECT_EQ(a.read(), (std::vector<int>{2, 3, 0, 0, 5, 6, 0, 0}));
}

TEST_F(Memory, CapacityAndAttributes) {
  set_device_memory(1000);
  DeviceArray<char> a(600);
  void* none = nullptr;
  EXPECT_EQ(cudaMalloc(&none, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(none, nullptr);
  std::size_t free_bytes = 0, total = 0;
  ok(cudaMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(total, 1000u);
  cudaPointerAttributes attributes{};
  ok(cudaPointerGetAttributes(&attributes, a.get() + 5));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  ok(cudaPointerGetAttributes(&attributes, &total));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(Memory, DevicesAndErrors) {
  set_devices(2);
  int count = 0, device = -1, value = 0;
  ok(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  ok(cudaGetDevice(&device));
  EXPECT_EQ(device, 0);
  cudaDeviceProp properties{};
  ok(cudaGetDeviceProperties(&properties, 1));
  EXPECT_STREQ(properties.name, "emulated");
  EXPECT_EQ(properties.major * 10 + properties.minor, 90);
  ok(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  EXPECT_EQ(value, 8);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorNoDevice), "no CUDA-capable device is detected");
  set_devices(0);
  count = -7;
  void* none = nullptr;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, -7);
  EXPECT_EQ(cudaMalloc(&none, 1), cudaErrorNoDevice);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorNoDevice);
}

TEST_F(Memory, Counters) {
  DeviceArray<float> a(std::vector<float>{1, 2, 3});
  DeviceArray<float> b(3);
  TestStream stream;
  ok(launch(stream, "twice", dim3(2, 3), 32, 0, [] {}));
  ok(launch(stream, "twice", 1, 32, 0, [] {}));
  ok(enqueue(stream, "gemm", [] {}));
  ok(cudaMemcpyAsync(b.get(), a.get(), 12, cudaMemcpyDeviceToDevice, stream));
  ok(cudaStreamSynchronize(stream));
  b.read();
  const Counters c = counters();
  EXPECT_EQ(c.launches.at("twice"), 2);
  EXPECT_EQ(c.launched(), 3);
  EXPECT_EQ(c.blocks, 7);
  EXPECT_EQ(c.bytes_to_device, 12);
  EXPECT_EQ(c.bytes_on_device, 12);
  EXPECT_EQ(c.bytes_to_host, 12);
  EXPECT_EQ(c.allocations, 2);
  EXPECT_EQ(c.synchronizations.at("cudaStreamSynchronize"), 1);
  EXPECT_EQ(c.synchronizations.at("cudaMemcpy"), 2);
  EXPECT_EQ(c.synchronized(), 3);
}

TEST_F(MemoryDeathTest, ResetFindsWhatIsLeft) {
  EXPECT_DEATH(
      {
        void* leaked = nullptr;
        ok(cudaMalloc(&leaked, 1));
        reset();
      },
      "1 allocations of device memory were not freed");
  EXPECT_DEATH(
      {
        ok(launch(nullptr, "lost", 1, 1, 0, [] {}));
        reset();
      },
      "1 operations were never waited for; the first is lost");
}

}  // namespace
}  // namespace emulator::test
