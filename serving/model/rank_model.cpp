#include "serving/model/rank_model.h"

#include <algorithm>
#include <sstream>

#include "engine/core/cpu.h"
#include "engine/core/host_memory.h"
#include "engine/device/timing.h"
#include "engine/observe/log.h"
#include "parallel/agree.h"
#include "parallel/comm/control/control_rendezvous.h"
#include "parallel/launch.h"
#include "serving/distributed/leading_executor.h"
#include "serving/distributed/rank_loop.h"
#include "serving/engine/model_drafting.h"
#include "serving/model/draft_model.h"
#include "serving/model/gpu_memory.h"
#include "serving/model/kv_cache_type.h"
#include "transformer/pass/sharding.h"

namespace trireme {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kSequences = 256, kStepTokens = 512, kStepTokensOfGpu = 2048;
constexpr milliseconds kRendezvous{60'000};

int64_t or_default(int64_t asked, int64_t otherwise) { return asked > 0 ? asked : otherwise; }

// Longest sequence, of whole blocks, that so many blocks hold.
int64_t longest_length(StepLimits limits, int64_t blocks) {
  int64_t fits = 1, more = ceil_div(limits.length, limits.block_tokens) + 1;  // in blocks
  while (more - fits > 1) {
    const int64_t half = fits + (more - fits) / 2;
    limits.length = half * limits.block_tokens;
    (limits.blocks_of_sequence() <= blocks ? fits : more) = half;
  }
  return fits * limits.block_tokens;
}

// Rank 0's ends of its channels to all other ranks.
std::vector<std::unique_ptr<ControlChannel>> all_of(ControlListener& listener, int ranks) {
  std::vector<std::unique_ptr<ControlChannel>> channels(static_cast<size_t>(ranks - 1));
  const auto end = std::chrono::steady_clock::now() + kRendezvous;
  for (int missing = ranks - 1; missing > 0;) {
    if (std::chrono::steady_clock::now() > end)
      throw Error(concat(missing, " ranks have not connected to the control channel"),
                  ExitCode::kLostRank);
    const auto peer = listener.accept(milliseconds(500));
    if (peer == nullptr || peer->rank < 1 || peer->rank >= ranks) continue;
    auto& place = channels[static_cast<size_t>(peer->rank - 1)];
    if (place != nullptr) continue;
    place = std::move(peer->channel);
    --missing;
  }
  return channels;
}

std::vector<RankStep> steps_of_ranks(Communicator& world, const RankStep& own) {
  std::vector<RankStep> out;
  for (const std::string& line :
       world.all_gather_strings(concat(own.host, " ", own.device, " ", own.bytes))) {
    std::istringstream in(line);
    RankStep& step = out.emplace_back();
    in >> step.host >> step.device >> step.bytes;
  }
  return out;
}

}  // namespace

RankModel::RankModel(const ServedModelOptions& options) {
  before_connecting([&] { world_ = make_world(options.world); });
  set_log_rank(world_->rank());
  require_same_on_ranks(world_->world(), options.facts);
  open(options, *world_);
  agreed(world_->world(), [&] {
    if (!options.draft.empty() && leads())
      draft_ = std::make_unique<DraftModel>(options, *tokenizer_);
    sizes_ = sizes_of_one_model(options.layout, loaded_->config(), world_->size());
  });
  load(options);
  divide_memory(options);
  if (world_->size() > 1 && !options.led) connect_channels(options.rank_address);
}

// Frees parameters before the device.
RankModel::~RankModel() {
  if (const cuda::Context* const gpu = device_.get(); gpu != nullptr)
    log_info("attention by ", cuda::attention_paths(*gpu), "; products by ",
             cuda::gemm_choice(*gpu));
  draft_.reset();
  loaded_.reset();
}

void RankModel::load(const ServedModelOptions& options) {
  const ModelConfig& model = loaded_->config();
  device_ = open_rank_device(*world_, options.device, loaded_->bundle().device_backend);
  if (device_.get() == nullptr && options.gpu_share.has_value())
    fail_input("--gpu-memory-utilization ", *options.gpu_share, ": the model runs on a CPU",
               device_.reason.empty() ? "" : concat(" (", device_.reason, ")"),
               ", where --kv-cache-memory-bytes sets the size of the KV cache");
  groups_ = std::make_unique<Groups>(world_->world(), sizes_, kv_head_copies(model, sizes_.tp));
  threads_ = pin_rank(*world_, options.threads);
  ctx_ = std::make_unique<Ctx>(threads_, "activations", device_.get());
  agreed(world_->world(), [&] { loaded_->load(*ctx_, groups_->layout, limits_.length); });
  // Exact on one machine, since its replicas are equal; with several machines, the mean.
  const int64_t all =
      world_->world().all_reduce_scalar(loaded_->parameters().value_bytes(), ReduceOp::kSum);
  weight_bytes_ = ceil_div(checked_mul(all, world_->local_size()), world_->size());
  agreed(world_->world(), [&] {
    if (draft_ != nullptr) draft_->load(threads_, device_.get(), limits_.length);
  });
}

// Sets the number of concurrent sequences and the size of their KV cache. All ranks use the
// smallest number of blocks that fits on any of them.
void RankModel::divide_memory(const ServedModelOptions& options) {
  const bool gpu = device_.get() != nullptr;
  limits_.tokens = or_default(options.max_batched_tokens,
                              std::max(gpu ? kStepTokensOfGpu : kStepTokens, options.max_num_seqs));
  limits_.sequences = or_default(options.max_num_seqs, std::min(kSequences, limits_.tokens));
  limits_.windows = kv_windows(loaded_->config(), limits_.length);
  limits_.block_tokens = kv_block_tokens(loaded_->config());
  if (draft_ != nullptr)
    limits_.block_tokens = kv_block_tokens(draft_->config(), limits_.block_tokens);
  limits_.deterministic = options.deterministic;
  if (gpu && options.deterministic)
    fail_input(
        "--deterministic: products on a GPU are not batch-invariant; serve with --device cpu");
  limits_.kv_type = options.kv_type;
  const KvType kept = limits_.kv_type.value_or(KvType{dtype()});
  check_kv_type(kept, dtype(), gpu);
  const int64_t of_block =
      kv_block_bytes(loaded_->model(), kept, groups_.get(), limits_.block_tokens, limits_.windows) +
      (draft_ != nullptr ? draft_->bytes_beside_block(limits_) : 0);
  const int64_t bytes =
      options.blocks > 0 ? checked_mul(options.blocks, of_block)
                         : cache_bytes(options, left_of_gpu(options.gpu_share.value_or(kGpuShare)));
  const int64_t held = world_->world().all_reduce_scalar(bytes / of_block, ReduceOp::kMin);
  agreed(world_->world(), [&] { check_cache(options, bytes, of_block, held); });
  limits_.blocks = std::min(held, checked_mul(limits_.sequences, limits_.blocks_of_sequence()));
  if (draft_ != nullptr) draft_->divide_memory(limits_);
}

// Bytes of the GPU that are left for this rank's KV cache. Called when all ranks have loaded and
// none has a cache, so that the memory in use is that of weights, libraries and other processes.
// Ranks that share a GPU share the rest. Collective.
std::optional<int64_t> RankModel::left_of_gpu(double share) const {
  if (device_.get() == nullptr) return std::nullopt;
  const cuda::DeviceMemory memory = cuda::device_memory(*device_.get());
  const int devices = cuda::device_status().devices;
  const int sharing = 1 + (world_->local_size() - 1 - device_.get()->device) / devices;
  const std::vector<RankStep> steps = steps_of_ranks(
      world_->world(), {world_->host(), device_.get()->device, largest_step_bytes()});
  return cache_bytes_on_gpu(
      {.total = memory.total,
       .used = memory.used,
       .share = share,
       .sharing = sharing,
       .step_bytes = step_bytes_on_gpu(steps, static_cast<size_t>(world_->rank()), sharing)});
}

int64_t RankModel::largest_step_bytes() const {
  StepLimits limits = limits_;
  limits.blocks = 1;
  ModelExecutor executor(loaded_->model(), loaded_->parameters(), *ctx_, groups_.get(),
                         {.limits = limits});
  return executor.largest_step_bytes();
}

void RankModel::check_cache(const ServedModelOptions& options, int64_t bytes, int64_t of_block,
                            int64_t blocks) {
  const bool shared = device_.get() != nullptr && options.cache_bytes == 0;
  const char* const sizes = shared ? "--gpu-memory-utilization" : "--kv-cache-memory-bytes";
  // A token has a block in each group of layers.
  const int64_t least = checked_mul(of_block, std::ssize(limits_.windows));
  if (bytes < least && shared) {
    const cuda::DeviceMemory memory = cuda::device_memory(*device_.get());
    fail_input("--gpu-memory-utilization ", options.gpu_share.value_or(kGpuShare), ": of ",
               memory.total, " bytes of GPU ", device_.get()->device, ", ", memory.used,
               " are in use without a KV cache; ", bytes, " bytes are left for the cache, and ",
               limits_.block_tokens, " tokens need ", least,
               " bytes; raise --gpu-memory-utilization, quantize the weights (--quantization), or "
               "divide the model over more ranks");
  }
  if (bytes < least)
    fail_input("--kv-cache-memory-bytes ", bytes, ": ", limits_.block_tokens, " tokens need ",
               least, " bytes; give at least as many");
  if (limits_.blocks_of_sequence() <= blocks) return;
  const int64_t held = longest_length(limits_, blocks);
  if (options.max_model_len > 0)
    fail_input("--max-model-len ", limits_.length, ": the KV cache of ", bytes, " bytes holds ",
               held, " tokens; raise ", sizes);
  limits_.length = held;
  log_warning("maximum length reduced to ", limits_.length,
              " tokens, the capacity of the KV cache of ", bytes, " bytes; ", sizes,
              " sets its size");
}

void RankModel::connect_channels(const std::string& address) {
  std::unique_ptr<ControlListener> listener;
  // Containers on one machine may have separate networks.
  const bool one_machine = world_->local_size() == world_->size() && world_->nodes() == 1;
  const std::string line = from_rank_0(world_->world(), [&] {
    listener = std::make_unique<ControlListener>(
        one_machine ? ControlListener::on_this_machine() : ControlListener::on_address(address));
    return listener->address().line();
  });
  if (leads())
    followers_ = std::make_unique<Followers>(all_of(*listener, world_->size()));
  else
    leader_ = connect_control_channel(ControlAddress::parse(line), world_->rank(), kRendezvous);
}

std::unique_ptr<StepExecutor> RankModel::own_executor() {
  return std::make_unique<ModelExecutor>(loaded_->model(), loaded_->parameters(), *ctx_,
                                         groups_.get(),
                                         ExecutorConfig{.limits = limits_,
                                                        .vocab_size = tokenizer_->vocab_size(),
                                                        .adapters = loaded_->module_columns()});
}

PlanBounds RankModel::bounds() const {
  return {.slots = limits_.sequences,
          .tokens = limits_.tokens,
          .length = limits_.length,
          .blocks = limits_.blocks,
          .block_tokens = limits_.block_tokens,
          .ids = tokenizer_->vocab_size(),
          .mask_words = ceil_div(loaded_->model().config().vocab_size, 32),
          .adapters = std::ssize(loaded_->module_columns()),
          .windows = limits_.windows};
}

std::unique_ptr<StepExecutor> RankModel::make_executor(size_t) {
  if (followers_ == nullptr) return own_executor();
  return std::make_unique<LeadingExecutor>(own_executor(), *followers_);
}

std::unique_ptr<Drafter> RankModel::make_drafter() {
  return draft_ != nullptr ? draft_->make_drafter() : nullptr;
}

void RankModel::follow() {
  const std::unique_ptr<StepExecutor> executor = own_executor();
  follow_plans(*leader_, *executor, {.bounds = bounds(), .weights = this});
}

void RankModel::follow(ControlChannel& leader, Heartbeat& heartbeat) {
  const std::unique_ptr<StepExecutor> executor = own_executor();
  const Layout& layout = groups_->layout;
  leader.accept_payloads(bounds().max_bytes());
  leader.send(MessageKind::kReady, 0,
              encode_ready({.bounds = bounds(), .dtype = text(dtype()), .device = device()}));
  follow_plans(leader, *executor,
               {.bounds = bounds(),
                .reports_outputs = layout.pp.index == layout.pp.size - 1 && layout.tp.index == 0,
                .heartbeat = &heartbeat,
                .weights = this});
}

// Stages on all ranks, on this one by `own`. InputError with the first rank's error, if any.
void RankModel::stage_everywhere(const StageRequest& request, const std::function<void()>& own) {
  if (followers_ != nullptr) followers_->stage(request);
  std::string why;
  try {
    own();
  } catch (const std::exception& error) {
    why = error.what();  // any exception: the other ranks' responses must still be received
  }
  if (followers_ != nullptr)
    if (const std::string theirs = followers_->staged(); why.empty()) why = theirs;
  if (why.empty()) return;
  drop();
  throw InputError(why);
}

// Loads on the host, whatever the device, and on one core, so that steps continue meanwhile. The
// ranks of a machine load at about the same time, and each first checks the free memory: if memory
// is tight, a later rank may refuse although all would have fitted.
ModelWeights::Checkpoint RankModel::stage(const std::string& path) {
  const int64_t free = free_host_memory();
  next_ = loaded_->open_next(path);
  stage_everywhere({.path = next_->checkpoint()}, [&] {
    check_memory_for_reload(weight_bytes_, free);
    Ctx ctx(1, "staged weights");
    next_->load(ctx, groups_->layout, limits_.length);
  });
  return {next_->checkpoint(), next_->step()};
}

void RankModel::stage_adapter(int32_t slot, const std::string& path) {
  stage_everywhere({.slot = slot, .path = path},
                   [&] { adapter_ = loaded_->stage_adapter(static_cast<size_t>(slot), path); });
}

void RankModel::use(size_t) {
  if (followers_ != nullptr) followers_->use();
  if (next_ != nullptr) loaded_->replace_weights(*ctx_, *next_);
  if (adapter_ != nullptr) loaded_->install_adapter(*ctx_, *adapter_);
  if (followers_ != nullptr) followers_->used();
}

void RankModel::drop() {
  if (followers_ != nullptr) followers_->drop();
  next_.reset();
  adapter_.reset();
}

std::string RankModel::device() const {
  const std::string own = describe_device(device_, threads_);
  return world_->size() == 1 ? own : concat(world_->describe(), ", each on ", own);
}

void RankModel::move_here() { pin_team(0, threads_); }

}  // namespace trireme
