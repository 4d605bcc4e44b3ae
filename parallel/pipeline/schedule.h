// Pipeline schedule: for every rank, as data, the order in which it processes micro-batches.
//
// A model is cut into p v chunks of layers, p = stages (ranks), v = chunks per rank. A batch is cut
// into m micro-batches. Chunk c of rank r is model chunk c p + r, so that neighbouring chunks are
// on neighbouring ranks. Sends and receives follow from the order (parallel/pipeline/program.h);
// nothing here depends on layers.
//
// All built-in schedules compute the weight gradients of a chunk in the order of the micro-batches,
// so that the sums have the same bits in each of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

enum class InstructionKind : uint8_t {
  kForward,
  kBackward,        // gradients of input and weights; the input's is sent when both are done
  kBackwardInput,   // only the gradient of the input
  kBackwardWeight,  // only the gradients of the weights, at any later time
};
const char* instruction_name(InstructionKind kind);  // forward, backward, backward_input, ...

struct Instruction {
  InstructionKind kind = InstructionKind::kForward;
  int chunk = 0;  // of this rank, in [0, v)
  int micro_batch = 0;
  bool operator==(const Instruction&) const = default;
};
std::string text(const Instruction& instruction);  // forward of chunk 0, micro-batch 3

enum class ScheduleKind : uint8_t {
  kForwardOnly,  // evaluation and serving; not a training schedule
  kGPipe,        // all forwards, then all backwards
  k1F1B,         // one forward, one backward, after p - 1 - r forwards of rank r
  kInterleaved,  // 1F1B over v chunks per rank; p divides m
  kZbH1,         // 1F1B with weight gradients in its bubble, and 1F1B's peak memory
  kZbH2,         // p - 1 more micro-batches in flight; no idle_inside if F + B = 2 W (simulate.h)
  kCustom,       // from a file
};
const char* schedule_name(ScheduleKind kind);  // forward_only, gpipe, 1f1b, interleaved_1f1b, ...

struct Schedule {
  ScheduleKind kind = ScheduleKind::kGPipe;
  std::string name;                             // of the kind, or of the file
  int stages = 1;                               // p
  int chunks = 1;                               // v, per rank
  int micro_batches = 1;                        // m
  std::vector<std::vector<Instruction>> ranks;  // one list per stage

  int model_chunks() const { return stages * chunks; }
  int model_chunk(int rank, int chunk) const { return chunk * stages + rank; }
  bool trains() const { return kind != ScheduleKind::kForwardOnly; }
};

// Limit on stages x chunks x micro-batches: 64 ranks with 16 chunks and 4096 micro-batches.
inline constexpr int64_t kMaxChunkVisits = int64_t{1} << 22;

}  // namespace trireme
