// HTTP service of a model: routes to the handlers of all endpoints.
#pragma once

#include "serving/http/server/routes.h"
#include "serving/http/server/server.h"
#include "serving/http/service/service_context.h"

namespace trireme {

class Service {
 public:
  // All must outlive this object. chat: nullptr: chats are rejected.
  Service(Replicas& engines, const Tokenizer& tokenizer, const ChatTemplate* chat,
          ServingMetrics& metrics, ServiceConfig config)
      : context_(engines, tokenizer, chat, metrics, std::move(config)) {}

  // One route for each endpoint that this server offers. This object must outlive the server.
  Routes routes();
  // Adds a request to the metrics; for HttpServer's on_request.
  void count(const RequestSummary& summary);
  Admission& admission() { return context_.admission; }
  GrammarCompiler::Counts grammars() const { return context_.compiler.counts(); }

 private:
  ServiceContext context_;
};

}  // namespace trireme
