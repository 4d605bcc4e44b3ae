// Lineage of a checkpoint: the weights its run started from, the base that its adapters or
// preferences are relative to, its examples, and the chat templates that formatted them.
#pragma once

#include <string>

#include "engine/config/reader.h"
#include "engine/text/chat_template_sources.h"

namespace trireme {

class CheckpointReader;

struct CheckpointLineage {
  // The model has seen texts with the special tokens that its tokenizer adds: trained from
  // third-party weights, or fine-tuned.
  bool special_tokens = false;
  // Fine-tuning only.
  ChatTemplateSources chat_templates;  // empty: there is none
  std::string examples;                // ExampleSet::fingerprint(); empty: not known
  std::string data;                    // description of the examples, for people
  // Runs that depend on their base only.
  std::string base;           // find_model(), from the root
  std::string base_beside;    // the same, relative to the folder of checkpoints
  std::string base_identity;  // model_identity(); empty: not known
};

// Identity of the model at a place that find_model() returns: 16 hex digits. Third-party files by
// their sizes, their beginnings and samples of the rest, whatever their names; a checkpoint of ours
// by its manifest, which has the checksums of everything.
std::string model_identity(const std::string& place);

Json lineage_to_json(const CheckpointLineage& lineage);
// Reads the lineage in a checkpoint's state; members that an earlier version did not write stay
// empty.
CheckpointLineage lineage_from_json(const Json& state);
CheckpointLineage read_lineage(const CheckpointReader& reader);

// The place of the model that a checkpoint depends on: at `load` (checkpoint.load of its run), at
// the recorded path, or at the recorded distance from the checkpoint; of a run any of its
// checkpoints. The first with the recorded identity; InputError where none has it. Without a
// recorded identity the first that exists.
std::string find_base(const std::string& checkpoint, const std::string& load);
// Likewise, at `path` only.
std::string find_base_at(const std::string& path, const std::string& checkpoint);

}  // namespace trireme
