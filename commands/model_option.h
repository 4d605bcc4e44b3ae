// Model and tokenizer arguments of commands. A model is given as MODEL or --model MODEL: a path, or
// the name of a model in the HuggingFace Hub's cache (engine/io/hub_cache.h).
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
    "Model: run directory, checkpoint, HuggingFace directory or .gguf; or ORG/NAME of a model in "
    "the HuggingFace Hub's cache";

// Adds the required model argument; it sets `model` to a path. as_named: optional output, the text
// that the user gave.
CLI::Option* add_model_option(CLI::App& command, std::string& model, const char* help = kAnyModel,
                              std::string* as_named = nullptr);

// Adds --allow-non-finite: load weights even if some are NaN or infinite.
void add_non_finite_option(CLI::App& command, bool& allowed);

// Adds the required tokenizer argument: TOKENIZER, --tokenizer or --model. It accepts all inputs of
// load_tokenizer() (engine/text/tokenizer.h), a run or checkpoint, or the name of a model in the
// Hub's cache. Sets `tokenizer` to "byte" or a path. InputError if the model has no tokenizer.
CLI::Option* add_tokenizer_option(CLI::App& command, std::string& tokenizer);

struct ModelArgument {
  const char* name;    // of the positional argument, for help and errors
  std::string* value;  // must outlive the command
  const char* help;
};

// Adds the arguments of a command that reads a model, places[0], and has further arguments. They
// are given as MODEL OTHER..., or as OTHER... and --model MODEL in any order. The command's
// callback must first call the returned function, which sets the values. It throws InputError if
// one is missing or the model is given twice.
std::function<void()> add_model_and_places(CLI::App& command,
                                           const std::vector<ModelArgument>& places);

}  // namespace trireme
