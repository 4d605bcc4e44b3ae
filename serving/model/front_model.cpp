#include "serving/model/front_model.h"

#include <future>
#include <optional>

#include "engine/core/cpu.h"
#include "engine/device/timing.h"
#include "engine/observe/log.h"
#include "parallel/comm/control/control_rendezvous.h"
#include "parallel/launch.h"
#include "serving/engine/replicas.h"
#include "serving/model/draft_model.h"
#include "serving/model/rank_model.h"

namespace trireme {
namespace {

constexpr std::chrono::milliseconds kFrontRendezvous{60'000};
constexpr std::chrono::milliseconds kLook{5};  // wait for each replica still loading, per round

DType dtype_named(const std::string& name) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    if (text(dtype) == name) return dtype;
  throw BadMessage(concat("expected the name of a dtype from the ranks, got ", name));
}

// Ranks serve no requests and need no keys, and their arguments are visible to others on other
// machines, for example in Slurm's records.
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

// With slots for run-time adapters the task lists the adapters of all slots; otherwise the ranks'
// command line lists the adapters.
RankTask task_of(const LoadedModel& loaded, const std::string& tokenizer,
                 const ServedModelOptions& options) {
  RankTask task{.model = loaded.checkpoint(), .tokenizer = tokenizer, .adapters = {}};
  if (options.adapter_slots.count == 0) return task;
  task.adapters = options.modules;
  task.adapters.resize(static_cast<size_t>(options.adapter_slots.count));
  return task;
}

}  // namespace

FrontModel::FrontModel(const ServedModelOptions& options, const std::vector<std::string>& command) {
  WorldOptions single;
  single.backend = "single";
  alone_ = make_world(single);
  open(options, *alone_);
  if (options.ranks % options.replicas != 0)
    fail_input("--ranks ", options.ranks, " cannot be divided among --data-parallel-size ",
               options.replicas, " replicas; give a multiple, or leave --ranks out");
  sizes_of_one_model(options.layout, loaded_->config(), options.ranks / options.replicas);
  if (options.draft.empty())
    alone_.reset();
  else
    load_draft(options);
  start(options, command);
  try {
    wait_until_ready();
  } catch (const Error& error) {
    // Logged before the other replicas have ended, which may take seconds.
    if (replicas() > 1) log_warning(error.what(), "; stopping the other replicas");
    end_groups();
    throw;
  }
  if (draft_ != nullptr) divide_memory_of_draft(options);
  if (replicas() > 1) device_ = concat(replicas(), " replicas, each of ", device_);
}

// Loads the draft model before the ranks take their share of the memory. On a CPU it uses one
// thread, or options.threads if set, and leaves the other cores to the ranks.
void FrontModel::load_draft(const ServedModelOptions& options) {
  draft_ = std::make_unique<DraftModel>(options, *tokenizer_);
  draft_device_ = open_rank_device(*alone_, options.device);
  draft_->load(std::max(1, options.threads), draft_device_.get(), limits_.length);
  log_info("the draft model runs in this process, on ",
           describe_device(draft_device_, draft_->threads()));
}

// Ranks on the same GPU have taken their share by now. The draft's caches get half of the rest; the
// other half is for the activations of all.
void FrontModel::divide_memory_of_draft(const ServedModelOptions& options) {
  std::optional<int64_t> of_gpu;
  if (draft_device_.get() != nullptr) of_gpu = cuda::device_memory(*draft_device_.get()).free() / 2;
  draft_->divide_memory(limits_, cache_bytes(options, of_gpu), replicas());
}

std::unique_ptr<Drafter> FrontModel::make_drafter() {
  return draft_ != nullptr ? draft_->make_drafter() : nullptr;
}

// Not bound to fixed cores: the ranks on this machine are bound to theirs.
void FrontModel::move_here() {
  if (draft_ == nullptr) return;
  pin_team(0, draft_->threads());
  allow_cores(0, available_cores());
}

// Polls all replicas, so that a failure of one is reported at once, while others still load.
void FrontModel::wait_until_ready() {
  std::vector<std::optional<RankReady>> ready(groups_.size());
  for (size_t missing = ready.size(); missing > 0;) {
    for (size_t replica = 0; replica < ready.size(); ++replica) {
      if (ready[replica]) continue;
      ready[replica] = groups_[replica]->wait_until_ready(kLook);
      if (ready[replica]) --missing;
    }
  }
  for (const std::optional<RankReady>& one : ready)
    if (one) take(*one);  // always true here
}

FrontModel::~FrontModel() { end_groups(); }

// Ends the ranks of all replicas at the same time.
void FrontModel::end_groups() {
  std::vector<std::future<void>> ends;
  ends.reserve(groups_.size());
  for (auto& group : groups_)
    ends.push_back(std::async(std::launch::async, [&group] { group.reset(); }));
}

void FrontModel::start(const ServedModelOptions& options, const std::vector<std::string>& command) {
  const int replicas = options.replicas;
  for (int replica = 0; replica < replicas; ++replica)
    groups_.push_back(std::make_unique<RankSupervisor>(
        RankGroupConfig{.ranks = options.ranks / replicas,
                        .launcher = rank_launcher(options.launcher),
                        .command = without_keys(command),
                        .task = task_of(*loaded_, spec_, options),
                        .address = options.rank_address,
                        .position = {.number = replica, .groups = replicas}}));
}

// If replicas differ in memory, all use the smallest length and number of blocks.
void FrontModel::take(const RankReady& ready) {
  const PlanBounds& bounds = ready.bounds;
  const bool first = device_.empty();
  limits_.tokens = bounds.tokens;
  limits_.sequences = bounds.slots;
  limits_.length = first ? bounds.length : std::min(limits_.length, bounds.length);
  limits_.blocks = first ? bounds.blocks : std::min(limits_.blocks, bounds.blocks);
  limits_.block_tokens = bounds.block_tokens;
  limits_.windows = bounds.windows;
  dtype_ = dtype_named(ready.dtype);
  if (first) device_ = ready.device;
}

std::unique_ptr<StepExecutor> FrontModel::make_executor(size_t replica) {
  return std::make_unique<RemoteExecutor>(*groups_[replica]);
}

void FrontModel::attach_engines(Replicas* engines) {
  for (size_t replica = 0; replica < groups_.size(); ++replica) {
    RankSupervisor::Listener listener;
    if (engines != nullptr)
      listener = [&engine = (*engines)[replica]](const std::string& why) {
        if (why.empty())
          engine.resume();
        else
          engine.interrupt(kRanksLost);
      };
    groups_[replica]->listen(std::move(listener));
  }
}

ModelWeights::Checkpoint FrontModel::stage(const std::string& path) {
  next_ = loaded_->open_next(path);
  stage_on_all({.path = next_->checkpoint()});
  return {next_->checkpoint(), next_->step()};
}

void FrontModel::stage_adapter(int32_t slot, const std::string& path) {
  adapter_ = loaded_->stage_adapter(static_cast<size_t>(slot), path);
  stage_on_all({.slot = slot, .path = path});
}

// Replicas whose ranks are lost load the weights when they restart (commit()); whether the weights
// are valid is reported by the other replicas.
void FrontModel::stage_on_all(StageRequest request) {
  staged_ = std::move(request);
  std::vector<std::future<void>> stages;
  stages.reserve(groups_.size());
  for (const auto& group : groups_)
    stages.push_back(std::async(std::launch::async, [&group, this] { group->stage(staged_); }));
  size_t lost = 0;
  std::exception_ptr refused, last;
  for (std::future<void>& stage : stages) {
    try {
      stage.get();
    } catch (const InputError&) {
      refused = std::current_exception();
    } catch (const std::exception&) {
      last = std::current_exception();
      ++lost;
    }
  }
  if (refused == nullptr && lost == groups_.size()) refused = last;
  if (refused == nullptr) return;
  drop();
  std::rethrow_exception(refused);
}

bool FrontModel::commit() {
  for (const auto& group : groups_) group->commit(staged_);
  return true;
}

void FrontModel::drop() {
  for (const auto& group : groups_) {
    try {
      group->drop();
    } catch (const Error& error) {  // lost ranks have nothing staged
      log_warning("cannot release staged weights: ", error.what());
    }
  }
  next_.reset();
  adapter_.reset();
}

void FrontModel::forget_adapter(int32_t slot) {
  for (const auto& group : groups_) group->forget_adapter(slot);
}

void serve_as_rank(ServedModelOptions options, const std::string& leader) {
  end_with_parent();
  const std::unique_ptr<ControlChannel> channel = connect_control_channel(
      ControlAddress::parse(leader), detect_launcher().rank, kFrontRendezvous);
  Heartbeat heartbeat(*channel);
  options.led = true;
  options.draft.clear();  // runs in the front process
  try {
    const RankTask task = receive_task(*channel, kFrontRendezvous);
    options.model = task.model;
    options.tokenizer = task.tokenizer;
    if (!task.adapters.empty()) options.modules = task.adapters;
    options.blocks = task.blocks;
    RankModel(options).follow(*channel, heartbeat);
  } catch (const Error& error) {
    try {
      const std::string why = error.what();
      channel->send(MessageKind::kFailed, 0, std::as_bytes(std::span(why)));
    } catch (const Error&) {  // the front process is gone
    }
    throw;
  }
}

}  // namespace trireme
