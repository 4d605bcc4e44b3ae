// write_gguf() of gguf_model.h.
#include "transformer/gguf_model.h"

namespace trireme {
namespace {

// general.file_type of llama.cpp.
int64_t file_type(const std::string& type) {
  if (type == "F32") return 0;
  if (type == "F16") return 1;
  if (type == "Q8_0") return 7;
  return 32;  // BF16
}

// Vectors and what decides for experts keep their precision; a row that is no whole blocks cannot be quantised.
const GgufType* type_of(const FileTensor& tensor, const std::string& type) {
  const bool small = tensor.shape.size() == 1 || tensor.router ||
                     tensor.name.find("ffn_gate_inp") != std::string::npos ||
                     tensor.name.starts_with("position_embd");
  if (small) return gguf_type("F32");
  const GgufType* wanted = gguf_type(type);
  return tensor.columns() % wanted->block == 0 ? wanted : gguf_type("F16");
}

}  // namespace

int64_t write_gguf(const ModelSource& source, const std::string& path,
                   const GgufWriteOptions& options) {
  const ModelConfig& config = source.config();
  source.check(config);
  GgufMetadata metadata = gguf_metadata(config);
  metadata["general.file_type"] = file_type(options.type);
  metadata["general.alignment"] = int64_t{32};
  for (const auto& [key, value] : options.tokenizer) metadata[key] = value;
  const std::vector<FileTensor> tensors = file_tensors(
      config, [&](const std::string& parameter) { return gguf_place(config, parameter); });
  std::vector<GgufTensor> described;
  int64_t total = 0, done = 0;
  for (const FileTensor& t : tensors) {
    GgufTensor out{t.name, type_of(t, options.type), t.shape};
    if (t.name.find("_exps.") != std::string::npos) {
      const int64_t experts = config.moe.experts;
      out.shape = {experts, t.rows() / experts, t.columns()};
    }
    described.push_back(std::move(out));
    total += t.numel();
  }
  GgufWriter writer(path, metadata, described);
  for (const FileTensor& t : tensors)
    for_each_piece(source, config, t, DType::kF32, [&](const ConstTensor& values) {
      writer.write(values);
      done += values.numel();
      if (options.progress) options.progress(done * 4, total * 4);
    });
  writer.commit();
  return writer.bytes();
}

}  // namespace trireme
