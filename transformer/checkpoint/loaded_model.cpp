#include "transformer/checkpoint/loaded_model.h"

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/core/parallel_for.h"
#include "engine/observe/log.h"
#include "engine/observe/progress.h"
#include "engine/ops/quantized/quantized_weight.h"
#include "engine/ops/rows/copy_rows.h"
#include "engine/ops/rows/transfer.h"
#include "engine/text/chat_template.h"
#include "parallel/agree.h"
#include "parallel/comm/world.h"
#include "transformer/checkpoint/checkpoint_model.h"
#include "transformer/checkpoint/checkpoint_parameters.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/checkpoint/finite_weights.h"
#include "transformer/checkpoint/open_model.h"
#include "transformer/checkpoint/saved_chat_template.h"
#include "transformer/families/config_json.h"
#include "transformer/formats/merged_model.h"
#include "transformer/formats/peft/peft_adapter.h"
#include "transformer/formats/peft/stacked_adapters.h"

namespace trireme {
namespace {

std::string checkpoint_of(const std::string& path) {
  const NewestCheckpoint newest = find_checkpoint(checkpoints_directory(path));
  for (const std::string& why : newest.skipped) log_warning(why);
  return newest.directory;
}

// Copies in place: pages stay on the NUMA node of the threads that use them, and recorded GPU
// passes keep valid addresses.
void copy_bytes(const Ctx& ctx, void* to, const void* from, int64_t bytes) {
  constexpr int64_t kPiece = 1 << 20;
  auto* const out = static_cast<std::byte*>(to);
  const auto* const in = static_cast<const std::byte*>(from);
  parallel_for(ctx.threads, bytes, kPiece, [&](int64_t begin, int64_t end) {
    std::memcpy(out + begin, in + begin, static_cast<size_t>(end - begin));
  });
}

void copy_values(Ctx& ctx, ParameterStore& to, ParameterStore& from, ParamHandle h) {
  if (to.in_blocks(h)) {
    const std::vector<QuantizedMatrix> out = to.quantized_matrices(h, h),
                                       in = from.quantized_matrices(h, h);
    // quantized_matrices() returns const views of the store's own memory.
    for (size_t i = 0; i < out.size(); ++i) {
      const ConstTensor& bytes = out[i].bytes;
      const Tensor own(const_cast<void*>(bytes.raw()), bytes.dtype(), bytes.shape(),
                       bytes.device());
      if (ctx.gpu != nullptr)
        transfer(ctx, own, in[i].bytes);
      else
        copy_bytes(ctx, own.raw(), in[i].bytes.raw(), bytes.bytes());
    }
  } else if (ctx.gpu != nullptr) {
    transfer(ctx, to.value(h), from.value(h));
  } else {
    copy_bytes(ctx, to.value(h).raw(), from.value(h).raw(), to.value(h).bytes());
  }
}

// Part of the configuration that inference depends on; the rest concerns training.
Json computed_part(ModelConfig config) {
  config.initializer_range = 0;
  config.residual_dropout = config.embedding_dropout = config.attention_dropout = 0;
  MoeConfig& moe = config.moe;
  moe.balance_coef = moe.z_coef = moe.importance_coef = moe.load_coef = moe.bias_update_speed = 0;
  moe.balance_scope = {};
  return model_config_to_json(config);
}

// Inner (rank) dimension of an adapter's factor.
int inner_dimension(const ParameterSpec& spec) {
  return spec.name.ends_with(".lora_A.weight") ? 0 : 1;
}

Shape with_size(const Shape& shape, int dimension, int64_t size) {
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  dims.at(static_cast<size_t>(dimension)) = size;
  return Shape(std::span<const int64_t>(dims));
}

}  // namespace

void check_memory_for_reload(int64_t needed, int64_t free) {
  if (needed <= free) return;
  fail_input("the new weights need ", format_bytes(needed),
             " of this machine's memory in addition to the old ones, and ", format_bytes(free),
             " are free; free memory or raise the limit of the server's control group (cgroup), or "
             "restart the server with the new weights, which needs no memory for the old ones");
}

LoadedModel::LoadedModel(const std::string& path, Communicator& group, std::optional<DType> dtype,
                         const std::string& adapter, std::optional<BlockFormat> quantization,
                         const std::vector<std::string>& modules, const AdapterSlots& adapter_slots)
    : path_(path),
      checkpoint_(
          from_rank_0(group, [&] { return is_model_source(path) ? path : checkpoint_of(path); })),
      quantization_(quantization),
      has_own_adapters_(!adapter.empty() || !modules.empty() || adapter_slots.count > 0) {
  const std::string base = from_rank_0(group, [&] {
    if (is_model_source(checkpoint_) || has_own_adapters_) return std::string();
    const ModelBundle saved = read_model_bundle(CheckpointReader(checkpoint_));
    return saved.lora.enabled() ? find_base(checkpoint_, saved.load) : std::string();
  });
  agreed(group, [&] {
    open(dtype, quantization.has_value());
    if (has_own_adapters_) {
      if (bundle_.lora.enabled())
        fail_input(path, " has adapters already; merge them into a model first");
      if (adapter.empty())
        add_modules(modules, adapter_slots);
      else
        add_adapter(adapter);
      if (source_ == nullptr) source_ = std::make_unique<CheckpointModel>(checkpoint_);
    } else if (bundle_.lora.enabled()) {
      adapters_ = std::make_unique<CheckpointModel>(checkpoint_);
      source_ = open_found_model(base);
      source_->check(bundle_.model);
    }
    bundle_.dtype = dtype.value_or(bundle_.dtype);
    check_quantization();
  });
}

// Reads the description. Opens a source where the weights are converted, quantized or imported.
void LoadedModel::open(std::optional<DType> dtype, bool quantizes) {
  if (is_model_source(checkpoint_)) {
    source_ = open_model_source(checkpoint_);
    source_->check(source_->config());
    bundle_.model = source_->config();
    bundle_.dtype = source_->dtype();
    bundle_.tokenizer = source_->tokenizer();
    bundle_.lineage.special_tokens = true;
    return;
  }
  const CheckpointReader reader(checkpoint_);
  bundle_ = read_model_bundle(reader);
  step_ = reader.step();
  const bool converts = quantizes || dtype.value_or(bundle_.dtype) != bundle_.dtype;
  if (is_imported_state(reader.state()) || converts)
    source_ = std::make_unique<CheckpointModel>(checkpoint_);
}

void LoadedModel::add_adapter(const std::string& adapter) {
  auto peft = std::make_unique<PeftAdapter>(adapter);
  peft->check_adapters(bundle_.model);
  if (peft->needs_merging(bundle_.model)) {
    if (source_ == nullptr) source_ = std::make_unique<CheckpointModel>(checkpoint_);
    const LoraConfig lora = peft->lora();
    source_ = std::make_unique<MergedModel>(std::move(source_), std::move(peft), lora);
    bundle_.model = source_->config();
    merged_adapter_ = adapter;
  } else {
    bundle_.lora = peft->lora();
    adapters_ = std::move(peft);
  }
  bundle_.lineage.special_tokens = true;
  if (ChatTemplateSources kept = recorded_chat_templates(adapter); !kept.empty())
    bundle_.lineage.chat_templates = std::move(kept);
}

void LoadedModel::add_modules(const std::vector<std::string>& modules,
                              const AdapterSlots& adapter_slots) {
  if (adapter_slots.count > 0 && std::ssize(modules) > adapter_slots.count)
    fail_input("--max-loras ", adapter_slots.count, ": ", modules.size(), " adapters are given");
  adapter_slots_ = adapter_slots;
  std::vector<std::unique_ptr<const PeftAdapter>> opened;
  opened.reserve(modules.size());
  for (const std::string& module : modules)
    opened.push_back(module.empty() ? nullptr : std::make_unique<const PeftAdapter>(module));
  if (adapter_slots.count > 0) opened.resize(static_cast<size_t>(adapter_slots.count));
  const size_t slots = opened.size();
  auto stacked = std::make_unique<StackedAdapters>(std::move(opened), bundle_.model, adapter_slots);
  bundle_.lora = stacked->lora();
  for (size_t i = 0; i < slots; ++i) module_columns_.push_back(stacked->columns(i));
  adapters_ = std::move(stacked);
}

std::unique_ptr<LoadedModel::StagedAdapter> LoadedModel::stage_adapter(
    size_t slot, const std::string& path) const {
  auto staged = std::make_unique<StagedAdapter>();
  staged->columns = module_columns_.at(slot);
  std::vector<std::unique_ptr<const PeftAdapter>> opened;
  opened.push_back(std::make_unique<const PeftAdapter>(path));
  const StackedAdapters alone(std::move(opened), bundle_.model,
                              {.count = 1, .rank = adapter_slots_.rank});
  if (model_ == nullptr) return staged;
  ParameterList factors;
  for (ParameterSpec spec : store_->specs()) {
    if (!spec.adapter) continue;
    const int inner = inner_dimension(spec);
    spec.shape = with_size(spec.shape, inner, adapter_slots_.rank);
    if (!spec.box.extent.empty()) spec.box.extent[static_cast<size_t>(inner)] = adapter_slots_.rank;
    factors.add(std::move(spec));
  }
  staged->store = std::make_unique<ParameterStore>(factors, bundle_.dtype);
  Ctx host(1, "staged adapter");
  staged->store->allocate(host, false);
  alone.load_adapters(host, *model_, *staged->store);
  if (const std::string bad = find_non_finite(host, *staged->store); !bad.empty())
    fail_input(path, ": ", bad);
  return staged;
}

void LoadedModel::install_adapter(Ctx& ctx, const StagedAdapter& staged) {
  if (staged.store == nullptr) return;
  ParamHandle from = 0;
  for (ParamHandle h = 0; h < std::ssize(store_->specs()); ++h) {
    const ParameterSpec& spec = store_->specs()[static_cast<size_t>(h)];
    if (!spec.adapter) continue;
    const Tensor values = staged.store->value(from++);
    const Tensor place =
        store_->value(h).slice(inner_dimension(spec), staged.columns.first, staged.columns.second);
    if (ctx.gpu == nullptr) {
      copy_rows(ctx, place, values);
      continue;
    }
    const Buffer there("an adapter's factor", values.bytes(), ctx.memory());
    const Tensor moved = there.tensor(values.dtype(), values.shape());
    transfer(ctx, moved, values);
    copy_rows(ctx, place, moved);
  }
}

std::string LoadedModel::tokenizer_spec(const std::string& asked) const {
  std::string spec = asked.empty() ? bundle_.tokenizer : asked;
  if (spec.empty())
    fail_input(
        path_,
        " names no tokenizer (a run's data.tokenizer, tokenizer.json or tokenizer.model in a "
        "HuggingFace directory); give --tokenizer byte, a tokenizer.json or a .model");
  return spec;
}

std::unique_ptr<Tokenizer> LoadedModel::open_tokenizer(const std::string& spec) const {
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(spec);
  check_ids_fit(*tokenizer, bundle_.model.vocab_size);
  return tokenizer;
}

void LoadedModel::check_quantization() const {
  if (!quantization_.has_value()) return;
  if (bundle_.dtype == DType::kF64)
    fail_input("--quantization: ", checkpoint_, " computes in float64; give --dtype fp32 or bf16");
  if (bundle_.lora.dora)
    fail_input(
        "--quantization: adapters with magnitudes (DoRA) read the weights themselves; merge ",
        "them into the model first (trireme checkpoint merge-lora)");
}

ChatTemplateSources LoadedModel::find_chat_templates(const std::string& given,
                                                     const std::string& tokenizer) const {
  if (!given.empty() && std::filesystem::exists(given)) return read_chat_templates(given, {});
  ChatTemplateSources own = bundle_.lineage.chat_templates;
  if (own.empty() || !given.empty())  // for template names that the run's copy may lack
    own.merge(trireme::find_chat_templates(tokenizer));
  return given.empty() ? own : read_chat_templates(given, own);
}

ChatTemplateSources LoadedModel::chat_templates(const std::string& given,
                                                const std::string& tokenizer) const {
  ChatTemplateSources found = find_chat_templates(given, tokenizer);
  return found.empty() ? chat_templates_of(tokenizer) : found;
}

// One line for each difference between the configurations that affects inference.
std::string LoadedModel::differences(const LoadedModel& next) const {
  const Json here = computed_part(bundle_.model);
  const Json there = computed_part(next.bundle_.model);
  std::string lines;
  const auto compare = [&](const std::string& name, const Json& a, const Json& b) {
    if (a != b)
      lines += concat("\n  ", name, ": ", a.dump(), " is served, the new one has ", b.dump());
  };
  for (const auto& [name, value] : here.items())
    compare(name, value, there.contains(name) ? there[name] : Json());
  for (const auto& [name, value] : there.items())
    if (!here.contains(name)) compare(name, Json(), value);
  if (!(bundle_.lora == next.bundle_.lora))
    lines += concat("\n  adapters: rank ", bundle_.lora.rank, " is served, the new one has rank ",
                    next.bundle_.lora.rank, ", or adapts other layers");
  return lines;
}

std::unique_ptr<LoadedModel> LoadedModel::open_next(const std::string& path) const {
  // Not collective: each rank opens its own.
  std::unique_ptr<LoadedModel> next;
  run_threads(1, [&](Communicator& alone) {
    next =
        std::make_unique<LoadedModel>(path, alone, bundle_.dtype, merged_adapter_, quantization_);
  });
  next->allows_non_finite_ = allows_non_finite_;
  if (has_own_adapters_) {
    if (next->bundle_.lora.enabled())
      fail_input(path, " has adapters; merge them into a model first");
    next->bundle_.lora = bundle_.lora;
    if (next->source_ == nullptr)
      next->source_ = std::make_unique<CheckpointModel>(next->checkpoint_);
  }
  if (const std::string lines = differences(*next); !lines.empty())
    fail_input(next->checkpoint_, " is for another model than the served one:", lines);
  return next;
}

void LoadedModel::replace_weights(Ctx& ctx, LoadedModel& next) {
  for (ParamHandle h = 0; h < std::ssize(store_->specs()); ++h) {
    const bool kept = has_own_adapters_ && store_->specs()[static_cast<size_t>(h)].adapter;
    if (!kept) copy_values(ctx, *store_, *next.store_, h);
  }
  if (RouterState* const routers = model_->routers(); routers != nullptr) {
    const std::vector<RouterState::Named> to = routers->saved(),
                                          from = next.model_->routers()->saved();
    for (size_t i = 0; i < to.size(); ++i)
      std::memcpy(to[i].tensor.raw(), from[i].tensor.raw(),
                  static_cast<size_t>(to[i].tensor.bytes()));
    routers->place(ctx);
  }
  checkpoint_ = next.checkpoint_;
  step_ = next.step_;
}

void LoadedModel::load(Ctx& ctx, const Layout& layout, int64_t positions) {
  const std::vector<ChunkSpan> chunks =
      chunks_of(split_layers(bundle_.model.num_layers, layout.pp.size, {}), layout.pp);
  model_ = std::make_unique<Model>(bundle_.model, bundle_.dtype, layout, chunks, bundle_.lora);
  model_->reserve_positions(ctx, positions);
  store_ = std::make_unique<ParameterStore>(model_->parameters(), bundle_.dtype, Sharding{},
                                            PackingConfig{.blocks = quantization_});
  store_->allocate(ctx, false);
  if (source_ != nullptr)
    source_->load(ctx, *model_, *store_);
  else
    load_parameters(ctx, CheckpointReader(checkpoint_), *model_, *store_);
  if (adapters_ != nullptr) adapters_->load_adapters(ctx, *model_, *store_);
  check_finite(ctx);
  if (!module_columns_.empty()) adapters_.reset();  // the files may change after loading
}

void LoadedModel::check_finite(Ctx& ctx) const {
  // A step multiplies all tokens with the factors of all adapters, by 0 where a token uses another
  // adapter: one NaN factor would spoil all results (0 x NaN).
  const bool modules = !module_columns_.empty();
  if (has_own_adapters_)
    if (const std::string bad = find_non_finite(ctx, *store_, true); !bad.empty())
      fail_input(modules ? "--lora-modules: " : "--adapter: ", bad);
  std::string bad = find_non_finite(ctx, *store_);
  if (bad.empty()) bad = find_non_finite(*model_);
  if (bad.empty()) return;
  const char* const wider = bundle_.dtype == DType::kF16
                                ? ", or use --dtype bf16 where they are too large for float16"
                                : "";
  if (!allows_non_finite_)
    fail_input(checkpoint_, ": ", bad, "; load them with --allow-non-finite", wider);
  log_warning(checkpoint_, ": ", bad);
}

}  // namespace trireme
