// Command `trireme checkpoint` with its subcommands: inspect and verify, those of
// commands/checkpoint/checkpoint_copy.h, and quantize.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

CLI::App* add_checkpoint_command(CLI::App& parent);

}  // namespace trireme
