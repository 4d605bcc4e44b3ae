#include "transformer/config/moe_config.h"

#include <algorithm>

namespace trireme {

bool MoeConfig::sparse(int64_t layer) const {
  return experts > 0 && layer >= first_sparse && layer % sparse_step == sparse_phase &&
         std::ranges::find(dense_layers, layer) == dense_layers.end();
}

}  // namespace trireme
