// Writer of the response that a ResponseProducer computes: a stream of events, or one body at the
// end. For .cpp files only (includes Asio).
#pragma once

#include <exception>
#include <memory>
#include <optional>

#include "serving/http/server/http_exchange.h"
#include "serving/http/server/response_writer.h"
#include "serving/http/server/worker_task.h"

namespace trireme {

class PendingResponse {
 public:
  template <class T>
  using Awaitable = TimedTransport::Awaitable<T>;

  // All references must outlive this object.
  PendingResponse(std::shared_ptr<ResponseProducer> pending, HttpExchange& exchange,
                  ResponseWriter& writer, TimedTransport& transport);
  // Runs until the response is complete or the peer has disconnected. True: the connection stays
  // open.
  Awaitable<bool> run();

 private:
  using Clock = std::chrono::steady_clock;
  struct PartWork;

  ResponseProducer::Part start();
  ResponseProducer::Part take();
  ResponseProducer::Part failure_of(const std::exception& error);
  ResponseProducer::Part failure_of(const std::exception_ptr& thrown);
  Awaitable<bool> write_parts();
  Awaitable<std::optional<ResponseProducer::Part>> next_part();
  Awaitable<void> run_at_worker(std::shared_ptr<PartWork> work);
  void end_by_deadline(ResponseProducer::Part& part) const;

  const std::shared_ptr<ResponseProducer> pending_;
  HttpExchange& exchange_;
  ResponseWriter& writer_;
  TimedTransport& transport_;
  const Clock::time_point end_;
  bool begun_ = false;  // an event of the stream has been written
};

}  // namespace trireme
