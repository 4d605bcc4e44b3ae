// The parameters of one rank: its boxes of logical tensors, laid out in flat blocks.
//
// Values, gradients and (in optim/) every optimizer state are flat ranges with the same element
// offsets, so that all-reduce buckets, fused updates, norms and checkpoint shards are slices of them.
// A *block* (the embeddings, one transformer layer, the head) is a contiguous range of each *region*;
// a region holds what is reduced over the same ranks: first everything dense, then the experts.
// Logical tensors that one product reads together (q, k, v; gate, up) lie without a gap, so that the
// fused matrix is a view.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "engine/core/memory.h"
#include "engine/core/random.h"
#include "engine/io/tensor_box.h"

namespace trireme {

enum class InitKind { kZeros, kOnes, kNormal };

// The ranks whose micro-batches a gradient is summed over: a region of the flat range.
enum class Region : uint8_t {
  kDense,   // dp x cp
  kExpert,  // edp: ranks that hold the same experts
};
inline constexpr int kRegions = 2;

// Where each rank computes only a part of a gradient, even for its own micro-batch: the ranks whose
// parts must be added before the gradient is reduced over the region's ranks.
enum class PartialSum : uint8_t {
  kNone,
  kTensor,      // each tensor-parallel rank saw other tokens (sequence parallelism)
  kKvCopies,    // key/value heads held by several ranks, each with other query heads
  kTiedStages,  // embedding table of the first stage and head of the last
};

struct ParameterSpec {
  std::string name;    // HuggingFace's name: "model.layers.0.mlp.up_proj.weight"
  Shape shape;         // logical, global; a linear weight is (out, in)
  TensorBox box = {};  // the part of it this rank holds; empty: the whole
  InitKind init = InitKind::kZeros;
  double init_std = 0.0;  // of kNormal
  bool decay = false;     // weight decay applies
  int block = 0;
  bool fused_with_previous = false;  // no padding before it: one matrix with its predecessor
  Region region = Region::kDense;
  PartialSum partial = PartialSum::kNone;
  // Holders of this box among the ranks of different tp, etp and pp index, and this rank's number
  // among them: number 0 counts in the gradient norm and writes the checkpoint.
  int copies = 1;
  int copy = 0;

  Shape local_shape() const;  // of the box
};

using ParamHandle = int;  // index into the list

class ParameterList {
 public:
  ParamHandle add(ParameterSpec spec);
  const std::vector<ParameterSpec>& specs() const { return specs_; }

 private:
  std::vector<ParameterSpec> specs_;
};

struct FlatRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

struct PartialRange {
  PartialSum sum = PartialSum::kNone;
  FlatRange range;
};

// A gradient to be written. accumulate is false for the first write of a step.
struct GradientSlot {
  Tensor grad;
  bool accumulate = false;
};

class ParameterStore {
 public:
  // Lays out the list; allocates nothing until allocate() is called, so that a plan can be made.
  ParameterStore(const ParameterList& list, DType dtype);
  // Gradients are float32, or float64 for float64 parameters.
  void allocate(bool with_gradients);

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  DType dtype() const { return dtype_; }
  DType gradient_dtype() const { return dtype_ == DType::kF64 ? DType::kF64 : DType::kF32; }
  int64_t flat_size() const { return flat_size_; }    // elements, with alignment padding
  int64_t parameter_count() const { return count_; }  // elements of the boxes
  int blocks() const { return static_cast<int>(block_ranges_[0].size()); }
  // Blocks tile their region, regions tile the flat range; alignment padding belongs to the block
  // before it.
  FlatRange block_range(int block, Region region = Region::kDense) const {
    return block_ranges_[static_cast<size_t>(region)][static_cast<size_t>(block)];
  }
  FlatRange region_range(Region region) const;
  // Ranges of a block whose gradients are partial sums, in the order of the flat range.
  std::vector<PartialRange> partial_ranges(int block) const;
  // Ranges that count in the gradient norm on this rank: all but those of copies.
  std::vector<FlatRange> counted_ranges() const;
  FlatRange range(ParamHandle h) const { return ranges_[static_cast<size_t>(h)]; }
  int64_t value_bytes() const { return flat_size_ * dtype_size(dtype_); }
  int64_t gradient_bytes() const { return flat_size_ * dtype_size(gradient_dtype()); }

  // A parameter, or the fused matrix of `first` .. `last` (rows stacked).
  Tensor value(ParamHandle first, ParamHandle last) const;
  Tensor value(ParamHandle h) const { return value(h, h); }
  GradientSlot gradient(ParamHandle first, ParamHandle last);
  GradientSlot gradient(ParamHandle h) { return gradient(h, h); }
  Tensor flat_values() const;
  Tensor flat_gradients() const;

  // Values keyed by (seed, name, index in the logical tensor): the same in every layout.
  void initialize(uint64_t seed, int threads);
  void begin_gradients();            // the next write of each gradient overwrites
  void finish_gradients(int block);  // zeroes what no one wrote in the block

  // The view of `flat` (a range-shaped tensor: values, gradients or a state) that holds parameter h,
  // with the shape of its box.
  Tensor view_in(const Tensor& flat, ParamHandle h) const;
  // "name[index]" of a flat element, for messages.
  std::string element_name(int64_t flat_index) const;

 private:
  void place(Region region);
  void check_fused(ParamHandle first, ParamHandle last) const;
  Shape fused_shape(ParamHandle first, ParamHandle last) const;
  std::vector<ParameterSpec> specs_;
  DType dtype_;
  std::vector<FlatRange> ranges_;
  std::vector<ParamHandle> by_offset_;  // handles in the order of the flat range
  std::array<std::vector<FlatRange>, kRegions> block_ranges_;
  std::vector<bool> written_;
  int64_t flat_size_ = 0;
  int64_t count_ = 0;
  Buffer values_;
  Buffer gradients_;
};

}  // namespace trireme
