// One-line error message for an invalid command line: what is wrong, the most similar valid word,
// and the help to read.
#pragma once

#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace trireme {

// Message for `error`, which app.parse() threw.
std::string explain_parse_error(CLI::App& app, const CLI::ParseError& error);

// Suggestion "; did you mean "--x"?" if the command has an option similar to `name` ("--y"); else
// "".
std::string suggest_option(const std::string& name, CLI::App& command);

}  // namespace trireme
