// Runs a rank's operations one at a time, in the order in which they were started, and keeps posted
// messages moving meanwhile.
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
  std::shared_ptr<DevicePart> device;  // what is then still to be waited for; may be null
  // Of a posted message:
  CommWorker* driver = nullptr;  // who moves it on while somebody waits
  OpInfo op;                     // refers to `group`
  std::string group;
};

// This is also the rule for MPI_THREAD_SERIALIZED: whoever executes an operation, the caller's
// thread or the worker's, is the only one inside the transport.
class CommWorker {
 public:
  CommWorker() = default;
  ~CommWorker();  // finishes what was started
  CommWorker(const CommWorker&) = delete;
  CommWorker& operator=(const CommWorker&) = delete;

  // Runs f after everything started before: here when nothing is under way, else in the thread.
  void run(const std::function<void()>& f);
  Work start(std::function<void()> f, std::shared_ptr<DevicePart> device = nullptr);
  // An operation that lies on the device alone.
  static Work queued(std::shared_ptr<DevicePart> device);
  void set_cores(int first, int count);  // before the first start()

  // Posted messages: liveness.background moves them on (Transport::progress). It is called by one
  // thread at a time, never while an operation is under way: by those who wait for a message as
  // often as it asks for, else by the worker's thread now and then.
  using Done = std::function<void(std::exception_ptr)>;
  void set_liveness(Liveness& liveness) { liveness_ = &liveness; }
  // hand_over gives the message to the transport, with what to call when it has travelled.
  Work post(const OpInfo& op, const std::function<void(Done)>& hand_over,
            std::shared_ptr<DevicePart> device = nullptr);
  void drive(Work::State& state);  // until it is done

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
  bool busy_ = false;     // somebody executes an operation
  bool polling_ = false;  // somebody runs background(), briefly
  int waiting_ = 0;       // threads that wait for the end of that
  bool pending_ = false;  // posted messages are under way
  int64_t posts_ = 0;
  Liveness* liveness_ = nullptr;
  bool stop_ = false;
  int first_core_ = 0, core_count_ = 0;  // 0: wherever the process may run
  std::thread thread_;
};

}  // namespace trireme
