#include "transformer/checkpoint/import_model.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "engine/config/parse.h"
#include "engine/io/atomic_file.h"
#include "engine/text/tokenizer.h"
#include "transformer/checkpoint/model_bundle.h"
#include "transformer/formats/hf/hf_writer.h"
#include "transformer/formats/mtp_layers.h"
#include "transformer/formats/stop_token_ids.h"
#include "transformer/formats/unfinished_copy.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// A copied tokenizer has no config.json next to it: stop token ids and the padding token that only
// config.json has are added to its generation_config.json.
void keep_token_ids(const ModelSource& source, const std::string& tokenizer,
                    const std::string& folder) {
  const int64_t vocab_size = source.config().vocab_size;
  const std::vector<int32_t> ends = tokenizer_stop_token_ids(tokenizer, vocab_size);
  const std::optional<int32_t> padding = padding_id(source.path(), vocab_size);
  if (ends.empty() && !padding.has_value()) return;
  const std::string path = (fs::path(folder) / "generation_config.json").string();
  Json json = fs::is_regular_file(path) ? parse_published_json_file(path) : Json::object();
  if (!json.is_object()) return;
  const Json before = json;
  if (!ends.empty() && stop_token_ids(folder, vocab_size) != ends) json["eos_token_id"] = ends;
  if (padding.has_value() && json.value("pad_token_id", Json()).is_null())
    json["pad_token_id"] = *padding;
  if (json != before) write_file_atomically(path, json.dump(2) + "\n");
}

// Copies the tokenizer. Returns the file name of the copy, or `tokenizer` where it needs none.
std::string import_tokenizer(const ModelSource& source, const std::string& tokenizer,
                             const std::string& root) {
  if (tokenizer.empty() || tokenizer == "byte") return tokenizer;
  const std::string folder = (fs::path(root) / kTokenizerFolder).string();
  make_directories(folder);
  const std::vector<std::string> copied = copy_tokenizer(tokenizer, folder);
  keep_token_ids(source, tokenizer, folder);
  return copied.empty() ? "" : copied.front();
}

// One part for each parameter, without data in memory: the part's address identifies its parameter.
std::vector<CheckpointPart> parts_of(const ModelSource& source,
                                     const std::vector<ModelParameter>& parameters,
                                     const std::optional<DType>& wanted) {
  std::vector<CheckpointPart> parts;
  const DType most = wanted.value_or(source.dtype());
  for (const ModelParameter& p : parameters) {
    const DType own =
        p.selection_bias ? sum_dtype(most) : source.parameter_dtype(source.config(), p.name);
    const DType dtype = p.selection_bias || p.mtp ? own : wanted.value_or(own);
    parts.push_back({p.selection_bias ? kKindRouter
                     : p.mtp          ? kKindMtp
                                      : kKindParam,
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
  std::vector<ModelParameter> parameters = model_parameters(model);
  std::ranges::move(mtp_parameters(source), std::back_inserter(parameters));
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
  if (fs::exists(fs::path(directory) / kManifestName)) {  // only `latest` is missing
    write_file_atomically(root + "/latest", name + "\n");
  } else {
    const std::string tokenizer = import_tokenizer(source, source.tokenizer(), root);
    PieceStream stream(source, model);
    const auto read = [&](const ConstTensor& data, int64_t first, const SaveOptions::Take& take) {
      const auto& p = *static_cast<const ModelParameter*>(data.raw());
      const FileTensor whole{p.name, p.shape, false, p.selection_bias, {{p, {}}}};
      stream.add(whole, data.dtype(), first, [take](const ConstTensor& piece) {
        take({static_cast<const std::byte*>(piece.raw()), static_cast<size_t>(piece.bytes())});
      });
    };
    const auto report = [&](int64_t done) {
      if (options.progress) options.progress(std::min(done, total), total);
    };
    saved = save_checkpoint(
        {.root = root,
         .step = 0,
         .read = read,
         .finish_reading = [&] { stream.finish(); },
         .progress = report,
         .resume_as = copy.identity()},
        parts, imported_state(model, options.dtype.value_or(source.dtype()), tokenizer));
  }
  copy.finish();
  return saved;
}

}  // namespace trireme
