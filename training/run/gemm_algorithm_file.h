// Matrix-product algorithms that a rank's GPU has chosen by timing (cuda.autotune), stored in
// cuda.gemm_algorithms/rank-00000.txt: a run that reads them has the same bits again.
#pragma once

#include <string>

#include "engine/device/context.h"

namespace trireme {

// Starts recording choices, beginning with those of the file if it exists. InputError if they are
// of another device or library.
void open_gemm_algorithms(const std::string& directory, int rank, cuda::Context& gpu);
// Replaces the file; creates the folder if missing.
void save_gemm_algorithms(const std::string& directory, int rank, const cuda::Context& gpu);

}  // namespace trireme
