// Model argument of a command, as MODEL or --model MODEL: a path, or the name of a model in the
// hub's cache (engine/io/hub_cache.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trireme {

inline constexpr const char* kAnyModel =
    "Run, checkpoint, HuggingFace directory or .gguf; or ORG/NAME of a model in the hub's cache";

// `model` is set to a path. as_named: optional output, the name that the user gave.
CLI::Option* add_model_option(CLI::App& command, std::string& model, const char* help = kAnyModel,
                              std::string* as_named = nullptr);

// --allow-non-finite: load weights even if some are not finite.
void add_non_finite_option(CLI::App& command, bool& allowed);

// Tokenizer argument, as TOKENIZER, --tokenizer or --model: anything that load_tokenizer() accepts,
// one of our runs or checkpoints, or the name of a model in the hub's cache.
CLI::Option* add_tokenizer_option(CLI::App& command, std::string& tokenizer);

struct ModelArgument {
  const char* name;
  std::string* value;  // outlives the command
  const char* help;
};

// Arguments of a command that reads a model, places[0], and others: MODEL OTHER..., or OTHER... and
// --model MODEL in any order. Call the returned function first in the command's callback: it sets
// the values, with InputError if one is missing or the model is given twice.
std::function<void()> add_model_and_places(CLI::App& command,
                                           const std::vector<ModelArgument>& places);

}  // namespace trireme
