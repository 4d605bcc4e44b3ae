// Chat template of a saved model, and what exported directories say of it.
#pragma once

#include <string>

#include "engine/io/gguf.h"

namespace trireme {

class ModelSource;

// The chat template that a run's checkpoints record, or that lies beside adapters of PEFT; empty
// where the path is neither.
std::string kept_chat_template(const std::string& path);
// The same, else that of a model's tokenizer (a path, or "byte"); empty where neither has one.
std::string chat_template_of_model(const std::string& path, const std::string& tokenizer);
// GGUF metadata of the tokenizer of the model at `path`, its chat template included; empty: none
// can be written.
GgufMetadata gguf_words(const ModelSource& source, const std::string& path);
// Writes a template (empty: none) into a HuggingFace directory as chat_template.jinja, which
// precedes that of tokenizer_config.json, and adds the token that ends a turn to the stop tokens of
// generation_config.json.
void write_chat_template(const std::string& chat, const std::string& directory);

}  // namespace trireme
