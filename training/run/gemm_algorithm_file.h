// File of the GEMM algorithms that cuda.autotune chose on a rank's GPU by timing them:
// rank-00000.txt in the folder cuda.gemm_algorithms. A run that reads it gives the same bits again.
#pragma once

#include <string>

#include "engine/device/context.h"

namespace trireme {

// Loads the choices of the file, if it exists, and starts recording further ones. InputError if the
// file is from another device or library version.
void open_gemm_algorithms(const std::string& directory, int rank, cuda::Context& gpu);
// Replaces the file by all recorded choices; creates the folder if missing.
void save_gemm_algorithms(const std::string& directory, int rank, const cuda::Context& gpu);

}  // namespace trireme
