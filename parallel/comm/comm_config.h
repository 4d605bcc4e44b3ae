// Section "comm" of a run's configuration: how ranks exchange data. Values as in CommOptions
// (communicator.h) where the names agree.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct CommConfig {
  std::string backend = "auto";         // auto, mpi, tcp
  std::string algorithm = "auto";       // auto, ring, shm
  std::string device_backend = "auto";  // auto, nccl, staged
  int64_t ranks_per_node = 0;           // 0: the real hosts; else virtual nodes of this many ranks
  int64_t bucket_bytes = 25 << 20;      // gradient bucket: 4 bytes x comm.bucket_size
  bool overlap = true;                  // reduce gradients during backward
  double timeout_s = 600;
};

}  // namespace trireme
