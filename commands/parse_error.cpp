#include "commands/parse_error.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

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
    return concat("unknown option \"", name, "\"");
  }
  if (!unknown.empty() && !commands.empty())
    return concat("unknown command \"", unknown.front(), "\"");
  if (!unknown.empty()) return concat("unexpected argument \"", unknown.front(), "\"");
  if (!commands.empty()) return concat("needs a command: ", joined(commands));
  return error.what();
}

}  // namespace

std::string explain_parse_error(CLI::App& app, const CLI::ParseError& error) {
  CLI::App& at = deepest(app);
  const std::string name = full_name(at);
  std::string line = concat(name, ": ", problem(at, error), " (see ", name, " --help)");
  // The library ends some of its messages with a line feed.
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace trireme
