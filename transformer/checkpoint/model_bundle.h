// Description of a saved model, which evaluation, generation and serving read before any tensor.
// Training reads the whole configuration of a run instead
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
  DType dtype = DType::kF32;  // of the checkpoint; of a third-party model that of most elements
  std::string tokenizer;      // path, or "byte"; empty: none recorded
  LoraConfig lora;            // adapters in the checkpoint; rank 0: none
  std::string load;           // checkpoint.load of the run; empty: none
  std::string device_backend = "auto";  // comm.device_backend of the run
  CheckpointLineage lineage;
};

// Reads the state of a checkpoint, also of an imported model. InputError if it does not have the
// form that this version writes.
ModelBundle read_model_bundle(const CheckpointReader& reader);
// The same, given the state. checkpoint: its directory, next to which a copy of the tokenizer may
// be. Throws nlohmann::json::exception where a member is absent or of another type; with_state()
// converts it.
ModelBundle model_bundle_of(const Json& state, const std::string& checkpoint);

// Calls `read` with the state of a checkpoint. InputError naming the checkpoint if `read` finds a
// member absent or of another type.
void with_state(const CheckpointReader& reader, const std::function<void(const Json& state)>& read);

// Returns the state of a checkpoint that holds an imported model and no run. tokenizer: "byte", a
// file name inside tokenizer/ next to the checkpoint, or empty.
Json imported_state(const ModelConfig& model, DType dtype, const std::string& tokenizer);
bool is_imported_state(const Json& state);
inline constexpr const char* kTokenizerFolder = "tokenizer";  // next to the checkpoint

}  // namespace trireme
