#include "engine/core/file_limit.h"

#include <sys/resource.h>

#include <algorithm>

namespace trireme {

void raise_file_limit(int64_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto most = std::min(limit.rlim_max, static_cast<rlim_t>(wanted));
  if (limit.rlim_cur >= most) return;
  limit.rlim_cur = most;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace trireme
