// Process mesh: the ranks of a run as a pp x dp x cp x tp array.
//
// Row-major with tp fastest, because tensor-parallel ranks talk most and should be neighbours:
//   rank = ((pp_index * dp + dp_index) * cp + cp_index) * tp + tp_index
#pragma once

#include "parallel/comm/communicator.h"

namespace trireme {

enum class MeshDim : uint8_t { kPipeline, kData, kContext, kTensor };
inline constexpr int kMeshDims = 4;
const char* mesh_dim_name(MeshDim dim);  // "pp", "dp", "cp", "tp"

class ProcessMesh {
 public:
  // Sizes of the four dims in the order of MeshDim; each at least 1. InputError if their product
  // is not world_size.
  ProcessMesh(const std::array<int, kMeshDims>& sizes, int world_size);

  int world_size() const;
  int size(MeshDim dim) const { return sizes_[static_cast<size_t>(dim)]; }
  int index(int rank, MeshDim dim) const;  // coordinate of a rank along dim
  int rank_of(const std::array<int, kMeshDims>& indices) const;
  // World ranks that differ from `rank` only along dim, in the order of their index; `rank` included.
  std::vector<int> members(int rank, MeshDim dim) const;
  int group_count(MeshDim dim) const { return world_size() / size(dim); }
  int group_number(int rank,
                   MeshDim dim) const;  // which of the group_count(dim) groups, by first member
  std::string group_name(int rank, MeshDim dim) const;  // "dp group 0 of 2"

 private:
  std::array<int, kMeshDims> sizes_;
};

// This rank's communicator along each dim. Collective over the world; a dim of size 1 gets a group
// of one rank, so that callers need no special case.
struct MeshGroups {
  MeshGroups(Communicator& world, const ProcessMesh& mesh);
  Communicator& operator[](MeshDim dim) const { return *groups[static_cast<size_t>(dim)]; }
  std::array<std::unique_ptr<Communicator>, kMeshDims> groups;
};

}  // namespace trireme
