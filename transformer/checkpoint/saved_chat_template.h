// Chat templates of a saved model, and their form in exported directories.
#pragma once

#include <string>

#include "engine/io/gguf.h"
#include "engine/text/chat_template_sources.h"

namespace trireme {

class ModelSource;

// Chat templates recorded in a run's newest checkpoint, or stored next to PEFT adapters. Empty if
// the path is neither.
ChatTemplateSources recorded_chat_templates(const std::string& path);
// The same, else the templates of a model's tokenizer (a path, or "byte"). Empty if neither has
// one.
ChatTemplateSources chat_templates_of_model(const std::string& path, const std::string& tokenizer);
// GGUF metadata of the tokenizer of `source`, with chat_templates_of_model() of `path`, the path
// that `source` was opened from. Empty if the tokenizer cannot be expressed in GGUF.
GgufMetadata gguf_tokenizer_with_templates(const ModelSource& source, const std::string& path);
// Writes templates (empty: none) into a HuggingFace directory, as chat_template.jinja and
// additional_chat_templates/, which take precedence over those of tokenizer_config.json. Adds the
// tokens that end a turn to the stop token ids of generation_config.json, if the directory has that
// file and a tokenizer.
void write_chat_templates(const ChatTemplateSources& chat, const std::string& directory);

}  // namespace trireme
