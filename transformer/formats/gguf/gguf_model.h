// GGUF files as models: llama.cpp's names and words to ours and back.
//
//   architecture   model_type               what is other than in HuggingFace's files
//   llama          llama, mistral, mixtral  rows of q and k of each head are interleaved (its rotary embedding turns
//                                           neighbours), experts are stacked: (E, F, C)
//   qwen2, qwen3   qwen2, qwen3
//   qwen2moe       qwen2_moe                experts are stacked; the shared expert's gate is a vector
//   qwen3moe       qwen3_moe                experts are stacked
//   gemma3         gemma3_text              weights of norms are 1 + w
//   gpt2           gpt2                     matrices are (out, in)
//
// Linear scaling of rotary positions and yarn are kept as numbers; of Llama 3's the file holds what
// each frequency is divided by (rope_freqs.weight), from which the published parameters are
// recognised. A window is attention.sliding_window, of some layers with
// attention.sliding_window_pattern: a period, or a word for each layer. llama.cpp itself computes
// windows of gemma3 only.
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
  ParameterPlace place(const ModelConfig& config, const std::string& parameter) const override;

 protected:
  bool is_ignored(const ModelConfig& config, const std::string& tensor) const override;
  std::string types_read() const override;
};

bool is_gguf(const std::string& path);  // a file that ends in .gguf

// Where such files have a parameter. InputError for a family that llama.cpp has no name for.
ParameterPlace gguf_place(const ModelConfig& config, const std::string& parameter);
// HuggingFace's words for what the metadata say. InputError for what is not known.
Json gguf_config(const GgufFile& file);
// What each of width / 2 frequencies is divided by.
std::vector<double> gguf_rope_factors(double theta, int64_t width, const RopeScaling& scaling);
// The reverse of gguf_config(); InputError where the model has what the words cannot say.
GgufMetadata gguf_metadata(const ModelConfig& config);

struct GgufWriteOptions {
  std::string type = "F16";  // of matrices: F32, F16, BF16 or Q8_0; vectors and routers are F32
  // Of the weights of linear layers (transformer/formats/quantize.h): Q8_0, Q4_0, Q4_K or Q6_K; "":
  // `type`.
  std::string linear = "";
  GgufMetadata tokenizer = {};
  CopyProgress progress = {};
};
struct GgufWritten {
  int64_t bytes = 0;          // of the file
  int64_t kept = 0;           // of them, from an interrupted writer
  QuantisationReport report;  // with `linear`, of what is not kept
};
// Streaming; the file is whole or absent, and goes on where the same was interrupted (AtomicFile).
// Rows that are no whole blocks of the type are Q8_0 in its place, else F16, in a file of bfloat16
// BF16 and of float32 F32. InputError for `linear` where the source is quantised already.
GgufWritten write_gguf(const ModelSource& source, const std::string& path,
                       const GgufWriteOptions& options);

}  // namespace trireme
