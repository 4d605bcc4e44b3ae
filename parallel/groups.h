// Communicators of one rank along every dimension of the layout.
#pragma once

#include <memory>

#include "parallel/context/context_attention.h"
#include "parallel/layout.h"

namespace trireme {

// A dimension of size 1 has a group of one rank, so that callers need no special case. The name of
// a communicator gives the dimension and the group's number, from 0: "tp group 1 of 4".
struct Groups {
  // Collective over the world, or over one site of it. kv_copies: tensor-parallel ranks that hold
  // the same key/value head (1 unless there are fewer key/value heads than tensor-parallel ranks).
  Groups(Communicator& world, const ParallelSizes& sizes, int kv_copies = 1);

  // Ranks that hold the same parameters of a region; its gradients are summed over them.
  Communicator& of(Region region) const { return is_dense(region) ? *data : *edp; }

  Layout layout;
  Communicator& world;
  std::unique_ptr<Communicator> tp, cp, dp, pp;
  std::unique_ptr<Communicator> ep, etp, edp;
  std::unique_ptr<Communicator> data;         // dp x cp: the same dense parameters, other tokens
  std::unique_ptr<Communicator> kv;           // tp ranks with the same key/value heads
  std::unique_ptr<Communicator> tied;         // first and last stage of pp; on others: one rank
  std::unique_ptr<ContextAttention> context;  // over cp; null where cp is one rank
};

}  // namespace trireme
