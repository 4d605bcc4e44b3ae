// GGUF files as models: llama.cpp's names and words to ours and back.
//
//   architecture   model_type        what is other than in HuggingFace's files
//   llama          llama, mixtral    rows of q and k of each head are interleaved (its rotary embedding turns
//                                    neighbours), experts are stacked: (E, F, C)
//   qwen2, qwen3   qwen2, qwen3
//   gpt2           gpt2              matrices are (out, in)
//
// Linear scaling of rotary positions and yarn are kept as numbers; of Llama 3's the file holds factors only, from
// which the published parameters are recognised.
#pragma once

#include "engine/io/gguf.h"
#include "transformer/file_tensor.h"

namespace trireme {

class GgufModel : public ModelSource {
 public:
  explicit GgufModel(const std::string& path);
  const char* kind() const override { return "gguf"; }
  std::string tokenizer() const override;
  ParameterPlace place(const ModelConfig& config, const std::string& parameter) const override;

 protected:
  bool is_ignored(const ModelConfig& config, const std::string& tensor) const override;
};

bool is_gguf(const std::string& path);  // a file that ends in .gguf

// Where such files have a parameter. InputError for a family that llama.cpp has no name for.
ParameterPlace gguf_place(const ModelConfig& config, const std::string& parameter);
// HuggingFace's words for what the metadata say. InputError for what is not known.
Json gguf_config(const GgufFile& file);
// The reverse; InputError where the model has what the words cannot say.
GgufMetadata gguf_metadata(const ModelConfig& config);

struct GgufWriteOptions {
  std::string type = "F16";  // of matrices: F32, F16, BF16 or Q8_0; vectors and routers are F32
  GgufMetadata tokenizer = {};
  CopyProgress progress = {};
};
// Streaming; the file is whole or absent. Returns its bytes.
int64_t write_gguf(const ModelSource& source, const std::string& path,
                   const GgufWriteOptions& options);

}  // namespace trireme
