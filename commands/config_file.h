// Options of a command in a JSON file, in the place of a long command line: an object whose keys
// are the options' names, with _ or - between the words.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace trireme {

// Adds --config FILE. To be called before any other option is added: options are read in their
// order. What the command line says counts before the file. true is a flag that is given, false one
// that is not; an array gives an option several times; an object is handed over as JSON text.
// InputError that lists all keys that are no option's and all values that none can take; what an
// option itself says of its value comes after that.
void add_config_file_option(CLI::App& command);

}  // namespace trireme
