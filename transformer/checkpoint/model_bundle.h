// Description of a saved model: what evaluation, generation and serving know of it before a tensor
// is read. Training reads the whole configuration of a run instead
// (training/checkpoint/train_checkpoint.h).
#pragma once

#include <functional>
#include <string>

#include "engine/config/reader.h"
#include "engine/io/sharded_checkpoint.h"
#include "transformer/checkpoint/lineage.h"
#include "transformer/config/model_config.h"
#include "transformer/layers/lora.h"

namespace trireme {

struct ModelBundle {
  ModelConfig model;
  DType dtype = DType::kF32;  // the checkpoint's; of a third-party model that of most elements
  std::string tokenizer;      // path, or "byte"; empty: none is named
  LoraConfig lora;            // adapters that the checkpoint holds; rank 0: none
  std::string load;           // checkpoint.load of the run; empty: none
  std::string device_backend = "auto";  // comm.device_backend of the run
  CheckpointLineage lineage;
};

// Reads the state of a checkpoint, that of an imported model included. InputError where this
// version does not write such a state.
ModelBundle read_model_bundle(const CheckpointReader& reader);
// The same of a state. checkpoint: its directory; a copy of the tokenizer may lie beside it.
ModelBundle model_bundle_of(const Json& state, const std::string& checkpoint);

// Calls `read` with the state of a checkpoint. InputError that names the checkpoint where `read`
// finds a member absent or of another type.
void with_state(const CheckpointReader& reader, const std::function<void(const Json& state)>& read);

// State of a checkpoint that holds an imported model and no run. tokenizer: "byte", a file's name
// below tokenizer/ beside the checkpoint, or empty.
Json imported_state(const ModelConfig& model, DType dtype, const std::string& tokenizer);
bool is_imported_state(const Json& state);
inline constexpr const char* kTokenizerFolder = "tokenizer";  // beside the checkpoint

}  // namespace trireme
