// Work of a connection on a thread of the workers'. For .cpp files only (it includes Asio).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "serving/http/server/timed_transport.h"
#include "serving/http/server/work_queue.h"

namespace trireme {

// Kept until the work has ended, wherever the connection is by then.
struct WorkerTask {
  WorkerTask() = default;
  WorkerTask(const WorkerTask&) = delete;
  WorkerTask& operator=(const WorkerTask&) = delete;
  virtual ~WorkerTask() = default;
  virtual void run() = 0;

  bool done = false;  // of the connection's thread
};

// Sets `done` on the connection's thread once the task has run, and notifies the transport. No
// ticket: the workers have refused it.
WorkQueue::Ticket submit_task(WorkQueue& workers, const std::string& tenant, int64_t bytes,
                              const std::shared_ptr<WorkerTask>& task, TimedTransport& transport);

}  // namespace trireme
