// Thread that makes the masks which would hold up an engine's thread. Tenants (API keys) are served
// in turn; of one tenant the completion comes first whose masks have cost least so far.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "engine/core/fair_queue.h"

namespace trireme {

// Work on one mask, of which a worker does one or the other.
struct MaskWork {
  MaskWork() = default;
  MaskWork(const MaskWork&) = delete;
  MaskWork& operator=(const MaskWork&) = delete;
  virtual ~MaskWork() = default;
  virtual void run() = 0;
  virtual void refuse() = 0;  // the mask cannot be made any more
};

class MaskWorker {
 public:
  MaskWorker();
  ~MaskWorker();  // jobs that have not begun are refused
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  void submit(const std::string& tenant, int64_t spent, std::shared_ptr<MaskWork> job);
  int64_t done() const { return done_; }  // jobs, since the beginning

 private:
  void run();

  std::atomic<int64_t> done_{0};
  std::mutex mutex_;  // of those below
  std::condition_variable wake_;
  FairQueue<std::shared_ptr<MaskWork>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trireme
