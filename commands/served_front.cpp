#include "commands/served_front.h"

#include "commands/rank_options.h"
#include "parallel/agree.h"
#include "parallel/launch.h"
#include "serving/distributed/side_meeting.h"
#include "serving/engine/engine.h"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kMeeting{60'000};

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    if (text(dtype) == name) return dtype;
  throw BadMessage(concat("ranks compute in ", name));
}

// Ranks answer no requests, and on other machines their arguments are for all to see, Slurm's records included.
std::vector<std::string> without_keys(const std::vector<std::string>& command) {
  std::vector<std::string> out;
  out.reserve(command.size());
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string_view word = command[i];
    if (word == "--api-key" || word == "--admin-api-key")
      ++i;  // the key
    else if (!word.starts_with("--api-key=") && !word.starts_with("--admin-api-key="))
      out.push_back(command[i]);
  }
  return out;
}

// With room for adapters, those of all slots; without it the ranks' own command line names them.
RankTask task_of(const LoadedModel& loaded, const std::string& tokenizer,
                 const ServedModelOptions& options) {
  RankTask task{loaded.checkpoint(), tokenizer, {}};
  if (options.room.slots == 0) return task;
  task.adapters = options.modules;
  task.adapters.resize(static_cast<size_t>(options.room.slots));
  return task;
}

}  // namespace

FrontModel::FrontModel(const ServedModelOptions& options, const CommandLine& line) {
  {
    WorldOptions single;
    single.backend = "single";
    const std::unique_ptr<World> alone = make_world(single);
    open(options, *alone);
    sizes_of_one_model(options.layout, loaded_->run_config().model, options.ranks);
  }
  ranks_ = std::make_unique<RankSupervisor>(
      RankGroupConfig{.ranks = options.ranks,
                      .launcher = rank_launcher(options.launcher),
                      .command = without_keys(own_command(line.argc, line.argv)),
                      .task = task_of(*loaded_, spec_, options),
                      .address = options.rank_address});
  RankReady ready;
  try {
    ready = ranks_->wait_until_ready();
  } catch (const Error& error) {
    // A rank has said it.
    if (error.code() == ExitCode::kBadInput) throw ReportedError(error.what());
    throw;
  }
  const PlanBounds& bounds = ready.bounds;
  limits_ = {.tokens = bounds.tokens, .sequences = bounds.slots, .length = bounds.length};
  limits_.blocks = bounds.blocks;
  limits_.block_tokens = bounds.block_tokens;
  dtype_ = dtype_named(ready.dtype);
  device_ = ready.device;
}

std::unique_ptr<StepExecutor> FrontModel::make_executor() {
  return std::make_unique<RemoteExecutor>(*ranks_);
}

void FrontModel::tell(Engine* engine) {
  if (engine == nullptr) return ranks_->listen({});
  ranks_->listen([engine](const std::string& why) {
    if (why.empty())
      engine->resume();
    else
      engine->interrupt(kRanksLost);
  });
}

ModelWeights::Place FrontModel::stage(const std::string& path) {
  next_ = loaded_->open_next(path);
  try {
    ranks_->stage({.path = next_->checkpoint()});
  } catch (const Error&) {
    drop();
    throw;
  }
  return {next_->checkpoint(), next_->step()};
}

void FrontModel::stage_adapter(int32_t slot, const std::string& path) {
  adapter_ = loaded_->stage_adapter(static_cast<size_t>(slot), path);
  try {
    ranks_->stage({.slot = slot, .path = path});
  } catch (const Error&) {
    drop();
    throw;
  }
}

void FrontModel::use() { ranks_->use(); }

void FrontModel::drop() {
  ranks_->drop();
  next_.reset();
  adapter_.reset();
}

void serve_as_rank(ServedModelOptions options, const std::string& leader) {
  end_with_parent();
  const std::unique_ptr<SideChannel> channel =
      connect_side_channel(SideAddress::parse(leader), detect_launcher().rank, kMeeting);
  Heartbeat heartbeat(*channel);
  options.led = true;
  try {
    const RankTask task = receive_task(*channel, kMeeting);
    options.model = task.model;
    options.tokenizer = task.tokenizer;
    if (!task.adapters.empty()) options.modules = task.adapters;
    RankModel(options).follow(*channel, heartbeat);
  } catch (const Error& error) {
    try {
      const std::string why = error.what();
      channel->send(MessageKind::kFailed, 0, std::as_bytes(std::span(why)));
    } catch (const Error&) {  // there is nobody to tell
    }
    throw;
  }
}

}  // namespace trireme
