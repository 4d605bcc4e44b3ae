// The parameters of one rank: its boxes of logical tensors, laid out in flat blocks.
//
// Values, gradients and (in optim/) every optimizer state are flat ranges with the same element
// offsets, so that all-reduce buckets, fused updates, norms and checkpoint shards are slices of
// them. A *block* (the embeddings, one transformer layer, the head) is a contiguous range of each
// *region*; a region holds what is reduced over the same ranks: first everything dense, then the
// experts, and behind what is trained the same of what is frozen. Frozen parameters have values,
// and no gradients or states. Logical tensors that one product reads together (q, k, v; gate, up)
// lie without a gap, so that the fused matrix is a view.
//
// The ranks that hold the same parameters may divide these arrays among them (ZeRO, Rajbhandari et
// al. 2020; docs/design/zero.md). A block is cut into *tiles*; of each tile, rank i of the region's
// N ranks owns piece_of(size, N, i), and its pieces of all tiles, stored one after the other, are
// its shard. Every array is either whole or such a shard; a ShardMap says where its elements are,
// and the code that uses them does not ask which it is.
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
#include "parallel/block_buffers.h"
#include "parallel/layout.h"

namespace trireme {

struct Groups;
class BlockGather;
class PackedWeights;
class BlockWeights;
struct BlockMatrix;
enum class BlockFormat : uint8_t;  // engine/ops/block_weight.h
struct Ctx;

enum class InitKind { kZeros, kOnes, kNormal };

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
  bool adapter = false;  // added by add_adapter()
  bool linear = false;   // a weight that only products read, each time all of it
  bool head = false;     // the matrix of the logits, which may be the embedding's table too
  bool packed = false;   // kept in fewer bits: set by the store, see PackingConfig
  // Holders of this box among the ranks of different tp, etp and pp index, and this rank's number
  // among them: number 0 counts in the gradient norm and writes the checkpoint.
  int copies = 1;
  int copy = 0;

  Shape local_shape() const;  // of the box
  // Where the elements of the flattened box lie in the flattened logical tensor.
  ElementIndex element_index() const;
};

using ParamHandle = int;  // index into the list

// Adapters that layers are to add to a list; the room that defines the adapters derives from it.
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

  // While a plan is set everything is frozen that add() adds, and add_adapter() adds what is
  // trained.
  void set_adapters(const AdapterPlan* plan) { adapters_ = plan; }
  const AdapterPlan* adapters() const { return adapters_; }
  ParamHandle add_adapter(ParameterSpec spec);

 private:
  std::vector<ParameterSpec> specs_;
  const AdapterPlan* adapters_ = nullptr;
};

// A part of a block that is divided among ranks on its own. Usually all of the block's region; a
// table that another pipeline stage holds too is a tile, so that its shards are alike on both
// stages.
struct Tile {
  FlatRange range;
  int block = 0;
  Region region = Region::kDense;
};

// What is divided among the ranks that hold the same parameters.
struct Sharding {
  int stage = 0;        // 1: optimizer state; 2: gradients too; 3: values too
  Place dense, expert;  // Layout::data and Layout::edp
  const Place& of(Region region) const { return is_dense(region) ? dense : expert; }
};

// Which weights are kept in fewer bits.
struct PackingConfig {
  // In 4 bits (parallel/packed_weights.h): the frozen ones that are linear.
  bool enabled = false;
  bool double_quantization = false;
  // Of inference, instead: in blocks (parallel/block_weights.h) all that are linear, and the head
  // in 8 bits.
  std::optional<BlockFormat> blocks = {};
  bool operator==(const PackingConfig&) const = default;
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
  ParameterStore(const ParameterList& list, DType dtype, const Sharding& sharding = {},
                 const PackingConfig& packing = {});
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;
  // From stage 2 on, blocks are brought together in the arena of `ctx`; to be called before the
  // first planning run. prefetch: values of the next block are gathered while one is at work.
  void attach(const Groups& groups, Ctx& ctx, bool prefetch);
  // Where the context computes. Gradients are float32, or float64 for float64 parameters.
  void allocate(Ctx& ctx, bool with_gradients);

  const std::vector<ParameterSpec>& specs() const { return specs_; }
  DType dtype() const { return dtype_; }
  DType gradient_dtype() const { return dtype_ == DType::kF64 ? DType::kF64 : DType::kF32; }
  int64_t flat_size() const { return flat_size_; }    // elements, with alignment padding
  int64_t parameter_count() const { return count_; }  // elements of the boxes
  int blocks() const { return static_cast<int>(block_ranges_[0].size()); }
  // Blocks follow one another in their region, regions in the flat range; alignment padding belongs
  // to the block before it.
  FlatRange block_range(int block, Region region = Region::kDense) const {
    return block_ranges_[static_cast<size_t>(region)][static_cast<size_t>(block)];
  }
  FlatRange region_range(Region region) const;
  // Trained ranges of a block whose gradients are partial sums, in the order of the flat range.
  std::vector<PartialRange> partial_ranges(int block) const;
  // Trained ranges that count in the gradient norm on this rank: all but those of copies.
  std::vector<FlatRange> counted_ranges() const;
  bool trained(ParamHandle h) const { return is_trained(specs_[static_cast<size_t>(h)].region); }
  FlatRange range(ParamHandle h) const { return ranges_[static_cast<size_t>(h)]; }

  const Sharding& sharding() const { return sharding_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  std::vector<Tile> block_tiles(int block) const;
  // What this rank owns of the flat range, whether or not anything is divided.
  const ShardMap& owned() const { return owned_; }
  // What it stores of each array: everything, or what it owns; of states and gradients only what is
  // trained, which lies first.
  const ShardMap& state_map() const { return sharding_.stage >= 1 ? owned_trained_ : trained_; }
  const ShardMap& gradient_map() const { return sharding_.stage >= 2 ? owned_trained_ : trained_; }
  const ShardMap& value_map() const { return sharding_.stage >= 3 ? owned_ : whole_; }
  int64_t value_bytes() const { return value_map().size() * dtype_size(dtype_) + packed_bytes(); }
  int64_t packed_bytes() const;  // of these in fewer bits
  int64_t gradient_bytes() const { return gradient_map().size() * dtype_size(gradient_dtype()); }

  // Stage 3: the values of `block` can be used until release(); `next` (-1: none) is the block
  // acquired next. Below, nothing happens. Collective over the ranks of the block's regions.
  void acquire(int block, int next = -1);
  void release(int block);
  int block_of(ParamHandle h) const { return specs_[static_cast<size_t>(h)].block; }

  // Parameters in fewer bits have an empty flat range and no value(): pack() takes their elements,
  // of any box of the logical tensor from `begin` on, float32 on the host; unpack() writes what
  // value() would show.
  using ReadBox =
      std::function<void(const TensorBox& box, int64_t begin, const Tensor& destination)>;
  bool packed(ParamHandle h) const { return specs_[static_cast<size_t>(h)].packed; }
  void pack(Ctx& ctx, ParamHandle h, const ReadBox& read);
  void unpack(Ctx& ctx, ParamHandle first, ParamHandle last, const Tensor& w) const;
  Shape shape(ParamHandle first, ParamHandle last) const;  // of value()
  // In blocks: the parts of the fused matrix, rows stacked, for products that read them as they
  // are.
  bool in_blocks(ParamHandle h) const { return blocks_ != nullptr && packed(h); }
  std::vector<BlockMatrix> blocks(ParamHandle first, ParamHandle last) const;

  // A parameter, or the fused matrix of `first` .. `last` (rows stacked).
  Tensor value(ParamHandle first, ParamHandle last) const;
  Tensor value(ParamHandle h) const { return value(h, h); }
  GradientSlot gradient(ParamHandle first, ParamHandle last);
  GradientSlot gradient(ParamHandle h) { return gradient(h, h); }
  // Takes the memory of h's block now, as its first gradient() would: for callers that may write it
  // where no planned allocation can be made (Arena::Region).
  void expect_gradients(ParamHandle h);
  // What this rank stores, as value_map() and gradient_map() say.
  Tensor flat_values() const;
  Tensor flat_gradients() const;
  // From stage 2 on a block's gradients of one micro-batch are whole, in the arena, between their
  // first gradient() and take_gradients(); before, they are in flat_gradients(). (n), inside one
  // region.
  Tensor whole_gradients(int block, const FlatRange& part) const;
  WholeBlock take_gradients(int block);

  // Values keyed by (seed, name, index in the logical tensor): the same in every layout. frozen: of
  // these too.
  void initialize(Ctx& ctx, uint64_t seed, bool frozen = true);
  void begin_gradients();                      // the next write of each gradient overwrites
  void finish_gradients(Ctx& ctx, int block);  // zeroes what no one wrote in the block
  // Which parameters' gradients were written since begin_gradients(): for work that is recorded,
  // and writes them again without asking for them.
  const std::vector<bool>& written() const { return written_; }
  void set_written(const std::vector<bool>& written) { written_ = written; }

  // The view of a whole flat tensor (values, gradients or a state) that holds parameter h, with the
  // shape of its box.
  Tensor view_in(const Tensor& flat, ParamHandle h) const;
  // "name[index]" of a flat element, index in the flattened logical tensor, for messages.
  std::string element_name(int64_t flat_index) const;

 private:
  void place(Region region);
  void cut_tiles();
  void open_gradients(int block);
  void check_fused(ParamHandle first, ParamHandle last) const;
  std::vector<ParameterSpec> specs_;
  DType dtype_;
  std::vector<FlatRange> ranges_;
  std::vector<ParamHandle> by_offset_;  // handles in the order of the flat range
  std::array<std::vector<FlatRange>, kRegions> block_ranges_;
  std::vector<bool> written_;
  Sharding sharding_;
  std::vector<Tile> tiles_;  // in the order of the flat range
  ShardMap whole_, owned_;
  ShardMap trained_, owned_trained_;               // the trained part of them
  Arena* arena_ = nullptr;                         // of the blocks below
  std::unique_ptr<BlockGather> gather_;            // stage 3
  std::unique_ptr<PackedWeights> packed_;          // where anything is
  std::unique_ptr<BlockWeights> blocks_;           // likewise
  std::unique_ptr<BlockBuffers> block_gradients_;  // stages 2 and 3
  int64_t flat_size_ = 0;
  int64_t count_ = 0;
  Buffer values_;
  Buffer gradients_;
};

}  // namespace trireme
