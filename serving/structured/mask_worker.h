// Thread that computes the masks that are too slow for an engine's thread. Tenants (API keys) are
// served in turn. Within a tenant, the completion whose masks have cost least so far comes first.
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

// Job that computes one mask. The worker calls either run() or refuse(), once.
struct MaskWork {
  MaskWork() = default;
  MaskWork(const MaskWork&) = delete;
  MaskWork& operator=(const MaskWork&) = delete;
  virtual ~MaskWork() = default;
  virtual void run() = 0;
  virtual void refuse() = 0;  // the worker stops: the mask is not computed
};

class MaskWorker {
 public:
  MaskWorker();
  ~MaskWorker();  // refuses jobs that have not started
  MaskWorker(const MaskWorker&) = delete;
  MaskWorker& operator=(const MaskWorker&) = delete;

  // spent: work on the completion's masks so far, in trie nodes (TokenMasks::work()).
  void submit(const std::string& tenant, int64_t spent, std::shared_ptr<MaskWork> job);
  int64_t done() const { return done_; }  // jobs run since start

 private:
  void run();

  std::atomic<int64_t> done_{0};
  std::mutex mutex_;  // guards those below
  std::condition_variable wake_;
  FairQueue<std::shared_ptr<MaskWork>> jobs_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trireme
