#include "training/checkpoint_model.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/io/atomic_file.h"
#include "engine/text/tokenizer.h"
#include "training/finetune_origin.h"
#include "training/run_directory.h"
#include "training/train_checkpoint.h"
#include "transformer/hf_writer.h"
#include "transformer/merged_model.h"
#include "transformer/peft_adapter.h"
#include "transformer/text_ends.h"
#include "transformer/unfinished_copy.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kForeignSequenceLength = 2048;
constexpr const char* kForeign = "imported";
constexpr const char* kTokenizerFolder = "tokenizer";

// Parameters and routers' biases of a checkpoint, under their names.
class CheckpointTensors : public TensorSource {
 public:
  explicit CheckpointTensors(const std::string& path) : TensorSource(path), reader_(path) {
    for (const CheckpointTensor& t : reader_.manifest().tensors) {
      if (t.kind != kKindParam && t.kind != kKindRouter) continue;
      add({t.name, text(t.dtype), t.dtype, t.shape, t.numel() * dtype_size(t.dtype)});
      tensors_of_reader_.push_back(&t);
    }
  }
  const CheckpointReader& reader() const { return reader_; }
  std::vector<std::string> files() const override {
    std::vector<std::string> out = {concat(reader_.directory(), "/", kManifestName)};
    for (const CheckpointShard& shard : reader_.manifest().shards)
      out.push_back(concat(reader_.directory(), "/", shard.file));
    return out;
  }

 protected:
  void read_elements(size_t number, int64_t begin, const Tensor& destination) const override {
    const CheckpointTensor& tensor = *tensors_of_reader_[number];
    const TensorBox whole = whole_box(tensor.shape);
    const Tensor flat = destination.reshape({destination.numel()});
    if (flat.dtype() == tensor.dtype) return reader_.read(tensor, whole, begin, flat);
    constexpr int64_t kPiece = 1 << 20;
    const Buffer buffer("checkpoint piece",
                        std::min(kPiece, flat.numel()) * dtype_size(tensor.dtype));
    for (int64_t done = 0; done < flat.numel(); done += kPiece) {
      const int64_t n = std::min(kPiece, flat.numel() - done);
      const Tensor piece = buffer.tensor(tensor.dtype, Shape{n});
      reader_.read(tensor, whole, begin + done, piece);
      convert_elements(
          flat.slice(0, done, done + n), tensor.dtype,
          {static_cast<const std::byte*>(piece.raw()), static_cast<size_t>(piece.bytes())});
    }
  }

 private:
  CheckpointReader reader_;
  std::vector<const CheckpointTensor*> tensors_of_reader_;
};

DType dtype_of_name(const std::string& name) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    if (name == dtype_name(dtype)) return dtype;
  fail_input("unknown dtype \"", name, "\" in an imported checkpoint");
}

// A copy of the tokenizer has no config.json beside it: the ends of a text that only this lists go where they are
// looked for else.
void keep_ends(const std::string& tokenizer, const std::string& folder, int64_t vocab_size) {
  const std::vector<int32_t> ends = tokenizer_ends(tokenizer, vocab_size);
  if (ends.empty() || text_ends(folder, vocab_size) == ends) return;
  const std::string path = (fs::path(folder) / "generation_config.json").string();
  Json json = fs::is_regular_file(path) ? parse_json_file(path) : Json::object();
  if (!json.is_object()) return;
  json["eos_token_id"] = ends;
  write_file_atomically(path, json.dump(2) + "\n");
}

// The name that the copy in the folder has, or what needs no copy.
std::string import_tokenizer(const std::string& tokenizer, const std::string& root,
                             int64_t vocab_size) {
  if (tokenizer.empty() || tokenizer == "byte") return tokenizer;
  const std::string folder = (fs::path(root) / kTokenizerFolder).string();
  make_directories(folder);
  const std::vector<std::string> copied = copy_tokenizer(tokenizer, folder);
  keep_ends(tokenizer, folder, vocab_size);
  return copied.empty() ? "" : copied.front();
}

}  // namespace

CheckpointModel::CheckpointModel(const std::string& path) : ModelSource(path) {
  auto tensors = std::make_unique<CheckpointTensors>(path);
  run_config_ = checkpoint_run_config(tensors->reader());
  run_config_.data.tokenizer = tokenizer_file(run_config_.data.tokenizer);
  config_ = run_config_.model;
  tensors_ = std::move(tensors);
}

void CheckpointModel::read(const ModelConfig& config, const ModelParameter& parameter,
                           const TensorBox& box, int64_t begin, const Tensor& destination) const {
  const auto& tensors = static_cast<const CheckpointTensors&>(*tensors_);
  const CheckpointTensor* tensor =
      tensors.reader().find(parameter.router ? kKindRouter : kKindParam, parameter.name);
  if (tensor == nullptr || tensor->dtype != destination.dtype())
    return ModelSource::read(config, parameter, box, begin, destination);
  tensors.reader().read(*tensor, box, begin, destination);
}

ParameterPlace CheckpointModel::place(const ModelConfig&, const std::string& parameter) const {
  return {HfSource{parameter}};
}

bool CheckpointModel::is_ignored(const ModelConfig&, const std::string& tensor) const {
  return tensor.ends_with("expert_shares");
}

std::string find_model(const std::string& path) {
  return is_model_source(path) ? path : find_checkpoint(checkpoint_place(path)).directory;
}

std::unique_ptr<ModelSource> open_found_model(const std::string& place) {
  if (is_model_source(place)) return open_model_source(place);
  auto model = std::make_unique<CheckpointModel>(place);
  const RunConfig run = model->run_config();
  if (!run.finetune.lora.enabled()) return model;
  std::unique_ptr<ModelSource> base = open_found_model(find_base(place, run));
  return std::make_unique<MergedModel>(std::move(base), std::move(model), run.finetune.lora);
}

std::unique_ptr<ModelSource> open_any_model(const std::string& path) {
  return open_found_model(find_model(path));
}

std::unique_ptr<ModelSource> open_described_model(const std::string& saved,
                                                  const std::string& path) {
  for (const std::string& run : {saved, path})
    if (const std::string checkpoint = newest_checkpoint_at(run); !checkpoint.empty())
      return std::make_unique<CheckpointModel>(checkpoint);
  return open_any_model(path);
}

std::unique_ptr<ModelSource> open_merged_model(const std::string& base,
                                               const std::string& adapters) {
  if (is_peft_adapter(adapters)) {
    std::unique_ptr<ModelSource> model = open_any_model(base);
    auto peft = std::make_unique<PeftAdapter>(adapters);
    peft->check_adapters(model->config());
    const LoraConfig lora = peft->lora();
    return std::make_unique<MergedModel>(std::move(model), std::move(peft), lora);
  }
  auto run = std::make_unique<CheckpointModel>(find_model(adapters));
  const LoraConfig lora = run->run_config().finetune.lora;
  if (!lora.enabled())
    fail_input(
        adapters,
        " holds no adapters: neither PEFT's adapter_config.json nor a run that trained some");
  std::unique_ptr<ModelSource> model = open_found_model(find_base_at(base, run->path()));
  if (!(run->config() == model->config()))
    fail_input(adapters, ": its adapters are for another model than ", base);
  return std::make_unique<MergedModel>(std::move(model), std::move(run), lora);
}

RunConfig foreign_run_config(const ModelConfig& model, DType dtype, const std::string& tokenizer) {
  RunConfig config;
  config.model = model;
  config.dtype = dtype;
  config.sequence_length = std::min(longest_sequence(model), kForeignSequenceLength);
  config.micro_batch_size = 1;
  config.data.tokenizer = tokenizer;
  config.data.eod_token_id = model.eos_token_id;
  return config;
}

Json foreign_state(const RunConfig& config) {
  return {{kForeign,
           {{"model", model_config_to_json(config.model)},
            {"dtype", dtype_name(config.dtype)},
            {"tokenizer", config.data.tokenizer}}}};
}

bool is_foreign_state(const Json& state) { return state.is_object() && state.contains(kForeign); }

RunConfig foreign_state_config(const Json& state, const std::string& checkpoint) {
  const Json& imported = state.at(kForeign);
  ConfigReport report;
  const ModelConfig model = read_model_config(imported.at("model"), "model", report);
  report.throw_if_errors("imported checkpoint");
  const auto name = imported.at("tokenizer").get<std::string>();
  const bool beside = !name.empty() && name != "byte";
  return foreign_run_config(
      model, dtype_of_name(imported.at("dtype").get<std::string>()),
      beside ? (fs::path(checkpoint).parent_path() / kTokenizerFolder / name).string() : name);
}

namespace {

// A part for each parameter. No data in memory: the address says which parameter it is.
std::vector<CheckpointPart> parts_of(const ModelSource& source,
                                     const std::vector<ModelParameter>& parameters,
                                     const std::optional<DType>& wanted) {
  std::vector<CheckpointPart> parts;
  const DType most = wanted.value_or(source.dtype());
  for (const ModelParameter& p : parameters) {
    const DType dtype = p.router ? sum_dtype(most)
                                 : wanted.value_or(source.parameter_dtype(source.config(), p.name));
    parts.push_back({p.router ? kKindRouter : kKindParam,
                     p.name,
                     p.shape,
                     {},
                     0,
                     ConstTensor(&p, dtype, Shape(std::span<const int64_t>(p.shape)))});
  }
  return parts;
}

}  // namespace

SavedCheckpoint import_model(const ModelSource& source, const std::string& root,
                             const ImportOptions& options) {
  const ModelConfig& model = source.config();
  source.check(model);
  const std::vector<ModelParameter> parameters = model_parameters(model);
  const std::vector<CheckpointPart> parts = parts_of(source, parameters, options.dtype);
  int64_t total = 0;
  for (const CheckpointPart& part : parts) total += part.data.bytes();
  UnfinishedCopy copy(
      source, root, "import.json",
      concat("a checkpoint of ",
             options.dtype.has_value() ? text(*options.dtype) : "the types that there are"));
  const std::string name = step_directory_name(0), directory = concat(root, "/", name);
  SavedCheckpoint saved;
  saved.directory = directory;
  saved.bytes = saved.kept = total;
  if (fs::exists(fs::path(directory) / kManifestName)) {  // all that a kill left to be done
    write_file_atomically(root + "/latest", name + "\n");
  } else {
    RunConfig config = foreign_run_config(model, options.dtype.value_or(source.dtype()), "");
    config.data.tokenizer = import_tokenizer(source.tokenizer(), root, model.vocab_size);
    PieceStream stream(source, model);
    const auto read = [&](const ConstTensor& data, int64_t first, const SaveOptions::Take& take) {
      const auto& p = *static_cast<const ModelParameter*>(data.raw());
      const FileTensor whole{p.name, p.shape, false, p.router, {{p, {}}}};
      stream.add(whole, data.dtype(), first, [take](const ConstTensor& piece) {
        take({static_cast<const std::byte*>(piece.raw()), static_cast<size_t>(piece.bytes())});
      });
    };
    const auto tell = [&](int64_t done) {
      if (options.progress) options.progress(std::min(done, total), total);
    };
    saved = save_checkpoint({.root = root,
                             .step = 0,
                             .read = read,
                             .finish_reading = [&] { stream.finish(); },
                             .progress = tell,
                             .resume_as = copy.identity()},
                            parts, foreign_state(config));
  }
  copy.finish();
  return saved;
}

}  // namespace trireme
