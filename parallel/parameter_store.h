// Parameters of one rank: its boxes of logical tensors, laid out in flat blocks.
//
// Values, gradients and (in optim/) every optimizer state are flat ranges with the same element
// offsets, so that all-reduce buckets, fused updates, norms and checkpoint shards are slices of
// them. A *region* holds the parameters whose gradients are reduced over the same ranks: first the
// trained dense ones, then the trained experts, then the frozen dense ones and the frozen experts.
// A *block* (the embeddings, one transformer layer, the head) is a contiguous range of each region.
// Frozen parameters have values, but no gradients or states. Logical tensors that one product reads
// together (q, k, v; gate, up) are adjacent without a gap, so that the fused matrix is a view.
//
// Ranks that hold the same parameters may shard these arrays (ZeRO, Rajbhandari et al. 2020;
// docs/design/zero.md). A block is cut into *tiles*. Rank i of the region's N ranks owns
// piece_of(size, N, i) of each tile (parallel/comm/collectives/collectives.h); its pieces of all
// tiles, stored one after the other, are its shard. Every array is either whole or such a shard. A
// ShardMap maps flat elements to storage offsets, so that the code that uses an array need not
// distinguish the two.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core/element_index.h"
#include "engine/core/memory.h"
#include "engine/core/random.h"
#include "engine/io/tensor_box.h"
#include "parallel/layout.h"
#include "parallel/store_block_buffers.h"
#include "parallel/store_tile.h"
#include "parallel/tile_code.h"

namespace trireme {

struct Groups;
class StoreBlockGather;
class PackedWeights;
class QuantizedWeights;
struct QuantizedMatrix;
enum class BlockFormat : uint8_t;  // engine/ops/quantized/quantized_weight.h
struct Ctx;

enum class InitKind { kZeros, kOnes, kNormal };

// Ranks that each compute only a part of a gradient, even for their own micro-batch. Their parts
// must be added before the gradient is reduced over the region's ranks.
enum class PartialSum : uint8_t {
  kNone,
  kTensor,      // tensor-parallel ranks with different tokens (sequence parallelism)
  kKvCopies,    // ranks with the same key/value heads and different query heads
  kTiedStages,  // embedding table of the first stage and head of the last
};

struct ParameterSpec {
  std::string name;    // HuggingFace's name: "model.layers.0.mlp.up_proj.weight"
  Shape shape;         // logical, global; a linear weight is (out, in)
  TensorBox box = {};  // this rank's part; empty: the whole tensor
  InitKind init = InitKind::kZeros;
  double init_std = 0.0;             // for kNormal
  bool decay = false;                // weight decay applies
  int block = 0;                     // index of the parameter's block, ascending in a ParameterList
  bool fused_with_previous = false;  // no padding before it: forms one matrix with its predecessor
  Region region = Region::kDense;
  PartialSum partial = PartialSum::kNone;
  bool adapter = false;  // added by add_adapter()
  bool linear = false;   // read only by products, always as a whole
  bool head = false;     // logits matrix; may also be the embedding table
  bool packed = false;   // quantized (PackingConfig); set by the store
  // Number of ranks, along tp, etp and pp, that hold this box, and this rank's index among them.
  // Copy 0 counts in the gradient norm and writes the checkpoint.
  int copies = 1;
  int copy = 0;

  Shape local_shape() const;  // shape of the box
  // Maps elements of the flattened box to elements of the flattened logical tensor.
  ElementIndex element_index() const;
};

using ParamHandle = int;  // index into ParameterList::specs()

// Base class of the description of the adapters that layers add to a list.
struct AdapterPlan {
  AdapterPlan() = default;
  AdapterPlan(const AdapterPlan&) = delete;
  AdapterPlan& operator=(const AdapterPlan&) = delete;
  virtual ~AdapterPlan() = default;
};

class ParameterList {
 public:
  ParamHandle add(ParameterSpec spec);
  const std::vector<ParameterSpec>& specs() const { return specs_; }

  // While a plan is set, add() adds frozen parameters, and add_adapter() adds the trained ones.
  void set_adapters(const AdapterPlan* plan) { adapters_ = plan; }
  const AdapterPlan* adapters() const { return adapters_; }
  ParamHandle add_adapter(ParameterSpec spec);

 private:
  std::vector<ParameterSpec> specs_;
  const AdapterPlan* adapters_ = nullptr;
};

// ZeRO stage, and this rank among the ranks that hold the same parameters of a region.
struct Sharding {
  int stage = 0;  // sharded: 0: nothing; 1: optimizer state; 2: gradients too; 3: values too
  GroupCoord dense, expert;  // Layout::data and Layout::edp
  const GroupCoord& of(Region region) const { return is_dense(region) ? dense : expert; }
};

// Choice of the weights that are stored quantized.
struct PackingConfig {
  // Frozen linear weights in 4 bits (parallel/packed_weights.h).
  bool nf4 = false;
  bool double_quantization = false;  // with nf4: the scales in 8 bits too
  // Inference only, instead of nf4, below stage 3: block format of all linear weights but those of
  // adapters (parallel/quantized_weights.h); the head is in 8 bits.
  std::optional<BlockFormat> blocks = {};
  bool operator==(const PackingConfig&) const = default;
};

// Gathers of stage 3.
struct GatherOptions {
  bool prefetch = true;  // gathers the values of the next block while the current one computes
  TileCodes codes = {};
  int copy_ranks = 1;  // neighbours that divide a second copy for backward; 1: none
};

struct PartialRange {
  PartialSum sum = PartialSum::kNone;
  FlatRange range;
};

// Destination of a gradient. accumulate: false for the first write since begin_gradients() or
// take_gradients().
struct GradientSlot {
  Tensor grad;
  bool accumulate = false;
};

class ParameterStore {
 public:
  // Lays out the list. Allocates nothing before allocate(), so that memory can be planned first.
  ParameterStore(const ParameterList& list, DType dtype, const Sharding& sharding = {},
                 const PackingConfig& packing = {});
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;
  // Required from stage 2 on, before the first planning run: whole blocks are then allocated in the
  // arena of `ctx`. Collective over the ranks of each region.
  void attach(const Groups& groups, Ctx& ctx, GatherOptions options);
  // Allocates in the context's memory. Gradients are float32, or float64 for float64 parameters.
  void allocate(Ctx& ctx, bool with_gradients);

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  DType dtype() const { return dtype_; }
  DType gradient_dtype() const { return dtype_ == DType::kF64 ? DType::kF64 : DType::kF32; }
  int64_t flat_size() const { return flat_size_; }    // elements, with alignment padding
  int64_t parameter_count() const { return count_; }  // elements of the boxes
  int blocks() const { return static_cast<int>(block_ranges_[0].size()); }
  // Blocks are consecutive within their region, regions within the flat range; alignment padding
  // belongs to the block before it.
  FlatRange block_range(int block, Region region = Region::kDense) const {
    return block_ranges_[static_cast<size_t>(region)][static_cast<size_t>(block)];
  }
  FlatRange region_range(Region region) const;
  // Trained ranges of a block whose gradients are partial sums, in ascending order.
  std::vector<PartialRange> partial_ranges(int block) const;
  // Trained ranges that count in the gradient norm on this rank: the parameters of which it holds
  // copy 0, joined across the alignment padding between them, which is zero.
  std::vector<FlatRange> counted_ranges() const;
  bool trained(ParamHandle h) const { return is_trained(specs_[static_cast<size_t>(h)].region); }
  FlatRange range(ParamHandle h) const { return ranges_[static_cast<size_t>(h)]; }

  const Sharding& sharding() const { return sharding_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  std::vector<Tile> block_tiles(int block) const;
  // This rank's pieces of the flat range, whether or not any array is sharded.
  const ShardMap& owned() const { return owned_; }
  // Stored part of each array: the whole range or the owned pieces. States and gradients cover only
  // the trained regions, which are first.
  const ShardMap& state_map() const { return sharding_.stage >= 1 ? owned_trained_ : trained_; }
  const ShardMap& gradient_map() const { return sharding_.stage >= 2 ? owned_trained_ : trained_; }
  const ShardMap& value_map() const { return sharding_.stage >= 3 ? owned_ : whole_; }
  int64_t value_bytes() const { return value_map().size() * dtype_size(dtype_) + packed_bytes(); }
  int64_t packed_bytes() const;  // of the quantized parameters
  int64_t copy_bytes() const;    // of the second copy, after a planning run
  int64_t gradient_bytes() const { return gradient_map().size() * dtype_size(gradient_dtype()); }

  // Stage 3: makes the values of `block` available until release(); `next` is acquired next. With
  // codes they are the decoded ones, on the rank that stores them too. Collective over the ranks of
  // the block's regions. No-op below stage 3.
  void acquire(StoreBlockPass block, StoreBlockPass next = {});
  void release(int block);
  int block_of(ParamHandle h) const { return specs_[static_cast<size_t>(h)].block; }

  // Quantized parameters have an empty flat range and no value(). ReadBox fills `destination`
  // (float32, host memory) with the elements of a box of the logical tensor, starting at element
  // `begin` of the flattened box. pack() quantizes the elements that it reads through `read`;
  // InputError if the format cannot represent one of them. unpack() dequantizes to w, which has
  // shape(first, last) and any float type.
  using ReadBox =
      std::function<void(const TensorBox& box, int64_t begin, const Tensor& destination)>;
  bool packed(ParamHandle h) const { return specs_[static_cast<size_t>(h)].packed; }
  void pack(Ctx& ctx, ParamHandle h, const ReadBox& read);
  void unpack(Ctx& ctx, ParamHandle first, ParamHandle last, const Tensor& w) const;
  Shape shape(ParamHandle first, ParamHandle last) const;  // of value()
  // Whether a parameter is in block format, and the parts of a fused matrix in that format, rows
  // stacked, for products that read blocks directly.
  bool in_blocks(ParamHandle h) const { return blocks_ != nullptr && packed(h); }
  std::vector<QuantizedMatrix> quantized_matrices(ParamHandle first, ParamHandle last) const;

  // View of the values of one parameter, or of the fused matrix `first` .. `last` (rows stacked).
  // In stage 3 only while the block is acquired.
  Tensor value(ParamHandle first, ParamHandle last) const;
  Tensor value(ParamHandle h) const { return value(h, h); }
  // Destination of the gradient of the same parameters; marks it as written.
  GradientSlot gradient(ParamHandle first, ParamHandle last);
  GradientSlot gradient(ParamHandle h) { return gradient(h, h); }
  // From stage 2 on, allocates the gradients of h's block as its first gradient() would, if h is
  // trained. For callers whose first gradient() may be inside an Arena::Region that the gradients
  // must outlive.
  void expect_gradients(ParamHandle h);
  // Stored elements of this rank, mapped by value_map() and gradient_map().
  Tensor flat_values() const;
  Tensor flat_gradients() const;
  // Whole gradients (n) of a part of a block, inside one region. From stage 2 on they are the
  // gradients of one micro-batch, in the arena from the block's first gradient() to
  // take_gradients(). Below stage 2 they are in flat_gradients().
  Tensor whole_gradients(int block, const FlatRange& part) const;
  // From stage 2 on: moves the block's whole gradients to the caller and marks them as not written.
  WholeStoreBlock take_gradients(int block);

  // Sets the initial values. Random ones are keyed by (seed, name, index in the logical tensor), so
  // that they are the same in every layout. frozen: initializes frozen parameters too.
  void initialize(Ctx& ctx, uint64_t seed, bool frozen = true);
  void begin_gradients();  // the next write of each gradient overwrites
  // Zeroes the gradients of `block` that are not written, and marks them as written.
  void finish_gradients(Ctx& ctx, int block);
  // Flags by handle: gradients written since begin_gradients(). A replayed graph writes gradients
  // without calling gradient(), so its flags are saved and restored.
  const std::vector<bool>& written() const { return written_; }
  void set_written(const std::vector<bool>& written) { written_ = written; }

  // View of parameter h, shaped as its box, in a flat tensor of flat_size() elements: whole values,
  // or whole gradients or states of a store without frozen parameters.
  Tensor view_in(const Tensor& flat, ParamHandle h) const;
  // "name[index]" of a flat element, index in the flattened logical tensor, for messages; "padding
  // element 12" between parameters.
  std::string element_name(int64_t flat_index) const;

 private:
  void place(Region region);
  void cut_tiles();
  void open_gradients(int block);
  void check_fused(ParamHandle first, ParamHandle last) const;
  std::vector<ParameterSpec> specs_;
  DType dtype_;
  std::vector<FlatRange> ranges_;
  std::vector<ParamHandle> by_offset_;  // handles in ascending order of flat offset
  std::vector<std::vector<ParamHandle>> block_parameters_;  // those of each block, in that order
  std::array<std::vector<FlatRange>, kRegions> block_ranges_;
  std::vector<bool> written_;
  Sharding sharding_;
  std::vector<Tile> tiles_;  // in ascending order
  ShardMap whole_, owned_;
  ShardMap trained_, owned_trained_;                    // the trained regions of the above
  Arena* arena_ = nullptr;                              // of block_gradients_ and gather_
  std::unique_ptr<StoreBlockGather> gather_;            // stage 3
  std::unique_ptr<PackedWeights> packed_;               // null: no 4-bit weights
  std::unique_ptr<QuantizedWeights> blocks_;            // null: no weights in block format
  std::unique_ptr<StoreBlockBuffers> block_gradients_;  // stages 2 and 3
  int64_t flat_size_ = 0;
  int64_t count_ = 0;
  Buffer values_;
  Buffer gradients_;
};

}  // namespace trireme
