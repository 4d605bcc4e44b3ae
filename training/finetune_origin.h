// What a checkpoint says of where its run comes from: whose weights it began with, the base that its adapters or its
// preferences are measured from, the examples, and the chat template that wrote them.
#pragma once

#include <cstdint>
#include <string>

#include "engine/io/gguf.h"
#include "training/run_config.h"

namespace trireme {

class CheckpointReader;
class ModelSource;
struct FinetuneData;
struct ResumePlan;

struct FinetuneOrigin {
  // Texts were seen with what their tokenizer puts around them: trained from weights of others, or fine-tuned.
  bool special_tokens = false;
  // Of fine-tuning.
  std::string chat_template;  // source; empty: there is none
  std::string examples;       // ExampleSet::fingerprint(); empty: not known
  std::string data;           // of what they were, for people
  // Of runs that depend on their base, else empty.
  std::string base;           // find_model(), from the root
  std::string base_beside;    // the same, relative to the folder of checkpoints
  std::string base_identity;  // model_identity(); empty: not known
};

// Which model lies at a place that find_model() gives: 16 hex digits. Of files of others over their sizes, beginnings
// and samples of the rest, whatever they are called; of a checkpoint of ours over its manifest, which has the
// checksums of all.
std::string model_identity(const std::string& place);

// data: of fine-tuning, else nullptr.
FinetuneOrigin finetune_origin(const RunConfig& config, const ResumePlan& plan,
                               const FinetuneData* data);
Json origin_to_json(const FinetuneOrigin& origin);
// Empty in what an earlier version does not say.
FinetuneOrigin origin_of(const CheckpointReader& reader);

// InputError that names both where a run that goes on from `checkpoint` has other examples.
void check_same_examples(const std::string& checkpoint, const FinetuneOrigin& saved,
                         const FinetuneOrigin& now);

// Where the model lies that a checkpoint depends on, as find_model() gives it: at the run's checkpoint.load, where it
// lay, or as far from the checkpoint as it did; of a run any of its checkpoints. The first that is that model;
// InputError where none is. Of a checkpoint that does not know its base the first that there is.
std::string find_base(const std::string& checkpoint, const RunConfig& run);
// Likewise, at `path` and nowhere else.
std::string find_base_at(const std::string& path, const std::string& checkpoint);

// The newest checkpoint at a path, not looked at more closely; empty: there is none.
std::string newest_checkpoint_at(const std::string& path);
// The chat template that a run's checkpoints remember, or that lies beside adapters of PEFT's; empty where the path is
// neither.
std::string kept_chat_template(const std::string& path);
// The same, else that of a model's tokenizer (a path, or "byte"); empty where neither has one.
std::string chat_template_of_model(const std::string& path, const std::string& tokenizer);
// What a GGUF file says of the tokenizer of the model at `path`, its chat template too; empty: nothing can be said.
GgufMetadata gguf_words(const ModelSource& source, const std::string& path);
// Writes a template (empty: none) into a HuggingFace directory as chat_template.jinja, which counts before
// tokenizer_config.json's, and adds what it ends a turn with to the ends that generation_config.json lists.
void write_chat_template(const std::string& chat, const std::string& directory);

}  // namespace trireme
