// Option --config FILE, which reads the options of a command from a JSON file: an object whose keys
// are the names of the options, with _ or - between words.
#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace trireme {

// Adds --config FILE. Call before adding any other option, since options are processed in this
// order. Options of the command line take precedence over the file. A flag is true or false; an
// array sets an option several times; an object is passed as JSON text. InputError lists all keys
// that are not options and all values of a wrong type. The checks of the options run afterwards.
void add_config_file_option(CLI::App& command);

}  // namespace trireme
