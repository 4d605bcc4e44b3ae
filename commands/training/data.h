// Command `trireme data` with its subcommands prepare, train-tokenizer and inspect.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_data_command(CLI::App& parent);

}  // namespace trireme
