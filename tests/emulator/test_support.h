// Helpers of the emulator's tests: device arrays, streams, a fixture that resets the emulator.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

namespace emulator::test {

inline void ok(cudaError_t error) { ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error); }

// Each test must leave nothing queued and nothing allocated: reset() aborts otherwise.
class EmulatorTest : public ::testing::Test {
 protected:
  EmulatorTest() {
    // Threads of other tests' kernels may exist: run death tests in a new process.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    reset();
  }
  ~EmulatorTest() override {
    if (!HasFatalFailure()) reset();
  }
};

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : n_(n) { ok(cudaMalloc(&data_, n * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    ok(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return data_; }
  std::size_t bytes() const { return n_ * sizeof(T); }
  // Runs after the null stream, and so after all blocking streams.
  std::vector<T> read() const {
    std::vector<T> values(n_);
    ok(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t n_;
};

class TestStream {
 public:
  explicit TestStream(unsigned flags = cudaStreamNonBlocking) {
    ok(cudaStreamCreateWithFlags(&stream_, flags));
  }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class TestEvent {
 public:
  explicit TestEvent(unsigned flags = cudaEventDefault) {
    ok(cudaEventCreateWithFlags(&event_, flags));
  }
  ~TestEvent() { cudaEventDestroy(event_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Pinned memory: copies access it when they run.
template <class T>
class PinnedArray {
 public:
  explicit PinnedArray(std::size_t n) : n_(n) { ok(cudaMallocHost(&data_, n * sizeof(T))); }
  ~PinnedArray() { cudaFreeHost(data_); }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  T* get() const { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  std::size_t bytes() const { return n_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  std::size_t n_;
};

}  // namespace emulator::test
