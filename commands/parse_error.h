// One line for a command line that cannot be used: what is wrong, the nearest known word, where
// help is.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace trireme {

// `app` is the tree whose parse() threw `error`.
std::string explain_parse_error(CLI::App& app, const CLI::ParseError& error);

// "; did you mean "--x"?" where an option of the command is close enough to be what was meant, else
// nothing.
std::string suggest_option(const std::string& name, CLI::App& command);

}  // namespace trireme
