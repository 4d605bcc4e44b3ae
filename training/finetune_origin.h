// What a checkpoint of a fine-tuning run says of where it comes from: the base that its adapters or its preferences
// are measured from, the examples, and the chat template that wrote them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/io/gguf.h"
#include "training/run_config.h"

namespace trireme {

class CheckpointReader;
class ModelSource;
struct FinetuneData;

struct FinetuneOrigin {
  std::string chat_template;  // source; empty: there is none
  // Of runs with adapters or with a reference model, else empty.
  std::string base;           // path
  std::string base_beside;    // the same, relative to the folder of checkpoints
  std::string base_identity;  // model_identity()
  std::string examples;       // ExampleSet::fingerprint(); empty: not known
  std::string data;           // of what they were, for people
};

// Which model lies in files: 16 hex digits over their names, sizes, beginnings and samples of the rest; of a
// checkpoint of ours over its manifest, which has the checksums of all.
std::string model_identity(const ModelSource& source);

FinetuneOrigin finetune_origin(const RunConfig& config, const FinetuneData& data);
Json origin_to_json(const FinetuneOrigin& origin);
// Empty where the checkpoint is of another kind of run, or of an earlier version.
FinetuneOrigin origin_of(const CheckpointReader& reader);

// InputError that names both where a run that goes on from `checkpoint` has other examples or another base.
void check_same_origin(const std::string& checkpoint, const FinetuneOrigin& saved,
                       const FinetuneOrigin& now);

// Where the base of a checkpoint's adapters lies: where it did, or as far from the checkpoint as it did.
std::string find_base(const std::string& checkpoint, const RunConfig& run,
                      const FinetuneOrigin& origin);
// InputError that names both where `base` is not the model that the adapters of a checkpoint were trained beside.
void check_base(const std::string& checkpoint, const FinetuneOrigin& origin,
                const ModelSource& base);

// The model that the adapters of a checkpoint were trained beside. InputError where another one lies there.
std::unique_ptr<ModelSource> open_base(const std::string& checkpoint, const RunConfig& run);

// The newest checkpoint at a path, not looked at more closely; empty: there is none.
std::string newest_checkpoint_at(const std::string& path);
// The chat template that a run's checkpoints remember; empty where the path is no such run.
std::string chat_template_of_run(const std::string& path);
// The same, else that of a model's tokenizer (a path, or "byte"); empty where neither has one.
std::string chat_template_of_model(const std::string& path, const std::string& tokenizer);
// What a GGUF file says of the tokenizer of the model at `path`, its chat template too; empty: nothing can be said.
GgufMetadata gguf_words(const ModelSource& source, const std::string& path);
// Writes it into a HuggingFace directory as chat_template.jinja, which counts before tokenizer_config.json's, and adds
// what it ends a turn with to the ends that generation_config.json lists.
void write_chat_template_of_run(const std::string& path, const std::string& directory);

}  // namespace trireme
