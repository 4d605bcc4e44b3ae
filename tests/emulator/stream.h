// Lazy streams: queues of operations, and captures that record instead of queueing.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulator/emulator.h"

namespace emulator::detail {

struct Stream;
struct Capture;

// Time of an event, set when its record operation has run.
struct Stamp {
  double seconds = 0;
};

struct Operation {
  enum class Kind { kDevice, kHost, kWait };
  Kind kind = Kind::kDevice;
  std::string name;
  std::function<void()> run;        // kDevice: device memory is accessible; kHost: it is not
  std::shared_ptr<Stream> awaited;  // kWait: wait for this stream up to awaited_number
  std::uint64_t awaited_number = 0;
  std::vector<std::uintptr_t> memory;  // starts of allocations that it is known to use
  std::uint64_t number = 0;            // position in its stream, from 1
};

struct Stream {
  int device = 0;
  bool blocking = true, legacy = false, destroyed = false;
  int priority = 0;
  std::deque<Operation> queue;
  std::uint64_t issued = 0, completed = 0;
  const Operation* running = nullptr;  // run by some thread, without the lock
  std::shared_ptr<Capture> capture;
  bool helped = false;  // a helper thread runs it
};

// Operations that streams record between cudaStreamBeginCapture and cudaStreamEndCapture.
struct Capture {
  std::shared_ptr<Stream> origin;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool invalid = false;
  std::map<Stream*, std::vector<Operation>> branches;
};

// State shared by all threads, under one lock that is never held while an operation runs.
struct State {
  std::mutex mutex;
  std::condition_variable progress;
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams;
  std::map<int, std::shared_ptr<Stream>> legacy;  // by device
  std::set<std::shared_ptr<Capture>> captures;
  std::set<cudaEvent_t> events;
  std::map<const void*, int> shared_limits;  // cudaFuncSetAttribute
  Counters counters;
  int devices = 1;
  Order order = Order::kForward;
  int helpers = 0;  // threads that run streams for block_until
};
State& state();
using Lock = std::unique_lock<std::mutex>;

// Device of the calling thread, and its last error.
int current_device();
void set_current_device(int device);
cudaError_t& last_error();
// Stores an error for cudaGetLastError and returns it.
cudaError_t keep(cudaError_t error);
// Aborts inside queued work, which must not call the runtime. Returns false where there is no
// device.
bool enter(const char* call);
bool in_queued_work();

// Stream of a handle (nullptr: the device's null stream); nullptr: no such stream.
std::shared_ptr<Stream> find_stream(cudaStream_t handle);
// Queues or captures an operation. The stream's device must be the calling thread's.
cudaError_t add(cudaStream_t stream, Operation operation);
// Runs a stream's operations up to a number, and those that they wait for.
void run_until(const std::shared_ptr<Stream>& stream, std::uint64_t number, Lock& lock);
void run_one(const std::shared_ptr<Stream>& stream, Lock& lock);
void run_device(int device, Lock& lock);
void count_synchronization(const char* call);

// Fails, and invalidates the captures concerned, where a call is not allowed during capture.
cudaError_t refuse_in_capture(Lock& lock);
// The same, for calls that use the null stream.
cudaError_t refuse_legacy_in_capture(int device, Lock& lock);
cudaError_t invalidate(Capture& capture, cudaError_t error);

}  // namespace emulator::detail
