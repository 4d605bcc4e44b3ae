#include "engine/core/profile.h"

#include "engine/core/error.h"

namespace trireme {

const char* time_category_name(TimeCategory category) {
  switch (category) {
    case TimeCategory::kGemm: return "gemm";
    case TimeCategory::kAttention: return "attention";
    case TimeCategory::kLoss: return "loss";
    case TimeCategory::kOptimizer: return "optimizer";
    case TimeCategory::kCommunication: return "communication";
    case TimeCategory::kData: return "data";
    case TimeCategory::kOther: return "other";
  }
  TRIREME_UNREACHABLE("time category ", static_cast<int>(category));
}

}  // namespace trireme
