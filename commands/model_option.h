// The model that a command reads, as MODEL or --model MODEL: a path, or the name of a model in the
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

// `model` becomes a path. as_named: what the user wrote, where that is wanted.
CLI::Option* add_model_option(CLI::App& command, std::string& model, const char* help = kAnyModel,
                              std::string* as_named = nullptr);

// --allow-non-finite: whether weights that are not finite are loaded.
void add_non_finite_option(CLI::App& command, bool& allowed);

// The tokenizer that a command reads, as TOKENIZER, --tokenizer or --model: what load_tokenizer()
// takes, a run or a checkpoint of ours, or the name of a model in the hub's cache.
CLI::Option* add_tokenizer_option(CLI::App& command, std::string& tokenizer);

struct ModelArgument {
  const char* name;
  std::string* value;  // outlives the command
  const char* help;
};

// The arguments of a command that reads a model, places[0], and others: MODEL OTHER..., or OTHER...
// and --model MODEL in any order. What is returned is called first in the command's callback; it
// fills in the values, with InputError where one is missing or the model is given twice.
std::function<void()> add_model_and_places(CLI::App& command,
                                           const std::vector<ModelArgument>& places);

}  // namespace trireme
