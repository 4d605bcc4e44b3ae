#include "transformer/formats/hf/hf_writer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/core/cpu.h"
#include "engine/io/safetensors.h"
#include "engine/io/safetensors_directory.h"
#include "engine/observe/log.h"
#include "engine/text/gguf_tokenizer.h"
#include "transformer/families/config_json.h"
#include "transformer/families/family.h"
#include "transformer/formats/mtp_layers.h"
#include "transformer/formats/stop_token_ids.h"
#include "transformer/formats/unfinished_copy.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

// A tensor of the model and its form in the file.
struct Written {
  const FileTensor* tensor;
  DType dtype;  // of the elements, if not quantized
  bool quantized = false;
  std::vector<SafetensorsSpec> specs = {};
  int64_t bytes = 0;
};

bool is_mtp(const FileTensor& tensor) { return tensor.parts.front().parameter.mtp; }

// Tensor name without ".weight".
std::string module_of(const FileTensor& tensor) {
  return tensor.name.substr(0, tensor.name.rfind('.'));
}

DType written_dtype(const ModelSource& source, const FileTensor& tensor,
                    const HfWriteOptions& options) {
  if (tensor.selection_bias) return DType::kF32;
  const DType own = file_dtype(source, tensor);
  return is_mtp(tensor) ? own : options.dtype.value_or(own);
}

Written described(const ModelSource& source, const FileTensor& tensor,
                  const HfWriteOptions& options) {
  Written out{&tensor, written_dtype(source, tensor, options)};
  const auto& q = options.quantization;
  out.quantized = q.has_value() && is_linear_weight(source.config(), tensor) &&
                  can_quantize(*q, tensor.rows(), tensor.columns());
  if (out.quantized)
    out.specs = quantized_parts(*q, module_of(tensor), tensor.rows(), tensor.columns());
  else
    out.specs = {{tensor.name, out.dtype, tensor.shape}};
  for (const SafetensorsSpec& spec : out.specs) {
    int64_t numbers = 1;
    for (const int64_t size : spec.shape) numbers *= size;
    out.bytes += numbers * dtype_size(spec.dtype);
  }
  return out;
}

// Assigns tensors in order to shards of at most max_shard_bytes, at least one tensor per shard.
std::vector<std::vector<Written>> divide(const ModelSource& source,
                                         const std::vector<FileTensor>& tensors,
                                         const HfWriteOptions& options) {
  std::vector<std::vector<Written>> shards(1);
  int64_t bytes = 0;
  for (const FileTensor& tensor : tensors) {
    Written next = described(source, tensor, options);
    if (!shards.back().empty() && bytes + next.bytes > options.max_shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += next.bytes;
    shards.back().push_back(std::move(next));
  }
  // Sorting by element size keeps every tensor aligned to its element; quantized tensors are
  // multiples of four bytes.
  for (auto& shard : shards)
    std::ranges::stable_sort(shard, std::greater<>(), [](const Written& w) {
      return w.quantized ? int64_t{4} : dtype_size(w.dtype);
    });
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  if (count == 1) return kSafetensorsFile;
  const auto five = [](size_t n) {
    const std::string digits = std::to_string(n);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  return concat("model-", five(index + 1), "-of-", five(count), ".safetensors");
}

std::vector<SafetensorsSpec> specs_of(const std::vector<Written>& shard) {
  std::vector<SafetensorsSpec> specs;
  for (const Written& w : shard) specs.insert(specs.end(), w.specs.begin(), w.specs.end());
  return specs;
}

// Files appear only when complete, so that a file with the right header and size is the wanted one.
bool is_whole(const std::string& path, const std::string& header, int64_t bytes) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return false;
  const MappedFile file(path);
  if (file.size() != std::ssize(header) + bytes) return false;
  return std::equal(header.begin(), header.end(),
                    reinterpret_cast<const char*>(file.bytes().data()));
}

Json config_to_write(const ModelSource& source, const std::vector<std::vector<Written>>& shards,
                     const HfWriteOptions& options, bool has_mtp) {
  ModelConfig config = source.config();
  if (!has_mtp) config.extra_layers = 0;
  Json json = model_config_to_json(config);
  json["torch_dtype"] = dtype_name(options.dtype.value_or(source.dtype()));
  // Without the key some classes of transformers have a default that a small vocabulary lacks.
  const std::optional<int32_t> padding = padding_id(source.path(), config.vocab_size);
  json["pad_token_id"] = padding.has_value() ? Json(*padding) : Json();
  // All stop token ids, the end of a document first: a Trireme configuration keeps only that one.
  const int64_t end_of_document = source.config().eos_token_id;
  Json ends = Json::array();
  if (end_of_document >= 0) ends.push_back(end_of_document);
  const std::string beside = source.tokenizer().empty() ? source.path() : source.tokenizer();
  for (const int32_t end : tokenizer_stop_token_ids(beside, source.config().vocab_size))
    if (end != end_of_document) ends.push_back(end);
  if (ends.size() > 1 || (end_of_document < 0 && !ends.empty())) json["eos_token_id"] = ends;
  if (!options.quantization.has_value()) return json;
  // Matrices that other programs would take for linear layers.
  std::vector<std::string> kept;
  for (const auto& shard : shards)
    for (const Written& w : shard)
      if (!w.quantized && w.tensor->shape.size() == 2 &&
          w.tensor->name.starts_with(parameter_names(source.config()).layers))
        kept.push_back(module_of(*w.tensor));
  json["quantization_config"] =
      quantization_to_json(*options.quantization, parameter_names(source.config()).head, kept);
  return json;
}

void write_json(const std::string& path, const Json& json) {
  write_file_atomically(path, json.dump(2) + "\n");
}

void write_generation_config(const ModelSource& source, const std::string& directory,
                             const Json& config_json) {
  const std::string theirs = (fs::path(source.path()) / "generation_config.json").string();
  const std::string ours = directory + "/generation_config.json";
  std::error_code ignored;
  if (!fs::exists(ours) && fs::is_regular_file(theirs, ignored))
    write_file_atomically(ours, read_small_file(theirs));
  if (fs::exists(ours)) return;
  Json json{{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    json[key] = config_json[key];
  write_json(ours, json);
}

// Writes the files of weights that are not complete yet.
class ShardWriter {
 public:
  ShardWriter(const ModelSource& source, const HfWriteOptions& options, const std::string& identity,
              HfWritten& written, int64_t total)
      : source_(source), options_(options), identity_(identity), written_(written), total_(total) {}

  void write(const std::string& path, const std::vector<Written>& shard) {
    const std::vector<SafetensorsSpec> specs = specs_of(shard);
    int64_t bytes = 0;
    for (const Written& w : shard) bytes += w.bytes;
    ++written_.files;
    if (is_whole(path, safetensors_header(specs, kMetadata), bytes)) {
      ++written_.kept;
      written_.kept_bytes += bytes;
    } else {
      SafetensorsWriter writer(path, specs, kMetadata, identity_);
      written_.kept_bytes += std::max<int64_t>(0, writer.file().kept() - writer.data_start());
      write_tensors(writer, shard);
      writer.commit();
    }
    written_.bytes += bytes;
    if (options_.progress) options_.progress(written_.bytes, total_);
  }

 private:
  void write_tensors(SafetensorsWriter& writer, const std::vector<Written>& shard) {
    PieceStream stream(source_, source_.config());
    std::vector<const Written*> written;
    bool kept = true;  // all tensors so far
    for (const Written& w : shard) {
      const int64_t first = kept ? skip_kept(writer, w) : 0;
      if (first > 0) report_progress(writer);
      if (first == w.tensor->numel()) continue;
      kept = false;
      w.quantized ? quantize(stream, writer, w) : copy(stream, writer, w, first);
      written.push_back(&w);
    }
    stream.finish();
    for (const Written* w : written) report_copied(*w);
  }
  // A quantized tensor is written when all its values have been read: it is kept as a whole, or
  // computed again with its already written bytes skipped.
  static int64_t skip_kept(SafetensorsWriter& writer, const Written& w) {
    if (!w.quantized) return writer.skip_kept(w.tensor->numel(), w.dtype);
    return writer.skip_kept_whole(w.bytes) ? w.tensor->numel() : 0;
  }
  void report_progress(const SafetensorsWriter& writer) const {
    if (options_.progress)
      options_.progress(written_.bytes + writer.file().size() - writer.data_start(), total_);
  }
  void copy(PieceStream& stream, SafetensorsWriter& writer, const Written& w, int64_t first) {
    stream.add(*w.tensor, w.dtype, first, [this, &writer](const ConstTensor& piece) {
      writer.write(piece);
      report_progress(writer);
    });
  }
  void quantize(PieceStream& stream, SafetensorsWriter& writer, const Written& w) {
    struct State {
      MatrixQuantizer quantizer;
      int64_t numbers = 0;
    };
    const FileTensor& t = *w.tensor;
    const auto state = std::make_shared<State>(MatrixQuantizer(
        options_.quantization.value_or(Quantization{}), t.rows(), t.columns(), available_cores()));
    stream.add(t, DType::kF32, 0, [this, &writer, &w, state](const ConstTensor& piece) {
      check_finite(w.tensor->name, piece);
      state->quantizer.add({piece.as<float>(), static_cast<size_t>(piece.numel())});
      state->numbers += piece.numel();
      if (state->numbers == w.tensor->numel()) end_quantized(writer, w, state->quantizer);
    });
  }
  void end_quantized(SafetensorsWriter& writer, const Written& w,
                     const MatrixQuantizer& quantizer) {
    check_finite(w.tensor->name, quantizer.error());
    for (const std::vector<std::byte>& part : quantizer.parts()) writer.write(part);
    report_progress(writer);
    const Quantization quantization = options_.quantization.value_or(Quantization{});
    written_.report.add(quantization_name(quantization), w.tensor->name,
                        w.tensor->numel() * dtype_size(w.dtype), w.bytes, quantizer.error());
  }
  void report_copied(const Written& w) {
    if (options_.quantization.has_value() && !w.quantized)
      written_.report.add(text(w.dtype), w.tensor->name, w.bytes, w.bytes, {});
  }

  const ModelSource& source_;
  const HfWriteOptions& options_;
  const std::string& identity_;
  HfWritten& written_;
  int64_t total_;
};

// Everything besides the source that determines the bytes. Unfinished exports have stored this text
// and continue only if it is equal: its spelling stays.
std::string asked(const HfWriteOptions& options, const Json& config) {
  return concat("a HuggingFace directory of ",
                options.dtype.has_value() ? text(*options.dtype) : "the types that there are",
                config.contains("quantization_config")
                    ? ", quantised " + config["quantization_config"].dump()
                    : std::string(),
                ", in files of ", options.max_shard_bytes, " bytes");
}

void check_any_fits(const std::vector<std::vector<Written>>& shards) {
  for (const auto& shard : shards)
    for (const Written& w : shard)
      if (w.quantized) return;
  fail_none_fits();
}

void check_quantization(const ModelSource& source, const std::vector<FileTensor>& tensors) {
  check_not_quantized(source);
  const char* const type = family_of(source.config().family).model_type;
  for (const FileTensor& t : tensors) {
    if (t.parts.front().place.matrices > 0)
      fail_input("a HuggingFace directory of model_type \"", type,
                 "\" holds the experts of a layer in one tensor, which is not quantized; "
                 "--quantization of generate and serve quantizes weights as they are loaded");
    if (t.transposed)
      fail_input("a HuggingFace directory of model_type \"", type,
                 "\" holds matrices as (in, out): they are quantized in a .gguf only");
  }
}

// A tokenizer that cannot be converted does not fail the export.
std::vector<std::string> write_gguf_tokenizer(const std::string& path,
                                              const std::string& directory) {
  std::vector<std::string> written;
  GgufTokenizerFiles files;
  try {
    files = gguf_tokenizer_files(path);
  } catch (const InputError& e) {
    log_warning("the tokenizer in the file is not written: ", e.what());
  }
  for (const auto& [name, content] : files) {
    const fs::path file = fs::path(directory) / name;
    std::error_code ignored;
    fs::create_directories(file.parent_path(), ignored);
    write_file_atomically(file.string(), content);
    written.push_back(name);
  }
  return written;
}

}  // namespace

std::vector<std::string> copy_tokenizer(const std::string& tokenizer,
                                        const std::string& directory) {
  std::vector<std::string> copied;
  if (tokenizer.empty() || tokenizer == "byte") return copied;
  if (tokenizer.ends_with(".gguf")) return write_gguf_tokenizer(tokenizer, directory);
  const fs::path folder = fs::path(tokenizer).parent_path();
  const auto copy = [&](const fs::path& from, const std::string& name) {
    std::error_code error;
    if (!fs::is_regular_file(from, error)) return;
    write_file_atomically(directory + "/" + name, read_small_file(from.string(), 256 << 20));
    copied.push_back(name);
  };
  const bool json = tokenizer.ends_with(".json");
  copy(tokenizer, json ? "tokenizer.json" : "tokenizer.model");
  if (json) copy(folder / "tokenizer.model", "tokenizer.model");
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "vocab.json", "merges.txt", "generation_config.json"})
    copy(folder / name, name);
  for (const std::string& name : chat_template_files(folder.string())) {
    std::error_code ignored;
    fs::create_directories((fs::path(directory) / name).parent_path(), ignored);
    copy(folder / name, name);
  }
  return copied;
}

HfWritten write_hf_directory(const ModelSource& source, const std::string& directory,
                             const HfWriteOptions& options) {
  const ModelConfig& config = source.config();
  source.check(config);
  std::vector<FileTensor> tensors = file_tensors(config, [&](const std::string& parameter) {
    return ParameterMapping{hf_source(config, parameter)};
  });
  const std::vector<ModelParameter> mtp = mtp_parameters(source);
  for (const ModelParameter& p : mtp)
    tensors.push_back({.name = p.name, .shape = p.shape, .parts = {{p, {HfSource{p.name}}}}});
  if (options.quantization.has_value()) check_quantization(source, tensors);
  const auto shards = divide(source, tensors, options);
  if (options.quantization.has_value()) check_any_fits(shards);
  const Json config_json = config_to_write(source, shards, options, !mtp.empty());
  UnfinishedCopy copy(source, directory, "export.json", asked(options, config_json));
  HfWritten written;
  int64_t total = 0;
  for (const auto& shard : shards)
    for (const Written& w : shard) total += w.bytes;
  std::map<std::string, std::string> weight_map;
  ShardWriter writer(source, options, copy.identity(), written, total);
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name = shard_name(s, shards.size());
    for (const SafetensorsSpec& spec : specs_of(shards[s])) weight_map[spec.name] = name;
    writer.write(concat(directory, "/", name), shards[s]);
  }
  if (shards.size() > 1)
    write_file_atomically(
        directory + "/" + kSafetensorsIndex,
        Json{{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}}.dump(2) + "\n");
  written.tokenizer_files = copy_tokenizer(source.tokenizer(), directory);
  write_generation_config(source, directory, config_json);
  if (options.before_config) options.before_config(directory);
  write_json(directory + "/config.json", config_json);
  copy.finish();
  return written;
}

}  // namespace trireme
