#include "commands/config_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands/parse_error.h"
#include "engine/config/json.h"
#include "engine/io/atomic_file.h"
#include "engine/io/strict_json.h"

namespace trireme {
namespace {

constexpr char kConfig[] = "--config";

std::string option_name(std::string key) {
  std::ranges::replace(key, '_', '-');
  return "--" + key;
}

// Appends the value as a command line has it; false if a command line cannot have it.
bool read_words(const Json& value, std::vector<std::string>& words) {
  if (value.is_null()) return false;
  words.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  return true;
}

bool read_value(const CLI::Option& option, const Json& value, std::vector<std::string>& words) {
  const bool flag = option.get_expected_max() == 0;
  if (flag != value.is_boolean()) return false;
  if (flag) {
    if (value.get<bool>()) words.emplace_back("true");
    return true;
  }
  if (!value.is_array()) return read_words(value, words);
  const bool several = option.get_items_expected_max() > 1;
  return several && !value.empty() && std::ranges::all_of(value, [&](const Json& one) {
           return !one.is_structured() && read_words(one, words);
         });
}

void apply(CLI::App& command, const std::string& file) {
  const Json json = parse_strict_json<Json>(read_small_file(file), file);
  if (!json.is_object()) fail_input(file, ": expected an object of options");
  std::string problems;
  std::vector<std::pair<CLI::Option*, std::vector<std::string>>> given;
  for (const auto& [key, value] : json.items()) {
    const std::string name = option_name(key);
    CLI::Option* option = command.get_option_no_throw(name);
    if (option == nullptr || name == kConfig || name == "--help") {
      problems +=
          concat("\n  ", key, ": not an option of this command", suggest_option(name, command));
      continue;
    }
    std::vector<std::string> words;
    if (!read_value(*option, value, words))
      problems +=
          concat("\n  ", key, ": ", value.dump().substr(0, 60), " is not a value of ", name);
    else if (!words.empty() && option->count() == 0)
      given.emplace_back(option, std::move(words));
  }
  if (!problems.empty()) fail_input(file, ": invalid options:", problems);
  for (auto& [option, words] : given) option->add_result(std::move(words));
}

}  // namespace

void add_config_file_option(CLI::App& command) {
  command
      .add_option_function<std::string>(
          kConfig, [&command](const std::string& file) { apply(command, file); },
          "JSON file of options; the command line takes precedence")
      ->type_name("FILE");
}

}  // namespace trireme
