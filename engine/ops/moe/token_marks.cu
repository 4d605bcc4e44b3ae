#include "engine/ops/backend/kernel.cuda.h"
#include "engine/ops/moe/token_marks.cuda.h"

namespace trireme::cuda {
namespace {

constexpr int kThreads = 1024;

// One block: all threads need the smallest row, and there are few tokens.
__global__ void __launch_bounds__(kThreads) mark_tokens_kernel(TokenMarks a) {
  begin_kernel();
  __shared__ int64_t shared[kWarp];
  constexpr int64_t kNone = INT64_MAX;
  int64_t first = kNone;
  for (int64_t t = threadIdx.x; t < a.all; t += kThreads)
    if (a.rows[t] >= 0 && a.rows[t] < first) first = a.rows[t];
  first = -block_max(-first, shared);  // of the smallest
  for (int64_t t = threadIdx.x; t < a.count; t += kThreads) a.mark(t, first);
}

}  // namespace

void mark_tokens(Context& gpu, const TokenMarks& args) {
  launch(gpu, "mark_tokens", mark_tokens_kernel,
         {.blocks = {args.count > 0 ? 1 : 0}, .threads = kThreads}, args);
}

}  // namespace trireme::cuda
