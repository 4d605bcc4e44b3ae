#include "optim/state_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

namespace trireme {
namespace {

// Page size in bytes. A window has a multiple of as many elements, so that it is page-aligned for
// every dtype.
constexpr int64_t kPage = 4096;
constexpr const char* kKey = "zero_optimization.offload_optimizer";

int64_t array_bytes(DType dtype, int64_t elements) {
  return round_up(elements * dtype_size(dtype), kPage);
}

int64_t window_size(int64_t elements, const OffloadConfig& offload) {
  return round_up(std::max<int64_t>(1, std::min(offload.buffer_elements, elements)), kPage);
}

}  // namespace

// Numbers of windows that the I/O thread has read, the calling thread has computed, and the I/O
// thread has written back. Window i uses buffer i % buffers.
struct StateFile::Progress {
  std::mutex mutex;
  std::condition_variable changed;
  int64_t windows = 0;
  int64_t read = 0, computed = 0, written = 0;
  bool stop = false;  // the function on a window has thrown
  std::exception_ptr error;
};

int64_t StateFile::file_bytes(const std::vector<StateKind>& kinds, int64_t elements) {
  int64_t bytes = 0;
  for (const StateKind& kind : kinds) bytes += array_bytes(kind.dtype, elements);
  return bytes;
}

int64_t StateFile::memory_bytes(const std::vector<StateKind>& kinds, int64_t elements,
                                const OffloadConfig& offload) {
  int64_t bytes = 0;
  for (const StateKind& kind : kinds)
    bytes += window_size(elements, offload) * dtype_size(kind.dtype);
  return bytes * offload.buffer_count;
}

StateFile::StateFile(const std::vector<StateKind>& kinds, int64_t elements,
                     const OffloadConfig& offload)
    : kinds_(kinds),
      elements_(elements),
      window_elements_(window_size(elements, offload)),
      bytes_(file_bytes(kinds, elements)) {
  TRIREME_CHECK(offload.buffer_count >= 2, offload.buffer_count,
                " windows of optimizer states, expected at least 2");
  int64_t begin = 0, window_bytes = 0;
  for (const StateKind& kind : kinds) {
    begins_.push_back(begin);
    begin += array_bytes(kind.dtype, elements);
    window_bytes += window_elements_ * dtype_size(kind.dtype);
  }
  std::error_code ignored;
  std::filesystem::create_directories(offload.path, ignored);
  name_ = offload.path + "/optimizer-states-XXXXXX";
  const auto fail = [&](const char* action, int why) {
    fail_input(kKey, ": cannot ", action, " ", bytes_, " bytes of optimizer states in ",
               offload.path, ": ", std::strerror(why),
               "; free some space there, or set nvme_path to another folder");
  };
  descriptor_ = ::mkostemp(name_.data(), O_CLOEXEC);
  if (descriptor_ < 0) fail("store", errno);
  ::unlink(name_.c_str());
  const int problem = bytes_ > 0 ? ::posix_fallocate(descriptor_, 0, bytes_) : 0;
  if (problem != 0) {
    ::close(descriptor_);
    fail("reserve", problem);
  }
  for (int64_t i = 0; i < offload.buffer_count; ++i)
    buffers_.emplace_back("window of optimizer states", window_bytes);
}

StateFile::~StateFile() {
  if (mapping_ != nullptr) ::munmap(mapping_, static_cast<size_t>(bytes_));
  if (descriptor_ >= 0) ::close(descriptor_);
}

FlatRange StateFile::window(int64_t index) const {
  return {index * window_elements_, std::min(elements_, (index + 1) * window_elements_)};
}

std::vector<Tensor> StateFile::states_of(int64_t index) const {
  const Buffer& buffer = buffers_[static_cast<size_t>(index) % buffers_.size()];
  std::vector<Tensor> states;
  int64_t begin = 0;
  for (const StateKind& kind : kinds_) {
    states.push_back(buffer.tensor(kind.dtype, Shape{window(index).size()}, begin));
    begin += window_elements_ * dtype_size(kind.dtype);
  }
  return states;
}

void StateFile::transfer(int64_t index, bool write) {
  const std::vector<Tensor> states = states_of(index);
  for (size_t k = 0; k < kinds_.size(); ++k) {
    auto* data = static_cast<std::byte*>(states[k].raw());
    int64_t at = begins_[k] + window(index).begin * dtype_size(kinds_[k].dtype);
    int64_t left = states[k].bytes();
    while (left > 0) {
      const auto n = static_cast<size_t>(std::min<int64_t>(left, 1 << 30));
      const ssize_t moved =
          write ? ::pwrite(descriptor_, data, n, at) : ::pread(descriptor_, data, n, at);
      if (moved < 0 && errno == EINTR) continue;
      if (moved < 0)
        fail_input(kKey, ": cannot ", write ? "write" : "read", " ", kinds_[k].name, " at byte ",
                   at, " of ", name_, ": ", std::strerror(errno));
      if (moved == 0)
        fail_input(kKey, ": ", name_, " ends early, at byte ", at, ", within ", kinds_[k].name);
      data += moved;
      at += moved;
      left -= moved;
    }
  }
}

// I/O thread. Writes take precedence over reads, since a write frees a buffer.
void StateFile::serve(Progress& p) {
  const auto buffers = std::ssize(buffers_);
  std::unique_lock lock(p.mutex);
  const auto can_write = [&] { return p.computed > p.written; };
  const auto can_read = [&] { return p.read < p.windows && p.read < p.written + buffers; };
  try {
    while (p.written < p.windows) {
      p.changed.wait(lock, [&] { return p.stop || can_write() || can_read(); });
      if (p.stop) return;
      const bool write = can_write();
      int64_t& done = write ? p.written : p.read;
      lock.unlock();
      transfer(done, write);
      lock.lock();
      ++done;
      p.changed.notify_all();
    }
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    p.error = std::current_exception();
    p.changed.notify_all();
  }
}

void StateFile::for_each_window(const StateVisit& f) {
  Progress p;
  p.windows = ceil_div(elements_, window_elements_);
  std::thread server([&] { serve(p); });
  std::exception_ptr failure;
  for (int64_t i = 0; i < p.windows && !failure; ++i) {
    std::unique_lock lock(p.mutex);
    p.changed.wait(lock, [&] { return p.error || p.read > i; });
    if (p.error) break;
    lock.unlock();
    try {
      f(window(i), states_of(i));
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    p.computed = i + 1;
    p.stop = failure != nullptr;
    p.changed.notify_all();
  }
  server.join();
  if (failure) std::rethrow_exception(failure);
  if (p.error) std::rethrow_exception(p.error);
}

Tensor StateFile::whole(size_t kind) {
  if (mapping_ == nullptr && bytes_ > 0) {
    void* at = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED,
                      descriptor_, 0);
    if (at == MAP_FAILED) fail_input(kKey, ": cannot map ", name_, ": ", std::strerror(errno));
    mapping_ = at;
  }
  return Tensor(static_cast<std::byte*>(mapping_) + begins_[kind], kinds_[kind].dtype,
                Shape{elements_});
}

}  // namespace trireme
