// HTTP service of a model: the handlers of all endpoints as routes of a server.
#pragma once

#include "serving/http/server/routes.h"
#include "serving/http/server/server.h"
#include "serving/http/service/service_context.h"

namespace trireme {

class Service {
 public:
  // All must outlive this object; chat may be nullptr: chats are refused then.
  Service(Replicas& engines, const Tokenizer& tokenizer, const ChatTemplate* chat,
          ServingMetrics& metrics, ServiceConfig config)
      : context_(engines, tokenizer, chat, metrics, std::move(config)) {}

  // A route for each endpoint that this server offers. This object must outlive the server.
  Routes routes();
  // For HttpServer's on_request.
  void count(const RequestSummary& summary);
  Admission& admission() { return context_.admission; }
  GrammarCompiler::Counts grammars() const { return context_.compiler.counts(); }

 private:
  ServiceContext context_;
};

}  // namespace trireme
