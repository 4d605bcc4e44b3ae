#include "serving/structured/mask_worker.h"

#include "engine/core/thread_name.h"

namespace trireme {

MaskWorker::MaskWorker() : thread_([this] { run(); }) {}

MaskWorker::~MaskWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  for (;;) {
    auto next = jobs_.pop();
    if (!next.has_value()) break;
    const std::shared_ptr<MaskWork> job = std::move(*next);
    job->refuse();
  }
}

void MaskWorker::submit(const std::string& tenant, int64_t spent, std::shared_ptr<MaskWork> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push(tenant, std::move(job), spent);
  }
  wake_.notify_one();
}

void MaskWorker::run() {
  name_thread("masks");
  for (;;) {
    std::shared_ptr<MaskWork> job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || jobs_.size() > 0; });
      if (stop_) return;
      auto next = jobs_.pop();
      if (!next.has_value()) continue;
      job = std::move(*next);
    }
    job->run();
    ++done_;
  }
}

}  // namespace trireme
