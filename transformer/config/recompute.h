// Activation recomputation: which activations of a block's forward pass are kept for backward. All
// three modes give bit-identical results.
#pragma once

namespace trireme {

enum class Recompute {
  kNone,       // keep everything backward reads
  kSelective,  // norm outputs and MLP activations are computed again: cheap
  kFull,       // only the block's input is kept; the whole forward runs again
};

}  // namespace trireme
