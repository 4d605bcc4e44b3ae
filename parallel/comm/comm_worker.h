// Executor of a rank's communication: runs operations one at a time in the order in which they were
// started, and progresses posted messages meanwhile.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "parallel/comm/communicator.h"
#include "parallel/comm/device/device_work.h"
#include "parallel/comm/liveness/liveness.h"

namespace trireme {

class CommWorker;

struct Work::State {
  void finish(const std::exception_ptr& result, double spent);  // sets done and wakes the waiters
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  double seconds = 0;
  std::shared_ptr<DevicePart> device;  // device work still to wait for; may be null
  // Posted messages only:
  CommWorker* driver = nullptr;  // progresses the message while a thread waits
  OpInfo op;                     // refers to `group`
  std::string group;
};

// Executor of one rank's operations. Satisfies MPI_THREAD_SERIALIZED: one thread at a time, a
// caller's or the worker's, is inside the transport, to execute an operation or progress messages.
class CommWorker {
 public:
  CommWorker() = default;
  ~CommWorker();  // finishes the started operations
  CommWorker(const CommWorker&) = delete;
  CommWorker& operator=(const CommWorker&) = delete;

  // Runs f after all operations started before: in the calling thread if none is in progress, else
  // in the worker thread. Returns when f has ended; rethrows its exception.
  void run(const std::function<void()>& f);
  // Queues f for the worker thread. device: device work that remains after f.
  Work start(std::function<void()> f, std::shared_ptr<DevicePart> device = nullptr);
  // Work whose host part is finished: only the device work remains.
  static Work queued(std::shared_ptr<DevicePart> device);
  void set_cores(int first, int count);  // before the first start()

  // Liveness::background (Transport::progress) progresses posted messages and returns the delay
  // until its next call. One thread at a time calls it, never during an operation. A thread that
  // waits for a message calls it after each such delay; while no thread waits, the worker thread
  // does.
  using Done = std::function<void(std::exception_ptr)>;
  void set_liveness(Liveness& liveness) { liveness_ = &liveness; }
  // hand_over: passes the message and its completion callback to the transport.
  Work post(const OpInfo& op, const std::function<void(Done)>& hand_over,
            std::shared_ptr<DevicePart> device = nullptr);
  void drive(Work::State& state);  // returns when the message is done

 private:
  struct Task {
    std::function<void()> f;
    std::shared_ptr<Work::State> state;
  };
  void loop();
  static void execute(const Task& task);
  void ensure_thread();                                                // with the lock held
  std::chrono::microseconds poll(std::unique_lock<std::mutex>& lock);  // background(), unlocked
  void move_on(Work::State& state);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool busy_ = false;     // a thread executes an operation
  bool polling_ = false;  // a thread runs background(), briefly
  int waiting_ = 0;       // threads that wait for polling_ to end
  bool pending_ = false;  // posted messages are in progress
  int64_t posts_ = 0;
  Liveness* liveness_ = nullptr;
  bool stop_ = false;
  int first_core_ = 0, core_count_ = 0;  // 0: any core of the process
  std::thread thread_;
};

}  // namespace trireme
