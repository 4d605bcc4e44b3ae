// write_gguf() of gguf_model.h.
#include <memory>

#include "engine/observe/log.h"
#include "engine/text/tokenizer_keys.h"
#include "transformer/formats/gguf/gguf_model.h"
#include "transformer/formats/stop_token_ids.h"

namespace trireme {
namespace {

// general.file_type of llama.cpp: the type of most elements.
int64_t file_type(const std::string& type) {
  constexpr std::pair<const char*, int64_t> kFileTypes[] = {
      {"F32", 0}, {"F16", 1}, {"Q4_0", 2}, {"Q8_0", 7}, {"Q4_K", 14}, {"Q6_K", 18}, {"BF16", 32}};
  for (const auto& [name, number] : kFileTypes)
    if (type == name) return number;
  TRIREME_UNREACHABLE("no general.file_type for ", type);
}

bool has_whole_blocks(const FileTensor& tensor, const GgufType& type) {
  return tensor.columns() % type.block == 0;
}

// Type of a tensor. Vectors and routers keep full precision. Rows that are not whole blocks fall
// back to a type with smaller blocks, then to the type of other matrices.
const GgufType* type_of(const ModelConfig& config, const FileTensor& tensor,
                        const GgufWriteOptions& options) {
  const bool small = tensor.shape.size() == 1 || tensor.selection_bias ||
                     tensor.name.find("ffn_gate_inp") != std::string::npos ||
                     tensor.name.starts_with("position_embd");
  if (small) return gguf_type("F32");
  const bool linear = !options.linear.empty() && is_linear_weight(config, tensor);
  if (linear)
    for (const GgufType* type : {gguf_type(options.linear), gguf_type("Q8_0")})
      if (has_whole_blocks(tensor, *type)) return type;
  const GgufType* type = gguf_type(options.type);
  return has_whole_blocks(tensor, *type) ? type : gguf_type("F16");
}

// Writes the tensors of a model one after the other.
class GgufExport {
 public:
  GgufExport(const ModelSource& source, const GgufWriteOptions& options)
      : source_(source), options_(options) {}

  GgufWritten write(const std::string& path, const GgufMetadata& metadata,
                    const std::vector<FileTensor>& tensors) {
    std::vector<GgufTensor> described;
    for (const FileTensor& t : tensors) {
      described.push_back({t.name, type_of(source_.config(), t, options_), t.shape});
      if (t.name.find("_exps.") != std::string::npos) {
        const int64_t experts = source_.config().moe.experts;
        described.back().shape = {experts, t.rows() / experts, t.columns()};
      }
      if (t.shape.size() == 2 && t.shape[0] == 1) described.back().shape = {t.shape[1]};
      quantized_ = quantized_ || described.back().type->encode != nullptr;
    }
    if (!options_.linear.empty() && !quantized_) fail_none_fits();
    const std::vector<float> factors = rope_factors();
    const Shape count{std::ssize(factors)};
    if (!factors.empty())
      described.push_back({"rope_freqs.weight", gguf_type("F32"), {std::ssize(factors)}});
    GgufWriter writer(path, metadata, described, fingerprint(source_));
    if (writer.file().discarded_partial())
      log_warning(path, ": starting over: the model or the options have changed since ",
                  "the file was interrupted");
    PieceStream stream(source_, source_.config());
    bool kept = true;  // all tensors so far
    for (size_t i = 0; i < tensors.size(); ++i) {
      const int64_t first = kept ? writer.skip_kept() : 0;
      if (first > 0) report_progress(writer);
      kept = kept && first == tensors[i].numel();
      if (!kept) write(stream, writer, tensors[i], *described[i].type, first);
    }
    stream.finish();
    if (!factors.empty() && !(kept && writer.skip_kept() > 0))
      writer.write(ConstTensor(factors.data(), DType::kF32, count));
    written_.kept = writer.file().kept();
    writer.commit();
    written_.bytes = writer.bytes();
    return std::move(written_);
  }

 private:
  void report_progress(const GgufWriter& writer) const {
    if (options_.progress) options_.progress(writer.file().size(), writer.bytes());
  }
  // Writes elements from `first` on.
  void write(PieceStream& stream, GgufWriter& writer, const FileTensor& t, const GgufType& type,
             int64_t first) {
    struct State {
      int64_t numbers;
      RoundingError error = {};
    };
    const auto state = std::make_shared<State>(State{first});
    stream.add(t, DType::kF32, first, [this, &writer, &t, &type, state](const ConstTensor& values) {
      if (type.encode != nullptr) check_finite(t.name, values);
      state->error.add(writer.write(values));
      report_progress(writer);
      state->numbers += values.numel();
      if (state->numbers == t.numel()) end_tensor(t, type, state->error);
    });
  }
  void end_tensor(const FileTensor& t, const GgufType& type, const RoundingError& error) {
    check_finite(t.name, error);
    if (!options_.linear.empty())
      written_.report.add(type.name, t.name, t.numel() * dtype_size(file_dtype(source_, t)),
                          t.numel() / type.block * type.block_bytes, error);
  }

  // Divisors of Llama 3's scaling; empty for others.
  std::vector<float> rope_factors() const {
    const ModelConfig& config = source_.config();
    if (config.rope_scaling.type != RopeType::kLlama3) return {};
    const std::vector<double> factors =
        gguf_rope_factors(config.rope_theta, config.head_dim, config.rope_scaling);
    return {factors.begin(), factors.end()};
  }

  const ModelSource& source_;
  const GgufWriteOptions& options_;
  GgufWritten written_;
  bool quantized_ = false;
};

// Adds stop token ids that the tokenizer metadata lacks: llama.cpp has keys for three; further ones
// are stored under a Trireme key, with a warning.
void add_ends(const ModelSource& source, const std::string& path, GgufMetadata& metadata) {
  std::vector<int32_t> ends =
      tokenizer_stop_token_ids(source.tokenizer(), source.config().vocab_size);
  for (const char* key : kGgufStopKeys)
    if (const auto found = metadata.find(key); found != metadata.end())
      if (const auto* id = std::get_if<int64_t>(&found->second)) std::erase(ends, *id);
  auto next = ends.begin();
  for (const char* key : kGgufStopKeys)
    if (next != ends.end() && !metadata.contains(key)) metadata[key] = int64_t{*next++};
  const std::vector<int64_t> rest(next, ends.end());
  if (rest.empty()) return;
  std::string listed;
  for (const int64_t id : rest) listed += concat(listed.empty() ? "" : ", ", id);
  metadata[kGgufStopTokens] = rest;
  log_warning(path, ": llama.cpp has keys for three stop tokens (eos, eot, eom); the ids ", listed,
              " are kept in ", kGgufStopTokens,
              ", which Trireme reads: other programs may not stop at them");
}

// Token ids of the configuration: without a tokenizer bos and eos, else a bos that differs from the
// tokenizer's.
void add_ids(const ModelConfig& config, bool has_tokenizer, GgufMetadata& metadata) {
  const char* const bos = "tokenizer.ggml.bos_token_id";
  if (!has_tokenizer) {
    if (config.bos_token_id >= 0) metadata[bos] = config.bos_token_id;
    if (config.eos_token_id >= 0) metadata["tokenizer.ggml.eos_token_id"] = config.eos_token_id;
    return;
  }
  const auto found = metadata.find(bos);
  if (config.bos_token_id >= 0 &&
      (found == metadata.end() || !(found->second == GgufValue(config.bos_token_id))))
    metadata[kGgufModelBos] = config.bos_token_id;
}

}  // namespace

GgufWritten write_gguf(const ModelSource& source, const std::string& path,
                       const GgufWriteOptions& options) {
  const ModelConfig& config = source.config();
  source.check(config);
  if (!options.linear.empty()) check_not_quantized(source);
  GgufMetadata metadata = gguf_metadata(config);
  metadata["general.file_type"] = file_type(options.linear.empty() ? options.type : options.linear);
  metadata["general.alignment"] = int64_t{32};
  for (const auto& [key, value] : options.tokenizer) metadata[key] = value;
  add_ids(config, !options.tokenizer.empty(), metadata);
  if (!options.tokenizer.empty()) add_ends(source, path, metadata);
  return GgufExport(source, options)
      .write(path, metadata, file_tensors(config, [&](const std::string& parameter) {
               return gguf_place(config, parameter);
             }));
}

}  // namespace trireme
