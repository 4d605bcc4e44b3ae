#include "engine/core/normal_number.h"

namespace trireme {

double philox_normal(const RandomKey& key, uint64_t index) { return normal_number(key, index); }

}  // namespace trireme
