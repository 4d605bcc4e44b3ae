// Complete server without a model: RecordedTexts generates its completions from the prompt's bytes.
// For .cpp files only.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/text/chat_template.h"
#include "serving/http/server/server.h"
#include "serving/http/service/service.h"
#include "tests/serving/http/server/raw_client.h"
#include "tests/serving/scheduler/gated_texts.h"

namespace trireme::test {

struct RecordedServerOptions {
  HttpConfig http;
  BatchingConfig scheduler{.max_sequences = 8, .max_step_tokens = 256, .max_model_len = 512};
  AdmissionLimits admission{.running = 8, .waiting = 32};
  RequestLimits requests{.vocab_size = 257};
  ToolFormat tools = ToolFormat::kNone;
  ResponseLimits responses;
  ModelWeights* weights = nullptr;
  int64_t adapters = 0;
  bool old_names = false;                 // of metrics
  std::vector<std::string> modules = {};  // adapter ids loaded at start
  int64_t blocks = 1024, block_tokens = 8;
  size_t replicas = 1;
  std::vector<int32_t> script = {};  // RecordedTexts::script
  std::shared_ptr<const Tokenizer> tokenizer = make_byte_tokenizer();
  ChatTemplateSources chat = {
      {"default",
       "{% for m in messages %}{{ m.role }}:{{ m.content }}<|endoftext|>{% endfor %}"
       "{{ '' if tools }}"}};
};

class RecordedServer {
 public:
  explicit RecordedServer(RecordedServerOptions options = {})
      : gates(options.replicas),
        tokenizer(options.tokenizer),
        chat(options.chat),
        metrics("m", options.scheduler.max_model_len,
                {.block_size = options.block_tokens,
                 .blocks = options.blocks,
                 .dtype = "float32",
                 .old_names = options.old_names},
                options.replicas),
        engines(engines_of(options)),
        service(engines, *tokenizer, &chat, metrics,
                {.models = cards_of(options),
                 .version = "1.0",
                 .fingerprint = "f",
                 .max_model_len = options.scheduler.max_model_len,
                 .embedding_size = 3,
                 .eos_token_ids = {256},
                 .requests = options.requests,
                 .admission = options.admission,
                 .responses = options.responses,
                 .tools = options.tools,
                 .weights = options.weights,
                 .adapters = options.adapters}) {
    options.http.port = 0;
    server = std::make_unique<HttpServer>(
        options.http, service.routes(),
        [this](const RequestSummary& summary) { service.count(summary); });
  }
  ~RecordedServer() {
    for (Gate& one : gates) one.release();
    server.reset();
  }

  int port() const { return server->port(); }
  Response ask(const std::string& request) const { return test::ask(port(), request); }
  // Returns whether no request has any state left.
  bool is_quiet() const {
    int64_t used = 0;
    for (const EngineCounts& counts : engines.counts()) used += counts.used_blocks;
    return in_engine() == 0 && used == 0 && server->counts().exchanges == 0 && sequences() == 0;
  }
  // Number of sequences in the engines.
  int64_t in_engine() const {
    int64_t sequences = 0;
    for (const EngineCounts& counts : engines.counts())
      sequences += counts.scheduler.running + counts.scheduler.waiting;
    return sequences;
  }
  int64_t sequences() const { return const_cast<Service&>(service).admission().sequences(); }

  // Bytes that follow a prompt.
  static std::string continuation(const std::string& prompt, int tokens) {
    std::vector<int32_t> text;
    for (const char byte : prompt) text.push_back(static_cast<unsigned char>(byte));
    std::string out;
    for (int i = 0; i < tokens; ++i) {
      text.push_back(next_of(text, 256));
      out += static_cast<char>(text.back());
    }
    return out;
  }

  std::deque<Gate> gates;  // of each replica
  Gate& gate = gates.front();
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatTemplate chat;
  ServingMetrics metrics;
  Replicas engines;
  Engine& engine = engines[0];
  Service service;
  std::unique_ptr<HttpServer> server;

 private:
  static std::vector<ModelCard> cards_of(const RecordedServerOptions& options) {
    std::vector<ModelCard> all{
        {.id = "m", .created = 1, .max_model_len = options.scheduler.max_model_len}};
    for (const std::string& name : options.modules)
      all.push_back({.id = name,
                     .created = 1,
                     .max_model_len = options.scheduler.max_model_len,
                     .parent = "m",
                     .adapter = static_cast<int32_t>(all.size() - 1)});
    return all;
  }
  std::vector<std::unique_ptr<Engine>> engines_of(const RecordedServerOptions& options) {
    std::vector<std::unique_ptr<Engine>> all;
    for (size_t i = 0; i < options.replicas; ++i)
      all.push_back(std::make_unique<Engine>(
          std::make_unique<GatedTexts>(gates[i], options.blocks, options.block_tokens,
                                       options.script),
          options.scheduler, options.blocks, options.block_tokens,
          [this, i](const StepReport& report) { metrics.of(i).step(report); }));
    return all;
  }
};

inline std::string error_code_of(const Response& response) {
  return nlohmann::json::parse(response.body).at("error").at("code").get<std::string>();
}

}  // namespace trireme::test
