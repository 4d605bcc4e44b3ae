// Lineage of a checkpoint: the weights its run started from, the base that its adapters or
// preferences are relative to, its examples, and the chat templates that formatted them.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "engine/text/chat_template_sources.h"

namespace trireme {

class CheckpointReader;

struct CheckpointLineage {
  // The model was trained on text with the special tokens that its tokenizer adds: it was
  // initialized from third-party weights, or fine-tuned.
  bool special_tokens = false;
  // Fine-tuning only.
  ChatTemplateSources chat_templates;  // empty: none
  // ExampleSet::fingerprint() (training/data/examples/example_set.h); empty: unknown
  std::string examples;
  std::string data;  // human-readable description of the examples
  // Runs that depend on their base only: adapters and preference training.
  std::string base;           // absolute path from find_model()
  std::string base_relative;  // the same, relative to the folder of checkpoints
  std::string base_identity;  // model_identity(); empty: unknown
};

// Identity of the model at a path that find_model() returned: 16 hex digits. For a third-party
// model a hash of its tensor files: of each its size, its first MiB and samples of the rest
// (engine/io/file_identity.h), independent of file names. For a Trireme checkpoint a hash of the
// manifest, which holds the checksums of all data.
std::string model_identity(const std::string& place);

Json lineage_to_json(const CheckpointLineage& lineage);
// Reads the lineage from a checkpoint's state. Members that an earlier version did not write stay
// empty.
CheckpointLineage lineage_from_json(const Json& state);
CheckpointLineage read_lineage(const CheckpointReader& reader);

// Returns the path of the base model that a checkpoint depends on. Searches, in this order: `load`
// (checkpoint.load of its run; may be empty), the recorded path, the recorded path relative to the
// folder of checkpoints, and `load` relative to the parent of the run's folder. Returns the first
// model with the recorded identity; in a run directory it may be any checkpoint, newer ones first.
// If no identity was recorded, returns find_model() of the first path that exists. InputError if
// none matches.
std::string find_base(const std::string& checkpoint, const std::string& load);
// The same, searching `path` only.
std::string find_base_at(const std::string& path, const std::string& checkpoint);

}  // namespace trireme
