// What the backward pass keeps of the forward pass of a block. All three give bit-identical
// results.
#pragma once

namespace trireme {

enum class Recompute {
  kNone,       // keep everything backward reads
  kSelective,  // norm outputs and MLP activations are computed again: cheap
  kFull,       // only the block's input is kept; the whole forward runs again
};

}  // namespace trireme
