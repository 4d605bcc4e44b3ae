// trireme data prepare | train-tokenizer | inspect
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_data_command(CLI::App& parent);

}  // namespace trireme
