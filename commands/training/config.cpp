#include "commands/training/config.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/training/key_flags.h"
#include "serving/api/reference.h"
#include "training/config/deepspeed/keys.h"
#include "training/config/run_config.h"
#include "training/data/examples/finetune_data.h"
#include "transformer/formats/model_keys.h"
#include "transformer/formats/peft/peft_keys.h"

namespace trireme {
namespace {

void print_config(const std::string& content) {
  std::fwrite(content.data(), 1, content.size(), stdout);
}

struct ResolveOptions {
  std::string file;
  std::vector<std::string> overrides;
  int ranks = 1;
};

void resolve(const ResolveOptions& options, const CLI::App& command) {
  const std::vector<std::string> overrides = with_key_flags(command, options.overrides);
  const RunConfig config = load_run_config(options.file, overrides, options.ranks, count_sequences);
  for (const std::string& note : config.notes) std::fprintf(stderr, "note: %s\n", note.c_str());
  print_config(run_config_to_json(config).dump(2) + "\n");
}

void add_resolve(CLI::App& parent) {
  CLI::App* command = parent.add_subcommand(
      "resolve", "Check a run's configuration and print it in full, defaults included");
  auto options = std::make_shared<ResolveOptions>();
  command->add_option("--config", options->file, "Run configuration (JSON file)")->required();
  command->add_option("--set", options->overrides, "Override of one key, a.b=value (repeatable)")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--ranks", options->ranks, "Ranks of the run")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->footer("Every key is also a flag: --train-steps 10, --optimizer-params-lr 1e-3.");
  accept_key_flags(*command);
  command->callback([command, options] { resolve(*options, *command); });
}

}  // namespace

CLI::App* add_config_command(CLI::App& parent) {
  CLI::App* command =
      parent.add_subcommand("config", "Check configuration files and print reference pages");
  command->require_subcommand(1);
  add_resolve(*command);
  command->add_subcommand("schema", "Print the JSON Schema of a run's configuration, for editors")
      ->callback([] { print_config(run_config_json_schema().dump(2) + "\n"); });
  command
      ->add_subcommand("reference",
                       "Print every key as Markdown (docs/reference/config-reference.md)")
      ->callback([] { print_config(config_reference()); });
  command
      ->add_subcommand("model-keys",
                       "Print how each key of third-party models is handled, as Markdown "
                       "(docs/reference/model-keys.md)")
      ->callback([] { print_config(model_keys_page()); });
  command
      ->add_subcommand("models",
                       "Print the families of models as a Markdown table "
                       "(docs/reference/models.md)")
      ->callback([] { print_config(family_table()); });
  command
      ->add_subcommand("deepspeed-keys",
                       "Print how each key of DeepSpeed configurations is handled, as Markdown "
                       "(docs/reference/deepspeed-keys.md)")
      ->callback([] { print_config(deepspeed_keys_page()); });
  command
      ->add_subcommand(
          "api-reference",
          "Print every field of the server's API as Markdown (docs/reference/serving-api.md)")
      ->callback([] { print_config(api_reference()); });
  command
      ->add_subcommand(
          "adapter-keys",
          "Print every key of PEFT's adapters as Markdown (docs/reference/adapter-keys.md)")
      ->callback([] { print_config(adapter_reference()); });
  return command;
}

}  // namespace trireme
