// Algorithms that a rank's GPU has chosen for its matrix products by time (cuda.autotune), kept in
// cuda.gemm_algorithms/rank-00000.txt: a run that reads them has the same bits again.
#pragma once

#include <string>

#include "engine/device/context.h"

namespace trireme {

// Keeps choices from here on, beginning with those of the file, where there is one. InputError
// where they are of another device or library.
void open_gemm_algorithms(const std::string& directory, int rank, cuda::Context& gpu);
// Replaces the file, and makes the folder.
void save_gemm_algorithms(const std::string& directory, int rank, const cuda::Context& gpu);

}  // namespace trireme
