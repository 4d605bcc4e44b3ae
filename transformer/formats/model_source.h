// Model stored in files: its configuration, and its parameters under our names, readable box by
// box.
//
// Caches no parameters: a rank reads the rows and columns of its box from the mapped file and
// converts them to its dtype. Implementations for third-party files: hf_model.h, gguf_model.h;
// open_model_source() selects one for a path.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/tensor_source.h"
#include "transformer/formats/hf/hf_source.h"
#include "transformer/model/model.h"

namespace trireme {

// One logical parameter of a model, unsharded.
struct ModelParameter {
  std::string name;
  std::vector<int64_t> shape;
  // Selection bias of a router (e_score_correction_bias); float32 in every exported file.
  bool selection_bias = false;
  // Part of a multi-token prediction layer: copied, never used in a pass (mtp_layers.h).
  bool mtp = false;
};
// Returns all parameters of a model in the order of the forward pass, then its selection biases. A
// tied table is listed once.
std::vector<ModelParameter> model_parameters(const ModelConfig& config);

// Parameter mapping: the tensor and rows of a file that store a parameter, and the transformation
// of its values there.
struct ParameterMapping : HfSource {
  // Group size of interleaved rows, the layout for a rotary embedding of adjacent pairs: file row
  // 2 i + j is row j width / 2 + i of its group. 0: not interleaved.
  int64_t rotary_width = 0;
  double added = 0;  // added to every element: the file holds w + added
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  const std::string& path() const { return path_; }
  virtual const char* kind() const = 0;  // "hf", "gguf", "trireme", "peft"
  const ModelConfig& config() const { return config_; }
  const TensorSource& tensors() const { return *tensors_; }
  // Dtype of most elements; quantized ones count as bfloat16.
  DType dtype() const;
  // Dtype in the file of a parameter that check() found; dtype() if it is quantized.
  DType parameter_dtype(const ModelConfig& config, const std::string& parameter) const;
  // Argument for load_tokenizer(); "" if the files hold no tokenizer.
  virtual std::string tokenizer() const = 0;
  // Text of all settings besides the tensors that determine the values.
  virtual std::string settings() const;
  virtual ParameterMapping place(const ModelConfig& config, const std::string& parameter) const = 0;

  // Checks the tensors against a model of `config`. InputError listing the missing tensors, the
  // unused ones and those of another shape, up to 20 of each, and the types without float values.
  void check(const ModelConfig& config) const;
  // Reads elements [begin, begin + destination.numel()) of the flattened box of a parameter that
  // check() found. destination: contiguous, rank 1, on the host.
  virtual void read(const ModelConfig& config, const ModelParameter& parameter,
                    const TensorBox& box, int64_t begin, const Tensor& destination) const;
  // Loads the parameters of this rank's `model`, except adapters, to the device of the context.
  // Call check() first.
  void load(Ctx& ctx, const Model& model, ParameterStore& store) const;
  // Loads only the adapters (transformer/layers/lora.h) to the device of the context.
  void load_adapters(Ctx& ctx, const Model& model, ParameterStore& store) const;
  // Initializes only the magnitudes of the adapters (DoRA), to the norms of the rows of this
  // source's weights. Each rank sets those it stores.
  void load_row_norms(Ctx& ctx, const Model& model, ParameterStore& store) const;

 protected:
  explicit ModelSource(std::string path) : path_(std::move(path)) {}
  virtual bool is_ignored(const ModelConfig& config, const std::string& tensor) const = 0;
  // Supported tensor types, and advice about others, for messages.
  virtual std::string types_read() const;
  ModelConfig config_;
  std::unique_ptr<TensorSource> tensors_;

 private:
  // Reads a part of the flattened box of a parameter into `destination`, like read().
  using ReadPart = std::function<void(const ParameterSpec& spec, const TensorBox& box,
                                      int64_t begin, const Tensor& destination)>;
  static void fill(Ctx& ctx, ParameterStore& store,
                   const std::function<bool(const ParameterSpec&)>& chosen, const ReadPart& part);
  void load_parameters(Ctx& ctx, const Model& model, ParameterStore& store, bool adapters) const;
  std::string path_;
  mutable std::optional<DType> dtype_;  // computed on first use
};

// Returns whether a path is a third-party model rather than a Trireme run or checkpoint.
bool is_model_source(const std::string& path);
// InputError for any other path.
std::unique_ptr<ModelSource> open_model_source(const std::string& path);

// Returns download advice if `path` does not exist and looks like the name of a model on a hub,
// else "".
std::string hub_advice(const std::string& path);

}  // namespace trireme
