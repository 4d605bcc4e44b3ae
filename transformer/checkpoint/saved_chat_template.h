// Chat templates of a saved model, and what exported directories say of it.
#pragma once

#include <string>

#include "engine/io/gguf.h"
#include "engine/text/chat_template_sources.h"

namespace trireme {

class ModelSource;

// The chat templates that a run's checkpoints record, or that lie beside adapters of PEFT; empty
// where the path is neither.
ChatTemplateSources kept_chat_templates(const std::string& path);
// The same, else those of a model's tokenizer (a path, or "byte"); empty where neither has one.
ChatTemplateSources chat_templates_of_model(const std::string& path, const std::string& tokenizer);
// GGUF metadata of the tokenizer of the model at `path`, its chat templates included; empty: none
// can be written.
GgufMetadata gguf_words(const ModelSource& source, const std::string& path);
// Writes templates (empty: none) into a HuggingFace directory as chat_template.jinja and files of
// additional_chat_templates, which precede those of tokenizer_config.json, and adds the tokens that
// end a turn to the stop tokens of generation_config.json.
void write_chat_templates(const ChatTemplateSources& chat, const std::string& directory);

}  // namespace trireme
