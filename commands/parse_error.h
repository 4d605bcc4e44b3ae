// One-line message for an invalid command line: the error, the nearest known word, and where to
// find help.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace trireme {

// `app` is the tree whose parse() threw `error`.
std::string explain_parse_error(CLI::App& app, const CLI::ParseError& error);

// "; did you mean "--x"?" if an option of the command is similar enough, else "".
std::string suggest_option(const std::string& name, CLI::App& command);

}  // namespace trireme
