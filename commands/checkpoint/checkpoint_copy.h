// trireme checkpoint export | import | convert | diff: models between our format and those of
// others.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

void add_checkpoint_copy_commands(CLI::App& checkpoint);

}  // namespace trireme
