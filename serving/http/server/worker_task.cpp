#include "serving/http/server/worker_task.h"

#include <boost/asio/post.hpp>

namespace trireme {

WorkQueue::Ticket submit_task(WorkQueue& workers, const std::string& tenant, int64_t bytes,
                              const std::shared_ptr<WorkerTask>& task, TimedTransport& transport) {
  return workers.push(tenant, bytes,
                      [task, executor = transport.executor(), weak = transport.weak_from_this()] {
                        task->run();
                        boost::asio::post(executor, [task, weak] {
                          task->done = true;
                          if (const auto self = weak.lock()) self->notify();
                        });
                      });
}

}  // namespace trireme
