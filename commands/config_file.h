// Options of a command in a JSON file instead of a long command line: an object whose keys are the
// options' names, with _ or - between words.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace trireme {

// Adds --config FILE. Call before any other option is added: options are read in that order. The
// command line takes precedence over the file. true sets a flag, false does not; an array gives an
// option several times; an object is passed as JSON text. InputError lists all keys that are not
// options and all values of an impossible type; an option's own checks come after that.
void add_config_file_option(CLI::App& command);

}  // namespace trireme
