#include "tests/emulator/stream.h"

#include <chrono>
#include <exception>

#include "tests/emulator/block.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/report.h"

namespace emulator::detail {
namespace {

constinit thread_local int device_of_thread = 0;
constinit thread_local cudaError_t error_of_thread = cudaSuccess;
// The operation that this thread runs, and the number of nested scopes that need device memory
// open.
constinit thread_local const Operation* current = nullptr;
constinit thread_local int access_depth = 0;

class Access {
 public:
  Access() {
    if (!access_depth++) open_device_memory();
  }
  ~Access() {
    if (!--access_depth) close_device_memory();
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};

void run_body(const Operation& operation) {
  const bool host = operation.kind == Operation::Kind::kHost;
  if (host) close_device_memory();
  current = &operation;
  try {
    operation.run();
  } catch (const std::exception& error) {
    die("%s threw: %s", operation.name.c_str(), error.what());
  }
  current = nullptr;
  if (host) open_device_memory();
}

void run_front(const std::shared_ptr<Stream>& stream, Lock& lock) {
  const Operation operation = std::move(stream->queue.front());
  stream->queue.pop_front();
  stream->running = &operation;
  if (operation.kind == Operation::Kind::kWait) {
    run_until(operation.awaited, operation.awaited_number, lock);
  } else {
    lock.unlock();
    run_body(operation);
    lock.lock();
  }
  stream->running = nullptr;
  stream->completed = operation.number;
  state().progress.notify_all();
}

void push(Stream& stream, Operation operation) {
  operation.number = ++stream.issued;
  stream.queue.push_back(std::move(operation));
}

void wait_for(Stream& stream, const std::shared_ptr<Stream>& other) {
  if (other->issued == other->completed) return;
  Operation operation;
  operation.kind = Operation::Kind::kWait;
  operation.name = "the null stream's order";
  operation.awaited = other;
  operation.awaited_number = other->issued;
  push(stream, std::move(operation));
}

// The null stream waits for all blocking streams of its device, and they for it.
void order_with_legacy(Stream& stream) {
  State& s = state();
  if (stream.legacy) {
    for (const auto& [handle, other] : s.streams)
      if (other->blocking && other->device == stream.device) wait_for(stream, other);
  } else if (stream.blocking) {
    const auto legacy = s.legacy.find(stream.device);
    if (legacy != s.legacy.end()) wait_for(stream, legacy->second);
  }
}

void help(std::shared_ptr<Stream> stream) {
  State& s = state();
  Lock lock(s.mutex);
  run_until(stream, stream->issued, lock);
  stream->helped = false;
  --s.helpers;
  s.progress.notify_all();
}

// Starts a thread for each stream that has work and that no thread runs.
void start_helpers() {
  State& s = state();
  const Lock lock(s.mutex);
  const auto start = [&](const std::shared_ptr<Stream>& stream) {
    if (stream->queue.empty() || stream->running || stream->helped) return;
    stream->helped = true;
    ++s.helpers;
    std::thread(help, stream).detach();
  };
  for (const auto& [handle, stream] : s.streams) start(stream);
  for (const auto& [device, stream] : s.legacy) start(stream);
}

}  // namespace

State& state() {
  static State& the = *new State;  // never destroyed: threads may outlive main
  return the;
}

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }
cudaError_t& last_error() { return error_of_thread; }
cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess) error_of_thread = error;
  return error;
}
bool in_queued_work() { return current != nullptr; }

bool enter(const char* call) {
  if (current)
    die("%s was called by queued work (%s), where the runtime must not be called", call,
        current->name.c_str());
  const Lock lock(state().mutex);
  return state().devices > 0;
}

std::shared_ptr<Stream> find_stream(cudaStream_t handle) {
  State& s = state();
  if (handle) {
    const auto found = s.streams.find(handle);
    return found == s.streams.end() ? nullptr : found->second;
  }
  auto& legacy = s.legacy[current_device()];
  if (!legacy) {
    legacy = std::make_shared<Stream>();
    legacy->device = current_device();
    legacy->legacy = true;
  }
  return legacy;
}

cudaError_t add(cudaStream_t handle, Operation operation) {
  Lock lock(state().mutex);
  const auto stream = find_stream(handle);
  if (!stream || stream->device != current_device()) return cudaErrorInvalidResourceHandle;
  if (stream->legacy)
    if (const cudaError_t error = refuse_legacy_in_capture(stream->device, lock)) return error;
  if (stream->capture) {
    if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    stream->capture->branches[stream.get()].push_back(std::move(operation));
    return cudaSuccess;
  }
  order_with_legacy(*stream);
  push(*stream, std::move(operation));
  return cudaSuccess;
}

void run_until(const std::shared_ptr<Stream>& stream, std::uint64_t number, Lock& lock) {
  if (stream->completed >= number) return;
  const Access access;
  while (stream->completed < number) {
    if (stream->running)
      state().progress.wait(lock);
    else
      run_front(stream, lock);
  }
}

void run_one(const std::shared_ptr<Stream>& stream, Lock& lock) {
  if (stream->running || stream->queue.empty()) return;
  const Access access;
  run_front(stream, lock);
}

void run_device(int device, Lock& lock) {
  State& s = state();
  std::vector<std::shared_ptr<Stream>> streams;
  for (const auto& [handle, stream] : s.streams)
    if (stream->device == device) streams.push_back(stream);
  if (const auto found = s.legacy.find(device); found != s.legacy.end())
    streams.push_back(found->second);
  std::vector<std::uint64_t> until;
  for (const auto& stream : streams) until.push_back(stream->issued);
  for (std::size_t i = 0; i < streams.size(); ++i) run_until(streams[i], until[i], lock);
}

void count_synchronization(const char* call) { ++state().counters.synchronizations[call]; }

}  // namespace emulator::detail

namespace emulator {

void block_until(const std::function<bool()>& ready) {
  using namespace std::chrono;
  const auto start = steady_clock::now();
  for (int i = 0; !ready(); ++i) {
    std::this_thread::sleep_for(microseconds(i < 20 ? 20 : 500));
    if (steady_clock::now() - start > milliseconds(20)) detail::start_helpers();
  }
}

}  // namespace emulator
