#include "parallel/mesh.h"

namespace trireme {
namespace {

constexpr std::array<MeshDim, kMeshDims> kDims{MeshDim::kPipeline, MeshDim::kData,
                                               MeshDim::kContext, MeshDim::kTensor};

size_t at(MeshDim dim) { return static_cast<size_t>(dim); }

}  // namespace

const char* mesh_dim_name(MeshDim dim) {
  switch (dim) {
    case MeshDim::kPipeline: return "pp";
    case MeshDim::kData: return "dp";
    case MeshDim::kContext: return "cp";
    case MeshDim::kTensor: return "tp";
  }
  TRIREME_UNREACHABLE("mesh dim ", static_cast<int>(dim));
}

ProcessMesh::ProcessMesh(const std::array<int, kMeshDims>& sizes, int world_size) : sizes_(sizes) {
  int64_t product = 1;
  std::string spelled;
  for (MeshDim dim : kDims) {
    const int size_along = sizes[at(dim)];
    if (size_along < 1)
      fail_input("parallel size ", mesh_dim_name(dim), "=", size_along, " must be at least 1");
    product = checked_mul(product, size_along);
    spelled += concat(spelled.empty() ? "" : " x ", mesh_dim_name(dim), "=", size_along);
  }
  if (product != world_size)
    fail_input("the parallel layout ", spelled, " needs ", product, " ranks but the run has ",
               world_size, "; change the layout or start ", product, " ranks");
}

int ProcessMesh::world_size() const {
  int product = 1;
  for (int s : sizes_) product *= s;
  return product;
}

int ProcessMesh::index(int rank, MeshDim dim) const {
  TRIREME_CHECK(rank >= 0 && rank < world_size(), "rank ", rank, " of ", world_size());
  for (size_t d = kMeshDims - 1; d > at(dim); --d) rank /= sizes_[d];
  return rank % size(dim);
}

int ProcessMesh::rank_of(const std::array<int, kMeshDims>& indices) const {
  int rank = 0;
  for (MeshDim dim : kDims) {
    const int i = indices[at(dim)];
    TRIREME_CHECK(i >= 0 && i < size(dim), mesh_dim_name(dim), " index ", i, " of ", size(dim));
    rank = rank * size(dim) + i;
  }
  return rank;
}

std::vector<int> ProcessMesh::members(int rank, MeshDim dim) const {
  std::array<int, kMeshDims> indices{};
  for (MeshDim d : kDims) indices[at(d)] = index(rank, d);
  std::vector<int> ranks;
  for (int i = 0; i < size(dim); ++i) {
    indices[at(dim)] = i;
    ranks.push_back(rank_of(indices));
  }
  return ranks;
}

int ProcessMesh::group_number(int rank, MeshDim dim) const {
  int number = 0;
  for (MeshDim d : kDims)
    if (d != dim) number = number * size(d) + index(rank, d);
  return number;
}

std::string ProcessMesh::group_name(int rank, MeshDim dim) const {
  return concat(mesh_dim_name(dim), " group ", group_number(rank, dim), " of ", group_count(dim));
}

MeshGroups::MeshGroups(Communicator& world, const ProcessMesh& mesh) {
  TRIREME_CHECK(world.size() == mesh.world_size(), "mesh of ", mesh.world_size(), " ranks over ",
                world.size());
  for (MeshDim dim : kDims)
    groups[at(dim)] =
        world.split(mesh.group_number(world.rank(), dim), mesh.index(world.rank(), dim),
                    mesh.group_name(world.rank(), dim));
}

}  // namespace trireme
