// The parameters of one rank: a list of logical tensors laid out in flat blocks.
//
// Values, gradients and (in optim/) every optimizer state are flat ranges with the same element
// offsets, so that all-reduce buckets, fused updates, norms and checkpoint shards are slices of them.
// A *block* (the embeddings, one transformer layer, the head) is a contiguous range: the unit of
// gradient reduction. Logical tensors that one product reads together (q, k, v; gate, up) lie
// without a gap, so that the fused matrix is a view.
#pragma once

#include <string>
#include <vector>

#include "engine/core/memory.h"
#include "engine/core/random.h"

namespace trireme {

enum class InitKind { kZeros, kOnes, kNormal };

struct ParameterSpec {
  std::string name;  // HuggingFace's name: "model.layers.0.mlp.up_proj.weight"
  Shape shape;       // logical, global; a linear weight is (out, in)
  InitKind init = InitKind::kZeros;
  double init_std = 0.0;  // of kNormal
  bool decay = false;     // weight decay applies
  int block = 0;
  bool fused_with_previous = false;  // no padding before it: one matrix with its predecessor
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
  int64_t parameter_count() const { return count_; }  // elements of the logical tensors
  int blocks() const { return static_cast<int>(block_ranges_.size()); }
  FlatRange block_range(int block) const { return block_ranges_[static_cast<size_t>(block)]; }
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

  void initialize(uint64_t seed, int threads);  // values keyed by (seed, name, index)
  void begin_gradients();                       // the next write of each gradient overwrites
  void finish_gradients(int block);             // zeroes what no one wrote in the block

  // The view of `flat` (a range-shaped tensor: values, gradients or a state) that holds parameter h.
  Tensor view_in(const Tensor& flat, ParamHandle h) const;
  // "name[index]" of a flat element, for messages.
  std::string element_name(int64_t flat_index) const;

 private:
  void check_fused(ParamHandle first, ParamHandle last) const;
  Shape fused_shape(ParamHandle first, ParamHandle last) const;
  std::vector<ParameterSpec> specs_;
  DType dtype_;
  std::vector<FlatRange> ranges_;
  std::vector<FlatRange> block_ranges_;
  std::vector<bool> written_;
  int64_t flat_size_ = 0;
  int64_t count_ = 0;
  Buffer values_;
  Buffer gradients_;
};

}  // namespace trireme
