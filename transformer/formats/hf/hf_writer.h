// Export of a model as a HuggingFace directory: config.json, generation_config.json, the weights in
// one file or in shards with an index, and the tokenizer's files.
//
// Streaming: a few pieces of tensors are in memory at a time. Every file is whole or absent. An
// interrupted export resumes when it is repeated with the same arguments and an unchanged source
// (unfinished_copy.h): whole files are kept, and a partial file except for its last MiB.
// config.json is written last. It counts the multi-token prediction layers that were written.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transformer/formats/quantize.h"

namespace trireme {

struct HfWriteOptions {
  // Type of all weights; absent: each keeps its own. Selection biases of routers are float32, and
  // multi-token prediction layers (mtp_layers.h) keep their types.
  std::optional<DType> dtype = {};
  // Bytes of weights per file; a larger tensor has a file of its own.
  int64_t max_shard_bytes = int64_t{5'000'000'000};
  CopyProgress progress = {};
  // Quantization of the weights of linear layers (transformer/formats/quantize.h), kFp8 or kGptq.
  // Matrices whose shape does not fit the format are not quantized.
  std::optional<Quantization> quantization = {};
  // Called before config.json is written, after all else: adds further files to the directory.
  std::function<void(const std::string& directory)> before_config = {};
};

struct HfWritten {
  int64_t bytes = 0;       // of the weights
  int files = 0;           // files with weights
  int kept = 0;            // of these, from an interrupted export
  int64_t kept_bytes = 0;  // of the weights, whole files included
  std::vector<std::string> tokenizer_files;
  QuantizationReport report;  // with a quantization: of the files written in this run
};

// InputError if `directory` holds anything but an interrupted export of the same model with the
// same options, or if the source's tensors do not match its configuration (ModelSource::check()).
// With a quantization, also if the model is already quantized, a value of a quantized matrix is not
// finite, no matrix fits the format, or the family's files store matrices transposed (GPT-2) or all
// experts of a layer in one tensor.
HfWritten write_hf_directory(const ModelSource& source, const std::string& directory,
                             const HfWriteOptions& options);

// Copies a tokenizer.json or .model, given by its path, and the files that HuggingFace keeps next
// to it (settings, chat template) into a directory. For a .gguf writes equivalent files, or warns
// that they cannot be written. Returns the names of the copies, the tokenizer first; none for ""
// and "byte".
std::vector<std::string> copy_tokenizer(const std::string& tokenizer, const std::string& directory);

}  // namespace trireme
