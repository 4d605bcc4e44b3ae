#include "commands/parse_error.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "engine/config/schema.h"
#include "engine/core/error.h"

namespace trireme {
namespace {

// The innermost command that was recognised.
CLI::App& deepest(CLI::App& app) {
  CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().back();
  return *at;
}

std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

std::vector<std::string> command_names(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

std::vector<std::string> option_names(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// "; did you mean "x"?" when a known word is close enough to be a slip of the fingers.
std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  int best_distance = std::max(1, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& name : known)
    if (const int distance = edit_distance(word, name); distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  return best.empty() ? "" : concat("; did you mean \"", best, "\"?");
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string problem(CLI::App& at, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = at.remaining();
  const std::vector<std::string> commands = command_names(at);
  const auto option = std::find_if(unknown.begin(), unknown.end(),
                                   [](const std::string& word) { return word.starts_with("-"); });
  if (option != unknown.end()) {
    const std::string name = option->substr(0, option->find('='));
    return concat("unknown option \"", name, "\"", suggest_option(name, at));
  }
  if (!unknown.empty() && !commands.empty())
    return concat("unknown command \"", unknown.front(), "\"",
                  suggestion(unknown.front(), commands));
  if (!unknown.empty()) return concat("unexpected argument \"", unknown.front(), "\"");
  if (!commands.empty()) return concat("needs a command: ", joined(commands));
  return error.what();
}

}  // namespace

std::string suggest_option(const std::string& name, CLI::App& command) {
  return suggestion(name, option_names(command));
}

std::string explain_parse_error(CLI::App& app, const CLI::ParseError& error) {
  CLI::App& at = deepest(app);
  const std::string name = full_name(at);
  std::string line = concat(name, ": ", problem(at, error), " (see ", name, " --help)");
  // The library ends some of its messages with a line feed.
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace trireme
