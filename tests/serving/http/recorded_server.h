// A whole server without a model: its texts are what RecordedTexts makes of a prompt's bytes.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "engine/text/chat_template.h"
#include "serving/http/server.h"
#include "serving/http/service.h"
#include "tests/serving/http/raw_client.h"
#include "tests/serving/scheduler/recorded_texts.h"

namespace trireme::test {

// Lets steps be computed, or holds them; and may fail.
class Gate {
 public:
  void hold() { hold_after(0); }
  void hold_after(int64_t steps) { set(steps); }
  void release() { set(INT64_MAX); }
  // So many steps have been computed, or are.
  bool is_shut() {
    const std::lock_guard lock(mutex_);
    return steps_ == 0;
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    fails_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return steps_ > 0 || fails_; });
    if (fails_) throw std::runtime_error("rank 3 lost");
    --steps_;
    ++passed_;
  }
  // Steps so far.
  int64_t passed() {
    const std::lock_guard lock(mutex_);
    return passed_;
  }

 private:
  void set(int64_t steps) {
    const std::lock_guard lock(mutex_);
    steps_ = steps;
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t steps_ = INT64_MAX, passed_ = 0;  // that may still be computed, that were
  bool fails_ = false;
};

class GatedTexts final : public StepExecutor {
 public:
  GatedTexts(Gate& gate, int64_t blocks, int64_t block_tokens)
      : gate_(gate), texts_(blocks, block_tokens, 256) {}
  StepOutcome execute(const StepPlan& plan) override {
    gate_.pass();
    return texts_.execute(plan);
  }

 private:
  Gate& gate_;
  RecordedTexts texts_;
};

struct RecordedServerOptions {
  HttpConfig http;
  BatchingConfig scheduler{.max_sequences = 8, .max_step_tokens = 256, .max_model_len = 512};
  AdmissionLimits admission{.running = 8, .waiting = 32};
  RequestLimits requests{.vocab_size = 257};
  ToolFormat tools = ToolFormat::kNone;
  AnswerLimits answers;
  ModelWeights* weights = nullptr;
  int64_t adapters = 0;
  int64_t blocks = 1024, block_tokens = 8;
};

class RecordedServer {
 public:
  explicit RecordedServer(RecordedServerOptions options = {})
      : metrics("m", options.scheduler.max_model_len,
                {.block_size = options.block_tokens, .blocks = options.blocks, .dtype = "float32"}),
        engine(std::make_unique<GatedTexts>(gate, options.blocks, options.block_tokens),
               options.scheduler, options.blocks, options.block_tokens,
               [this](const StepReport& report) { metrics.step(report); }),
        service(engine, *tokenizer, &chat, metrics,
                {.models = {{.id = "m",
                             .created = 1,
                             .max_model_len = options.scheduler.max_model_len}},
                 .version = "1.0",
                 .fingerprint = "f",
                 .max_model_len = options.scheduler.max_model_len,
                 .embedding_size = 3,
                 .end_ids = {256},
                 .requests = options.requests,
                 .admission = options.admission,
                 .answers = options.answers,
                 .tools = options.tools,
                 .weights = options.weights,
                 .adapters = options.adapters}) {
    options.http.port = 0;
    server = std::make_unique<HttpServer>(
        options.http, service.routes(),
        [this](const RequestSummary& summary) { service.count(summary); });
  }
  ~RecordedServer() {
    gate.release();
    server.reset();
  }

  int port() const { return server->port(); }
  Response ask(const std::string& request) const { return test::ask(port(), request); }
  // Nothing of any request is left.
  bool is_quiet() const {
    const EngineCounts counts = engine.counts();
    return counts.scheduler.running == 0 && counts.scheduler.waiting == 0 &&
           counts.used_blocks == 0 && server->counts().exchanges == 0 && sequences() == 0;
  }
  // The engine has so many sequences.
  int64_t in_engine() const {
    const SchedulerCounts counts = engine.counts().scheduler;
    return counts.running + counts.waiting;
  }
  int64_t sequences() const { return const_cast<Service&>(service).admission().sequences(); }

  // The bytes that follow a prompt.
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

  Gate gate;
  std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer();
  ChatTemplate chat{"{% for m in messages %}{{ m.role }}:{{ m.content }}<|endoftext|>{% endfor %}"};
  ServingMetrics metrics;
  Engine engine;
  Service service;
  std::unique_ptr<HttpServer> server;
};

}  // namespace trireme::test
