#include "engine/device/graph.h"

namespace trireme::cuda {

Graph::~Graph() {
  if (raw_ != nullptr) destroy_graph(raw_);
}

}  // namespace trireme::cuda
