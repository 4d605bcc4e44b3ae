// Writes a model as a HuggingFace directory: config.json, generation_config.json, the weights in
// one file or in shards with an index, and the tokenizer's files.
//
// Streaming: a few pieces of tensors are in memory at a time. Every file is whole or absent. An
// interrupted export goes on: files that are whole are kept, and of one that is not all but its
// last MiB, as long as the same is asked of the same source (unfinished_copy.h; config.json comes
// last).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transformer/formats/quantize.h"

namespace trireme {

struct HfWriteOptions {
  std::optional<DType> dtype =
      {};  // of all weights; absent: each as it is. Routers' biases are float32
  int64_t max_shard_bytes = int64_t{5'000'000'000};
  CopyProgress progress = {};
  // Of the weights of linear layers (transformer/formats/quantize.h), kFp8 or kGptq; what does not
  // fit stays.
  std::optional<Quantization> quantization = {};
  // Called when all is written but config.json: what else belongs into the directory.
  std::function<void(const std::string& directory)> before_config = {};
};

struct HfWritten {
  int64_t bytes = 0;       // of the weights
  int files = 0;           // with weights
  int kept = 0;            // of them, from an interrupted export
  int64_t kept_bytes = 0;  // of the weights, whole files included
  std::vector<std::string> tokenizer_files;
  QuantisationReport report;  // with a quantization; of the files that are not kept
};

// InputError where `directory` holds something else than an interrupted export of the same, or,
// with a quantization, where the model is quantised already or its files hold matrices in another
// form (GPT-2).
HfWritten write_hf_directory(const ModelSource& source, const std::string& directory,
                             const HfWriteOptions& options);

// Copies a tokenizer.json or .model, given by its path, and what HuggingFace keeps beside it
// (settings, chat template) into a directory; of a .gguf writes what says the same, or warns that
// it cannot. Returns the names of the copies, the tokenizer first; none for "" and "byte".
std::vector<std::string> copy_tokenizer(const std::string& tokenizer, const std::string& directory);

}  // namespace trireme
