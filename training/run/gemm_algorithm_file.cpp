#include "training/run/gemm_algorithm_file.h"

#include <cstdio>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/io/atomic_file.h"
#include "engine/ops/gemm/gemm_algorithms.h"

namespace trireme {
namespace {

std::string path_of(const std::string& directory, int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%05d.txt", rank);
  return (std::filesystem::path(directory) / name).string();
}

}  // namespace

void open_gemm_algorithms(const std::string& directory, int rank, cuda::Context& gpu) {
  const std::string path = path_of(directory, rank);
  GemmAlgorithms here = cuda::algorithms_of(gpu);
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    GemmAlgorithms kept = read_gemm_algorithms(read_small_file(path), path);
    if (kept.device != here.device || kept.version != here.version)
      fail_input(path, " has algorithms for ", kept.device, " with ", kept.version, ", expected ",
                 here.device, " with ", here.version,
                 ": give cuda.gemm_algorithms another folder, or remove the file to choose again");
    here = std::move(kept);
  }
  cuda::keep_algorithms(gpu, std::move(here));
}

void save_gemm_algorithms(const std::string& directory, int rank, const cuda::Context& gpu) {
  const GemmAlgorithms* kept = cuda::kept_algorithms(gpu);
  if (kept == nullptr) return;
  make_directories(directory);
  write_file_atomically(path_of(directory, rank), gemm_algorithms_text(*kept));
}

}  // namespace trireme
