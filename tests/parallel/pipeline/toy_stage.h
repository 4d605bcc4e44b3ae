// Pipeline of scalars: model chunk k computes y = x w_k + k, the loss is sum(y t). Small enough for
// plain loops, and sensitive to every error in the order, position and sign of a message.
#pragma once

#include "parallel/pipeline/executor.h"

namespace trireme::test {

struct ToyResult {
  double loss = 0;
  std::vector<double> d_weight;  // by model chunk
  bool operator==(const ToyResult&) const = default;
};

// All chunks and micro-batches on one rank, sequentially.
ToyResult toy_reference(const Schedule& schedule, int64_t n);

class ToyStage : public PipelineStage {
 public:
  ToyStage(Ctx& ctx, const Schedule& schedule, int rank, int64_t n);

  Activation forward(int chunk, int micro_batch, Activation input) override;
  Activation backward_input(int chunk, int micro_batch, Activation d_output) override;
  void backward_weight(int chunk, int micro_batch) override;
  Activation allocate_message(int chunk, int micro_batch, bool gradient) override;

  void clear() { result_ = {0, std::vector<double>(result_.d_weight.size())}; }
  const ToyResult& result() const { return result_; }  // of this rank's chunks, zero elsewhere

 private:
  struct Saved {
    Activation input, d_output;
  };
  Saved& saved(int chunk, int micro_batch);

  Ctx& ctx_;
  const Schedule& schedule_;
  int rank_;
  int64_t n_;
  std::vector<Saved> saved_;
  ToyResult result_;
};

// Combined results of all ranks of the group.
ToyResult gather(Communicator& group, const ToyResult& mine);

// Checks every schedule that the group's size allows, forward passes and planned memory. Returns ""
// or the error.
std::string check_pipeline(Communicator& group);

}  // namespace trireme::test
