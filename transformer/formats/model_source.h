// A model in files of others: its configuration, and its parameters under our names, read in any
// boxes.
//
// Nothing is kept of a parameter: a rank reads the rows and columns of its box, converted to its
// dtype, from pages of the file. hf_model.h and gguf_model.h are the kinds; open_model_source()
// tells which a path is.
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

// One logical tensor of a model, whole.
struct ModelParameter {
  std::string name;
  std::vector<int64_t> shape;
  // Of the routers' state: the bias that moves the choice of experts. It is float32 in every file.
  bool router = false;
};
// All of a model, in the order in which it computes.
std::vector<ModelParameter> model_parameters(const ModelConfig& config);

// Where a parameter lies in a file, and what was done to it there.
struct ParameterPlace : HfSource {
  // Rows of each group of this many are interleaved, as rotary embeddings of neighbouring elements
  // need them: file row 2 i + j is the group's row j width / 2 + i. 0: in order.
  int64_t rotary_width = 0;
  double added = 0;  // to every element: the file holds w + added
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  const std::string& path() const { return path_; }
  virtual const char* kind() const = 0;  // "hf", "gguf", "trireme"
  const ModelConfig& config() const { return config_; }
  const TensorSource& tensors() const { return *tensors_; }
  // The type of most elements; bfloat16 where they are quantised.
  DType dtype() const;
  // Of a parameter that check() found, in the file; where it is quantised, dtype().
  DType parameter_dtype(const ModelConfig& config, const std::string& parameter) const;
  // What load_tokenizer() takes; "" where the files hold none.
  virtual std::string tokenizer() const = 0;
  // What decides about the values beside the tensors of the files, as text.
  virtual std::string settings() const;
  virtual ParameterPlace place(const ModelConfig& config, const std::string& parameter) const = 0;

  // InputError that lists every tensor that a model of `config` needs and the files lack, every one
  // that is left over, every one of another shape, and by type those without float values.
  void check(const ModelConfig& config) const;
  // Elements [begin, begin + destination.numel()) of the flattened box of a parameter that check()
  // found. destination: contiguous, rank 1, on the host.
  virtual void read(const ModelConfig& config, const ModelParameter& parameter,
                    const TensorBox& box, int64_t begin, const Tensor& destination) const;
  // What the rank of `model` holds, adapters excepted, to where the context computes. check() comes
  // first.
  void load(Ctx& ctx, const Model& model, ParameterStore& store) const;
  // The adapters (transformer/layers/lora.h) and nothing else.
  void load_adapters(Ctx& ctx, const Model& model, ParameterStore& store) const;
  // The adapters' magnitudes and nothing else: the lengths of the rows of these weights, each rank
  // those it stores.
  void load_row_norms(Ctx& ctx, const Model& model, ParameterStore& store) const;

 protected:
  explicit ModelSource(std::string path) : path_(std::move(path)) {}
  virtual bool is_ignored(const ModelConfig& config, const std::string& tensor) const = 0;
  // Which types of tensors are read, and what to do about others, for messages.
  virtual std::string types_read() const;
  ModelConfig config_;
  std::unique_ptr<TensorSource> tensors_;

 private:
  // What of the flattened box of a parameter goes to `destination`, as read() has it.
  using ReadPart = std::function<void(const ParameterSpec& spec, const TensorBox& box,
                                      int64_t begin, const Tensor& destination)>;
  static void fill(Ctx& ctx, ParameterStore& store,
                   const std::function<bool(const ParameterSpec&)>& chosen, const ReadPart& part);
  void load_parameters(Ctx& ctx, const Model& model, ParameterStore& store, bool adapters) const;
  std::string path_;
  mutable std::optional<DType> dtype_;  // once it was asked for
};

// Whether a path is such a model rather than a run or checkpoint of ours.
bool is_model_source(const std::string& path);
std::unique_ptr<ModelSource> open_model_source(const std::string& path);

// "" or, where `path` does not exist and looks like the name of a model on a hub, how to download
// it.
std::string hub_advice(const std::string& path);

}  // namespace trireme
