#include "engine/ops/sampling/sample.h"

#include "engine/core/parallel_for.h"
#include "engine/ops/sampling/sample.cuda.h"

namespace trireme {
namespace {

// Scratch of the kernels; empty on the CPU.
struct GpuScratch {
  GpuScratch(Ctx& ctx, int64_t rows, int64_t columns) {
    if (ctx.gpu == nullptr) return;
    const Shape of_parts{rows, cuda::sample_parts(columns)}, of_bins{rows, cuda::kSampleBins};
    first = ctx.allocate("sample_rows.first", DType::kI64, of_parts);
    smallest = ctx.allocate("sample_rows.smallest", DType::kI32, of_parts);
    sum = ctx.allocate("sample_rows.sum", DType::kF64, of_parts);
    weights = ctx.allocate("sample_rows.weights", DType::kI64, of_bins);
    counts = ctx.allocate("sample_rows.counts", DType::kI64, of_bins);
  }
  void set(cuda::SampleArgs& args) const {
    args.first = first->as<int64_t>();
    args.smallest = smallest->as<int32_t>();
    args.sum = sum->as<double>();
    args.weights = weights->as<int64_t>();
    args.counts = counts->as<int64_t>();
  }
  Activation first, smallest, sum, weights, counts;
};

}  // namespace

void sample_rows(Ctx& ctx, const Tensor& id, const Tensor& logprob, const ConstTensor& logits,
                 const SampleRows& rows) {
  constexpr const char* kOp = "sample_rows";
  TRIREME_CHECK(logits.rank() == 2 && logits.size(1) > 0 && logits.size(1) <= INT32_MAX, kOp,
                ": logits are ", logits.shape(), ", expected (R, V) with 0 < V < 2^31");
  check_dtype(kOp, "logits", logits, DType::kF32);
  TRIREME_CHECK(logits.stride(1) == 1 || logits.size(1) == 1, kOp, ": logits have stride ",
                logits.stride(1), " in a row, expected 1");
  const Shape each{logits.size(0)};
  check_operand(kOp, "id", id, DType::kI32, each);
  check_operand(kOp, "logprob", logprob, DType::kF64, each);
  check_operand(kOp, "temperature", rows.temperature, DType::kF64, each);
  check_operand(kOp, "top_p", rows.top_p, DType::kF64, each);
  check_operand(kOp, "min_p", rows.min_p, DType::kF64, each);
  check_operand(kOp, "top_k", rows.top_k, DType::kI64, each);
  check_operand(kOp, "seed", rows.seed, DType::kI64, each);
  check_operand(kOp, "position", rows.position, DType::kI64, each);
  const int64_t columns = logits.size(1);
  const GpuScratch gpu_scratch(ctx, each[0], columns);
  if (ctx.planning()) return;
  const TimeScope scope(ctx.profile, TimeCategory::kOther);
  cuda::SampleArgs args{.id = id.as<int32_t>(),
                        .logprob = logprob.as<double>(),
                        .logits = logits.as<float>(),
                        .temperature = rows.temperature.as<double>(),
                        .top_p = rows.top_p.as<double>(),
                        .min_p = rows.min_p.as<double>(),
                        .top_k = rows.top_k.as<int64_t>(),
                        .seed = rows.seed.as<int64_t>(),
                        .position = rows.position.as<int64_t>(),
                        .rows = logits.size(0),
                        .columns = columns,
                        .stride = logits.stride(0)};
  if (ctx.gpu != nullptr) {
    gpu_scratch.set(args);
    return cuda::sample_rows(*ctx.gpu, args);
  }
  parallel_for(ctx.threads, args.rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const RowSamplingParams params{.temperature = args.temperature[r],
                                     .top_k = args.top_k[r],
                                     .top_p = args.top_p[r],
                                     .min_p = args.min_p[r],
                                     .seed = static_cast<uint64_t>(args.seed[r])};
      const std::span<const float> row(args.logits + r * args.stride, static_cast<size_t>(columns));
      const SampledToken token = sample_row(params, row, args.position[r]);
      args.id[r] = token.id;
      args.logprob[r] = token.logprob;
    }
  });
}

}  // namespace trireme
