// GGUF files as models: conversion of llama.cpp's names and metadata to ours and back.
//
//   architecture   model_type               differences from HuggingFace's files
//   llama          llama, mistral, mixtral  rows of q and k of each head are interleaved (its
//                                           rotary embedding rotates adjacent pairs), experts
//                                           are stacked: (E, F, C)
//   qwen2, qwen3   qwen2, qwen3
//   qwen2moe       qwen2_moe                experts are stacked; the shared expert's gate is a
//                                           vector
//   qwen3moe       qwen3_moe                experts are stacked
//   gemma3         gemma3_text              weights of norms are 1 + w
//   gpt2           gpt2                     matrices are (out, in)
//
// Linear scaling of the rotary embedding and YaRN are stored as their parameters. Llama 3's scaling
// is stored as the divisor of each frequency (rope_freqs.weight), from which the published
// parameters are recognized. A window is stored as attention.sliding_window; if only some layers
// have it, attention.sliding_window_pattern is a period, or a list of one flag per layer. llama.cpp
// itself supports windows of gemma3 only.
#pragma once

#include "engine/config/reader.h"
#include "engine/io/gguf.h"
#include "transformer/formats/quantize.h"

namespace trireme {

class GgufModel : public ModelSource {
 public:
  explicit GgufModel(const std::string& path);
  const char* kind() const override { return "gguf"; }
  std::string tokenizer() const override;
  ParameterMapping place(const ModelConfig& config, const std::string& parameter) const override;

 protected:
  bool is_ignored(const ModelConfig& config, const std::string& tensor) const override;
  std::string types_read() const override;
};

bool is_gguf(const std::string& path);  // a file with suffix .gguf

// Returns the tensor and rows of a GGUF file that store a parameter. InputError for a parameter or
// family without a GGUF name.
ParameterMapping gguf_place(const ModelConfig& config, const std::string& parameter);
// Returns the metadata as HuggingFace's config.json. InputError for unsupported metadata.
Json gguf_config(const GgufFile& file);
// Returns the divisors (width / 2) by which `scaling` divides the rotary frequencies.
std::vector<double> gguf_rope_factors(double theta, int64_t width, const RopeScaling& scaling);
// Inverse of gguf_config(). InputError if the metadata cannot express the model.
GgufMetadata gguf_metadata(const ModelConfig& config);

struct GgufWriteOptions {
  // Type of matrices: F32, F16, BF16 or Q8_0. Vectors, routers and learned positions are F32.
  std::string type = "F16";
  // Type of the weights of linear layers (transformer/formats/quantize.h): Q8_0, Q4_0, Q4_K or
  // Q6_K; "": `type`.
  std::string linear = "";
  GgufMetadata tokenizer = {};  // gguf_tokenizer_metadata() (engine/text/gguf_tokenizer.h)
  CopyProgress progress = {};
};
struct GgufWritten {
  int64_t bytes = 0;          // of the file
  int64_t kept = 0;           // of these, reused from an interrupted run
  QuantizationReport report;  // with `linear`: of the tensors written in this run
};
// Writes a model as a .gguf, streaming. The file is whole or absent; repeating an interrupted call
// resumes it (AtomicFile). If the rows of a matrix are not a whole number of blocks, its type falls
// back from `linear` to Q8_0 to `type` to F16. InputError if GGUF cannot express the model, or if a
// value of a quantized matrix is not finite. With `linear` also if the source is already quantized
// or no matrix fits a block format.
GgufWritten write_gguf(const ModelSource& source, const std::string& path,
                       const GgufWriteOptions& options);

}  // namespace trireme
