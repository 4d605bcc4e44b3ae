#include "commands/parse_error.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "engine/config/nearest_word.h"
#include "engine/core/error.h"

namespace trireme {
namespace {

// Innermost command of the command line that the parser recognized.
CLI::App& deepest(CLI::App& app) {
  CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().back();
  return *at;
}

std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

std::vector<CLI::App*> subcommands(CLI::App& app) {
  return app.get_subcommands([](CLI::App*) { return true; });
}

std::vector<std::string> command_names(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : subcommands(app)) names.push_back(sub->get_name());
  return names;
}

// Adds the names of all subcommands, at every depth, without the program's name: "checkpoint
// convert".
void add_full_names(CLI::App& app, std::vector<std::string>& names) {
  for (CLI::App* sub : subcommands(app)) {
    const std::string name = full_name(*sub);
    names.push_back(name.substr(name.find(' ') + 1));
    add_full_names(*sub, names);
  }
}

std::vector<std::string> option_names(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string did_you_mean(const std::string& name) {
  return name.empty() ? "" : concat("; did you mean \"", name, "\"?");
}

// Command names of other programs, and our names for them.
constexpr std::pair<const char*, const char*> kForeignCommands[] = {{"train", "pretrain"},
                                                                    {"sft", "finetune"},
                                                                    {"dpo", "finetune"},
                                                                    {"run", "generate"},
                                                                    {"infer", "generate"},
                                                                    {"chat", "generate --chat"},
                                                                    {"complete", "generate"},
                                                                    {"perplexity", "eval"},
                                                                    {"server", "serve"},
                                                                    {"encode", "tokenize"},
                                                                    {"decode", "detokenize"},
                                                                    {"preprocess", "data prepare"},
                                                                    {"benchmark", "bench"},
                                                                    {"load-balance", "route"},
                                                                    {"plot", "report"},
                                                                    {"validate", "config resolve"},
                                                                    {"info", "checkpoint inspect"}};

// Suggests the most similar command at this level, else at any level.
std::string suggest_command(const std::string& word, CLI::App& at) {
  if (const std::string near = nearest_word(word, command_names(at)); !near.empty())
    return did_you_mean(near);
  for (const auto& [foreign, ours] : kForeignCommands)
    if (word == foreign) return did_you_mean(concat("trireme ", ours));
  CLI::App* top = &at;
  while (top->get_parent() != nullptr) top = top->get_parent();
  std::vector<std::string> names, last_words;
  add_full_names(*top, names);
  for (const std::string& name : names) last_words.push_back(name.substr(name.rfind(' ') + 1));
  const std::string near = nearest_word(word, last_words);
  if (near.empty()) return "";
  const auto found = std::ranges::find(last_words, near) - last_words.begin();
  return did_you_mean(concat("trireme ", names[static_cast<size_t>(found)]));
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

std::string problem(CLI::App& at, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = at.remaining();
  const std::vector<std::string> commands = command_names(at);
  if (!unknown.empty() && unknown.front().starts_with("-")) {
    const std::string name = unknown.front().substr(0, unknown.front().find('='));
    return concat("unknown option \"", name, "\"", suggest_option(name, at));
  }
  if (!unknown.empty() && !commands.empty())
    return concat("unknown command \"", unknown.front(), "\"",
                  suggest_command(unknown.front(), at));
  if (!unknown.empty()) return concat("unexpected argument \"", unknown.front(), "\"");
  if (!commands.empty()) return concat("needs a command: ", joined(commands));
  return error.what();
}

}  // namespace

std::string suggest_option(const std::string& name, CLI::App& command) {
  return did_you_mean(nearest_word(name, option_names(command)));
}

std::string explain_parse_error(CLI::App& app, const CLI::ParseError& error) {
  CLI::App& at = deepest(app);
  const std::string name = full_name(at);
  std::string line = concat(name, ": ", problem(at, error), " (see ", name, " --help)");
  // CLI11 ends some of its messages with a line feed.
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

}  // namespace trireme
