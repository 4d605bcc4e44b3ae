#include "commands/model_option.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "engine/core/error.h"
#include "engine/io/hub_cache.h"
#include "transformer/checkpoint/find_checkpoint.h"
#include "transformer/checkpoint/open_model.h"

namespace trireme {

CLI::Option* add_model_option(CLI::App& command, std::string& model, const char* help,
                              std::string* as_named) {
  const auto set = [&model, as_named](const std::string& given) {
    model = local_model(given);
    if (as_named != nullptr) *as_named = given;
  };
  return command.add_option_function<std::string>("--model,model", set, help)
      ->required()
      ->type_name("PATH");
}

void add_non_finite_option(CLI::App& command, bool& allowed) {
  command.add_flag("--allow-non-finite", allowed,
                   "Load weights that contain NaN or infinity, with a warning (default: refuse "
                   "them)");
}

CLI::Option* add_tokenizer_option(CLI::App& command, std::string& tokenizer) {
  const auto set = [&tokenizer](const std::string& given) {
    tokenizer = given == "byte" ? given : local_model(given);
    if (!newest_checkpoint_at(tokenizer).empty())
      tokenizer = open_described_model(tokenizer, tokenizer)->tokenizer();
    if (tokenizer.empty()) fail_input(given, ": this model has no tokenizer");
  };
  return command
      .add_option_function<std::string>(
          "-t,--tokenizer,--model,tokenizer", set,
          "Tokenizer: \"byte\", a tokenizer.json, a SentencePiece .model, or a model that has one")
      ->required()
      ->type_name("PATH");
}

std::function<void()> add_model_and_places(CLI::App& command,
                                           const std::vector<ModelArgument>& places) {
  const auto model = std::make_shared<std::string>();
  for (const ModelArgument& place : places)
    command.add_option(place.name, *place.value, place.help)->type_name("PATH");
  command.add_option("--model", *model, "Model, in place of the first argument")->type_name("PATH");
  return [&command, model, places] {
    const std::string name =
        concat("trireme ", command.get_parent()->get_name(), " ", command.get_name());
    std::string& first = *places.front().value;
    if (!model->empty()) {
      if (!places.back().value->empty())
        fail_input(name, ": the model is given twice: \"", first, "\" and --model \"", *model,
                   "\"");
      for (size_t i = places.size() - 1; i > 0; --i) *places[i].value = *places[i - 1].value;
      first = *model;
    }
    for (const ModelArgument& place : places)
      if (place.value->empty())
        fail_input(name, ": ", place.name, " is required (see ", name, " --help)");
    first = local_model(first);
  };
}

}  // namespace trireme
