#include "serving/distributed/rank_loop.h"

#include <csignal>

#include "engine/core/thread_name.h"

namespace trireme {
namespace {

template <class S>
auto members(S& bounds) requires std::same_as<std::remove_const_t<S>, PlanBounds> {
  auto& [slots, tokens, length, blocks, block_tokens, ids, mask_words, adapters, windows] = bounds;
  return std::tie(slots, tokens, length, blocks, block_tokens, ids, mask_words, adapters, windows);
}

}  // namespace

std::vector<std::byte> encode_ready(const RankReady& ready) {
  RecordWriter writer;
  std::apply([&](const auto&... number) { (writer.put(number), ...); }, members(ready.bounds));
  writer.put(ready.dtype);
  writer.put(ready.device);
  return writer.take();
}

RankReady decode_ready(std::span<const std::byte> bytes) {
  RankReady ready;
  RecordReader reader(bytes);
  std::apply([&](auto&... number) { (reader.get(number), ...); }, members(ready.bounds));
  reader.get(ready.dtype);
  reader.get(ready.device);
  reader.expect_end();
  return ready;
}

Heartbeat::Heartbeat(ControlChannel& channel) : channel_(channel), thread_([this] { loop(); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Heartbeat::loop() {
  // Signals are handled by other threads.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  name_thread("heartbeat");
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kBeatPeriod, [&] { return stop_; })) {
    try {
      channel_.send(MessageKind::kBeat, computed_);
    } catch (const Error&) {
      return;  // follow_plans() detects the closed channel too
    }
  }
}

void follow_plans(ControlChannel& leader, StepExecutor& executor, const RankLoopOptions& how) {
  leader.accept_payloads(how.bounds.max_bytes());
  PlanDecoder decoder(how.bounds);
  WeightsFollower weights(leader, how.weights);
  for (;;) {
    const std::optional<Message> message = leader.receive(ControlChannel::kForever);
    if (!message) continue;
    if (message->is(MessageKind::kEnd)) return;
    if (weights.take(*message)) continue;
    if (!message->is(MessageKind::kPlan))
      throw BadMessage(
          concat(leader.peer(), ": expected a plan, got a message of kind ", message->kind));
    const SchedulerOutput plan = decoder.decode(message->payload);
    const StepOutput outcome = executor.execute(plan);
    if (how.reports_outputs) leader.send(MessageKind::kOutput, plan.number, encode_output(outcome));
    if (how.heartbeat != nullptr) how.heartbeat->computed(plan.number);
  }
}

}  // namespace trireme
