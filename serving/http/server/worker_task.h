// Task of a connection that runs on a worker thread. For .cpp files only (includes Asio).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "serving/http/server/timed_transport.h"
#include "serving/http/server/work_queue.h"

namespace trireme {

// Kept alive until it has run, even if the connection has closed.
struct WorkerTask {
  WorkerTask() = default;
  WorkerTask(const WorkerTask&) = delete;
  WorkerTask& operator=(const WorkerTask&) = delete;
  virtual ~WorkerTask() = default;
  virtual void run() = 0;  // must not throw: `done` would stay false

  bool done = false;  // written on the connection's thread only
};

// Runs the task on a worker, then sets `done` on the connection's thread and notifies the
// transport. bytes: as for WorkQueue::push. The ticket is false if the queue has refused the task.
WorkQueue::Ticket submit_task(WorkQueue& workers, const std::string& tenant, int64_t bytes,
                              const std::shared_ptr<WorkerTask>& task, TimedTransport& transport);

}  // namespace trireme
