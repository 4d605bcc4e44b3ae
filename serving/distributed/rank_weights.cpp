#include "serving/distributed/rank_weights.h"

#include "engine/core/cpu.h"
#include "engine/core/thread_name.h"
#include "engine/observe/log.h"
#include "parallel/comm/control/records.h"

namespace trireme {
namespace {

std::span<const std::byte> weight_bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

constexpr int64_t kMaxTask = 4 << 20;  // paths of all adapters, of maximal length

// Truncates to what fits into a short message.
std::string cut(std::string words) {
  constexpr size_t kMax = 16 << 10;
  if (words.size() > kMax) words.resize(kMax);
  return words;
}

// Waits without limit.
Message next_message(ControlChannel& channel) {
  for (;;)
    if (std::optional<Message> message = channel.receive(ControlChannel::kForever))
      return *std::move(message);
}

}  // namespace

void send_task(ControlChannel& rank, const RankTask& task) {
  RecordWriter writer;
  writer.put(task.model);
  writer.put(task.tokenizer);
  writer.put(task.adapters);
  writer.put(task.blocks);
  rank.send(MessageKind::kTask, 0, writer.take());
}

RankTask receive_task(ControlChannel& leader, std::chrono::milliseconds limit) {
  leader.accept_payloads(kMaxTask);
  const std::optional<Message> message = leader.receive(limit);
  if (!message)
    throw Error(concat(leader.peer(), " did not send the rank's task"), ExitCode::kLostRank);
  if (!message->is(MessageKind::kTask))
    throw BadMessage(
        concat(leader.peer(), ": expected the rank's task, got a message of kind ", message->kind));
  RankTask task;
  leader.accept_payloads(ControlChannel::kShort);
  RecordReader reader(message->payload);
  reader.get(task.model);
  reader.get(task.tokenizer);
  reader.get(task.adapters);
  reader.get(task.blocks);
  reader.expect_end();
  return task;
}

std::vector<std::byte> encode_stage(const StageRequest& request) {
  RecordWriter writer;
  writer.put(request.slot);
  writer.put(request.path);
  return writer.take();
}

WeightsFollower::~WeightsFollower() {
  if (worker_.joinable()) worker_.join();
}

bool WeightsFollower::take(const Message& message) {
  const bool known = message.is(MessageKind::kStage) || message.is(MessageKind::kUse) ||
                     message.is(MessageKind::kDrop);
  if (!known) return false;
  if (weights_ == nullptr)
    throw BadMessage(concat(leader_.peer(), " changes weights, but this rank has none to change"));
  // The leader has waited for kStaged before it sends more, so at most a drop is still running.
  if (worker_.joinable()) worker_.join();
  if (message.is(MessageKind::kUse)) {
    weights_->use(0);
    leader_.send(MessageKind::kUsed, message.number);
  } else if (message.is(MessageKind::kDrop)) {
    begin([this] { weights_->drop(); });
  } else {
    StageRequest request;
    RecordReader reader(message.payload);
    reader.get(request.slot);
    reader.get(request.path);
    reader.expect_end();
    begin([this, request, number = message.number] { stage(number, request); });
  }
  return true;
}

void WeightsFollower::begin(std::function<void()> work) {
  worker_ = std::thread([work = std::move(work)] {
    name_thread("loader");
    // This thread inherits the affinity of the core that computes steps.
    allow_cores(0, available_cores());
    try {
      work();
    } catch (const std::exception& error) {  // follow_plans() detects the lost leader
      log_warning("weight change failed: ", error.what());
    }
  });
}

void WeightsFollower::stage(uint64_t number, const StageRequest& request) {
  std::string why;
  try {
    if (request.slot < 0)
      weights_->stage(request.path);
    else
      weights_->stage_adapter(request.slot, request.path);
  } catch (const std::exception& error) {
    why = cut(error.what());
    if (why.empty()) why = "no reason given";
  }
  leader_.send(MessageKind::kStaged, number, weight_bytes_of(why));
}

void Followers::send(MessageKind kind, uint64_t number, std::span<const std::byte> payload) {
  for (const auto& channel : channels_) channel->send(kind, number, payload);
}

void Followers::end() noexcept {
  for (const auto& channel : channels_) {
    try {
      channel->send(MessageKind::kEnd, 0);
    } catch (const std::exception&) {  // it has ended already
    }
  }
}

void Followers::stage(const StageRequest& request) {
  send(MessageKind::kStage, ++change_, encode_stage(request));
}

std::string Followers::staged() { return wait_for(MessageKind::kStaged); }
void Followers::use() { send(MessageKind::kUse, change_); }
void Followers::used() { wait_for(MessageKind::kUsed); }
void Followers::drop() { send(MessageKind::kDrop, change_); }

std::string Followers::wait_for(MessageKind kind) {
  std::string first;
  for (const auto& channel : channels_) {
    const Message message = next_message(*channel);
    if (!message.is(kind) || message.number != change_)
      throw BadMessage(concat(channel->peer(), " sent an unexpected message of kind ", message.kind,
                              " during a weight change"));
    if (first.empty())
      first.assign(reinterpret_cast<const char*>(message.payload.data()), message.payload.size());
  }
  return first;
}

}  // namespace trireme
