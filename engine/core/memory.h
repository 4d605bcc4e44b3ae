// Owners of memory: Buffer (one block) and Arena (planned activations and scratch).
//
// Parameters, optimizer state, activations and scratch are allocated here, so that the number of
// these allocations and their bytes are known exactly: training writes allocation_count() to its
// metrics, and a test asserts that no allocation is made after the first step. OutOfMemory messages
// name allocated_bytes().
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace trireme {

int64_t allocation_count();  // non-empty Buffers that this process has allocated so far
int64_t allocated_bytes();   // bytes of the Buffers allocated now, on the host in whole pages
// Bytes of anonymous memory of this process that are in RAM now, as the kernel counts them
// (RssAnon). Linux only; elsewhere -1.
int64_t resident_anonymous_bytes();

// Location of a block: host memory, pinned host memory for asynchronous copies by a GPU, or memory
// of the calling thread's current GPU.
enum class Memory : uint8_t { kHost, kPinned, kDevice };

// One block of memory. On the host: anonymous, zero-filled by the system on first touch, page
// aligned; from 2 MiB on, 2 MiB aligned and advised to use huge pages. Pinned and device memory:
// content undefined; the GPU runtime must be loaded. A block of 0 bytes has null data and is not
// allocated. Throws OutOfMemory naming the block and its size if the allocation fails.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::string name, int64_t bytes, Memory memory = Memory::kHost);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  Memory memory() const { return memory_; }
  DeviceType device() const {
    return memory_ == Memory::kDevice ? DeviceType::kCuda : DeviceType::kCpu;
  }
  // Contiguous view of the block from byte_offset on. CheckFailed if it exceeds the block.
  Tensor tensor(DType dtype, const Shape& shape, int64_t byte_offset = 0) const;
  // Writes one byte per page, unchanged, with `threads` OpenMP threads, so that later timing and
  // residency do not depend on first touches. Host memory only.
  void touch(int threads) const;

 private:
  void map_host();
  void take_from_runtime();
  std::string name_;
  Memory memory_ = Memory::kHost;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;   // as requested
  int64_t mapped_ = 0;  // as allocated: on the host, whole pages
};

// The (allocate, release) sequence of one step with an offset for each allocation, recorded by a
// planning run of the same code. Two allocations whose lifetimes overlap never share a byte.
struct ArenaPlan {
  struct ArenaBlock {
    std::string name;
    int64_t bytes = 0;  // rounded up to the alignment
    int64_t offset = 0;
    int64_t born = 0;  // event numbers (allocations and releases): alive in [born, died)
    int64_t died = 0;
  };
  std::vector<ArenaBlock> blocks;  // in order of allocation
  int64_t capacity = 0;            // bytes the offsets need: the high-water mark after packing
  // Multi-line text for messages and --validate: the capacity and the `rows` largest blocks.
  std::string table(int rows = 20) const;
};

class Arena;

// Tensor in an Arena; releases its memory when destroyed. Layers keep these in their Saved structs:
// destroying the Saved releases the activations.
class Activation {
 public:
  Activation() = default;
  Activation(Activation&& other) noexcept;
  Activation& operator=(Activation&& other) noexcept;
  ~Activation() { reset(); }
  void reset();  // releases the memory; present() is false afterwards
  const Tensor& operator*() const { return view_; }
  const Tensor* operator->() const { return &view_; }
  operator const Tensor&() const { return view_; }  // NOLINT: used as the tensor it owns
  bool present() const { return view_.present(); }

 private:
  friend class Arena;
  Activation(Arena* arena, int64_t index, Tensor view)
      : arena_(arena), index_(index), view_(view) {}
  Arena* arena_ = nullptr;
  int64_t index_ = -1;
  Tensor view_;
};

// Three modes:
//   direct    every allocation is a Buffer of its own (tests, one-off work);
//   planning  allocations and releases are recorded; no memory is allocated: addresses are not
//             null, but unmapped, and must not be accessed;
//   planned   allocation k of the step is at the k-th offset of the plan; sizes and releases are
//             checked against the plan.
// Work whose number of allocations depends on data (experts: one product per expert with tokens)
// opens an Arena::Region around it. An arena is used by one thread.
class Arena {
 public:
  explicit Arena(std::string name, Memory memory = Memory::kHost)
      : name_(std::move(name)), memory_(memory) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Changes of mode. CheckFailed if an activation is alive, except for abandon_step().
  void begin_planning();        // direct -> planning
  ArenaPlan end_planning();     // planning -> direct; returns the packed plan
  void reserve(int64_t bytes);  // grows the block that all plans use to `bytes`; never shrinks it
  // direct -> planned. capacity() must be at least plan.capacity; the plan must outlive the step.
  void begin_step(const ArenaPlan& plan);
  void end_step();  // planned -> direct; checks that the step made exactly the planned calls
  // After an exception: ends the step or planning run and invalidates all live activations.
  void abandon_step();

  // name: for plans and messages. Content undefined. Aligned to 64 bytes on the host, 256 on a GPU.
  Activation allocate(const char* name, DType dtype, const Shape& shape);
  bool planning() const { return mode_ == Mode::kPlanning; }
  int64_t capacity() const { return block_.bytes(); }  // bytes reserved
  // Bytes of live activations, and number of allocations of this step so far. A region counts as
  // one allocation, the allocations in it do not count.
  int64_t in_use() const { return in_use_; }
  int64_t allocations() const { return next_ - first_; }
  // Skips the next `count` allocations of the plan and their releases as if they had been made; in
  // a step, while no activation is alive. For the replay of work that was captured during
  // allocations [like, like + count) of the plan: the replay uses their memory, and the skipped
  // allocations must have the same sizes.
  void skip(int64_t like, int64_t count);

  // One allocation of the plan that holds any number of allocations in any order, made while the
  // region is open and released before it closes. Its size is their high-water mark in the planning
  // run, which must make the calls that need the most memory; CheckFailed if a step exceeds it.
  // A nested region is part of the outer one. No effect in direct mode.
  class Region {
   public:
    Region(Arena& arena, const char* name);
    ~Region();
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;

   private:
    Arena* arena_ = nullptr;  // null: inside another region, or direct mode
    Activation block_;        // the region's own allocation; none if arena_ is null
  };

 private:
  friend class Activation;
  enum class Mode { kDirect, kPlanning, kPlanned };
  void release(int64_t index);
  Activation allocate_in_region(const char* name, int64_t bytes, DType dtype, const Shape& shape);
  void release_in_region(int64_t index);
  void check_regions() const;
  DeviceType device() const {
    return memory_ == Memory::kDevice ? DeviceType::kCuda : DeviceType::kCpu;
  }
  std::string name_;
  Memory memory_;
  Mode mode_ = Mode::kDirect;
  Buffer block_;
  const ArenaPlan* plan_ = nullptr;
  ArenaPlan recording_;
  int64_t next_ = 0;        // number of the next allocation, never reused
  int64_t first_ = 0;       // number of the step's first allocation; releases below it are ignored
  int64_t events_ = 0;      // allocations and releases of this step so far
  int64_t last_died_ = -1;  // latest planned release (event) among the activations released so far
  int64_t live_ = 0;
  int64_t in_use_ = 0;
  std::map<int64_t, Buffer> direct_;
  // Allocation in the open region's stack: freed once it and all above it are released.
  struct RegionBlock {
    int64_t index = 0;
    int64_t end = 0;
    bool live = true;
  };
  bool region_open_ = false;
  bool region_leaked_ = false;  // an allocation was alive when its region closed
  int64_t region_next_ = 0;     // number of the next allocation in a region, never reused
  std::byte* region_data_ = nullptr;
  int64_t region_bytes_ = 0;  // its size (planned mode), or its high-water mark (planning)
  std::vector<RegionBlock> region_;
};

// Offsets for plan.blocks by greedy packing: largest first, each at the lowest offset where it
// overlaps no block alive at the same time. Sets plan.capacity.
void pack_intervals(ArenaPlan& plan);

}  // namespace trireme
