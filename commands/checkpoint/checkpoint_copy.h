// trireme checkpoint export | import | convert | diff: copies of models between our format and
// third-party formats, and comparison.
#pragma once

namespace CLI {
class App;
}

namespace trireme {

void add_checkpoint_copy_commands(CLI::App& checkpoint);

}  // namespace trireme
