#include "tests/cuda/op_case.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>

namespace trireme::test {
namespace {

constexpr int64_t kGuard = 256;  // bytes before and after an operand's data
constexpr std::byte kGuardPattern{0xA5}, kPoison{0xFF};

double uniform(const RandomKey& key, int64_t i) {
  return (static_cast<double>(philox_word(key, static_cast<uint64_t>(i))) + 0.5) * 0x1p-32;
}

RandomKey key_of(const std::string& name) { return {20260101, stream_id(name)}; }

// Large operands repeat a prime number of drawn values.
std::vector<double> uniforms(const std::string& name, int64_t n, double low, double high) {
  constexpr int64_t kDrawn = 1'048'573;
  std::vector<double> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < std::min(n, kDrawn); ++i)
    out[static_cast<size_t>(i)] = low + (high - low) * uniform(key_of(name), i);
  for (int64_t i = kDrawn; i < n; ++i)
    out[static_cast<size_t>(i)] = out[static_cast<size_t>(i - kDrawn)];
  return out;
}

// Stores `values` as elements of dtype.
void store(std::byte* to, DType dtype, const std::vector<double>& values) {
  const auto put = [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      const T value = static_cast<T>(values[i]);
      std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
  };
  switch (dtype) {
    case DType::kI64: return put(int64_t{});
    case DType::kI32: return put(int32_t{});
    case DType::kU16: return put(uint16_t{});
    case DType::kU8: return put(uint8_t{});
    default: break;
  }
  const TestTensor t(dtype, {std::ssize(values)}, values);
  std::memcpy(to, t->raw(), static_cast<size_t>(t->bytes()));
}

bool narrow_float(DType dtype) { return is_float(dtype) && dtype_size(dtype) == 2; }

}  // namespace

Tensor OpRun::take(Role role, const std::string& name, DType asked, const Shape& shape, Close close,
                   const std::function<std::vector<double>()>& make) {
  const bool widened = options_.wide && narrow_float(asked);
  const DType dtype = widened ? DType::kF32 : asked;
  if (planning()) {
    // As in an arena's planning run: an aligned address that must not be read.
    static std::byte* const kNowhere = reinterpret_cast<std::byte*>(uintptr_t{1} << 40);
    return {kNowhere, dtype, shape, ctx.device()};
  }
  const auto found = operands_.find(name);
  if (found != operands_.end()) return found->second.view;
  const int64_t shift = options_.misaligned ? dtype_size(dtype) : 0;
  const int64_t at = kGuard + shift, bytes = shape.numel() * dtype_size(dtype);
  Operand operand{.role = role, .close = close};
  operand.initial.assign(static_cast<size_t>(at + bytes + kGuard), kGuardPattern);
  std::byte* data = operand.initial.data() + at;
  if (role == Role::kOutput) {
    std::fill_n(data, bytes, kPoison);
  } else {
    std::vector<double> values = make();
    TRIREME_CHECK(std::ssize(values) == shape.numel(), name, ": ", values.size(), " values for ",
                  shape);
    if (widened) values = to_doubles(TestTensor(asked, {std::ssize(values)}, values));
    store(data, dtype, values);
  }
  const auto total = std::ssize(operand.initial);
  operand.memory = Buffer(name, total, ctx.memory());
  if (ctx.gpu != nullptr)
    cuda::upload(*ctx.gpu, operand.memory.data(), operand.initial.data(), total);
  else
    std::memcpy(operand.memory.data(), operand.initial.data(), operand.initial.size());
  operand.view = Tensor(operand.memory.data() + at, dtype, shape, ctx.device());
  return operands_.emplace(name, std::move(operand)).first->second.view;
}

ConstTensor OpRun::random(const std::string& name, DType dtype, const Shape& shape, double low,
                          double high) {
  return take(Role::kInput, name, dtype, shape, {},
              [&] { return uniforms(name, shape.numel(), low, high); });
}

ConstTensor OpRun::integers(const std::string& name, DType dtype, const Shape& shape, int64_t low,
                            int64_t high) {
  return take(Role::kInput, name, dtype, shape, {}, [&] {
    std::vector<double> values =
        uniforms(name, shape.numel(), static_cast<double>(low), static_cast<double>(high));
    for (double& value : values) value = std::floor(value);
    return values;
  });
}

ConstTensor OpRun::made(const std::string& name, DType dtype, const Shape& shape,
                        const std::function<std::vector<double>()>& make) {
  return take(Role::kInput, name, dtype, shape, {}, make);
}

ConstTensor OpRun::values(const std::string& name, DType dtype, const Shape& shape,
                          const std::vector<double>& values) {
  return take(Role::kInput, name, dtype, shape, {}, [&] { return values; });
}

Tensor OpRun::output(const std::string& name, DType dtype, const Shape& shape, Close close) {
  return take(Role::kOutput, name, dtype, shape, close, {});
}

Tensor OpRun::updated(const std::string& name, DType dtype, const Shape& shape, Close close,
                      double low, double high) {
  return take(Role::kUpdated, name, dtype, shape, close,
              [&] { return uniforms(name, shape.numel(), low, high); });
}

Tensor OpRun::updated_values(const std::string& name, DType dtype, const Shape& shape, Close close,
                             const std::vector<double>& values) {
  return take(Role::kUpdated, name, dtype, shape, close, [&] { return values; });
}

std::vector<std::byte> OpRun::content(const Operand& operand) const {
  std::vector<std::byte> bytes(operand.initial.size());
  if (ctx.gpu != nullptr)
    cuda::download(*ctx.gpu, bytes.data(), operand.memory.data(), std::ssize(bytes));
  else
    std::memcpy(bytes.data(), operand.memory.data(), bytes.size());
  return bytes;
}

std::string OpRun::damage() const {
  for (const auto& [name, its] : operands_) {
    const Operand& operand = its;  // for capture by a lambda
    const std::vector<std::byte> now = content(operand);
    const auto* view = static_cast<const std::byte*>(operand.view.raw());
    const auto begin = view - operand.memory.data();
    const auto end = begin + operand.view.bytes();
    const auto same = [&](int64_t from, int64_t to) {
      return std::equal(now.begin() + from, now.begin() + to, operand.initial.begin() + from);
    };
    if (!same(0, begin)) return concat("bytes before ", name, " were written");
    if (!same(end, std::ssize(now))) return concat("bytes after ", name, " were written");
    if (operand.role == Role::kInput && !same(begin, end))
      return concat("the input ", name, " was changed");
  }
  return "";
}

// One output of a run, on the host.
struct Outcome {
  DType dtype = DType::kF32;
  Shape shape = {};
  Close close = {};
  bool poisoned = false;
  std::vector<std::byte> bytes = {};
  ConstTensor view() const { return {bytes.data(), dtype, shape}; }
};

struct Outcomes {
  std::map<std::string, Outcome> outputs = {};
  std::string damage = {};
};

class CaseRunner {
 public:
  explicit CaseRunner(const OpCase& c) : case_(c) {}

  Outcomes run(cuda::Context* gpu, OpRun::Options options, int64_t* launches = nullptr) const {
    Ctx ctx(1, "op case", gpu);
    OpRun run(ctx, options);
    const int64_t before = gpu != nullptr ? gpu->launches : 0;
    case_.body(run);
    if (launches != nullptr) *launches = gpu->launches - before;
    Outcomes out = outcomes(run);
    if (ctx.arena.in_use() != 0) out.damage = "scratch was not given back";
    return out;
  }

  Outcomes run_planned(cuda::Context& gpu) const {
    Ctx ctx(1, "op case", &gpu);
    const ArenaPlan plan = planned(ctx);
    OpRun run(ctx, {});
    ctx.arena.begin_step(plan);
    case_.body(run);
    ctx.arena.end_step();
    return outcomes(run);
  }

  double seconds(cuda::Context& gpu) const {
    Ctx ctx(1, "op case", &gpu);
    const ArenaPlan plan = planned(ctx);
    OpRun run(ctx, {});
    const auto repeat = [&](int64_t times) {
      for (int64_t i = 0; i < times; ++i) {
        ctx.arena.begin_step(plan);
        case_.body(run);
        ctx.arena.end_step();
      }
      cuda::synchronize(gpu, gpu.main);
    };
    const auto time = [&](int64_t times) {
      const auto start = std::chrono::steady_clock::now();
      repeat(times);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      return elapsed.count() / static_cast<double>(times);
    };
    repeat(2);  // uploads operands; libraries choose their kernels
    constexpr double kMeasured = 0.05;
    const auto times = static_cast<int64_t>(std::clamp(kMeasured / time(1), 3.0, 1000.0));
    return std::min(time(times), time(times));
  }

 private:
  ArenaPlan planned(Ctx& ctx) const {
    OpRun planning(ctx, {});
    ctx.arena.begin_planning();
    case_.body(planning);
    ArenaPlan plan = ctx.arena.end_planning();
    ctx.arena.reserve(plan.capacity);
    return plan;
  }

  static Outcomes outcomes(const OpRun& run) {
    Outcomes out{.damage = run.damage()};
    for (const auto& [name, operand] : run.operands_) {
      if (operand.role == OpRun::Role::kInput) continue;
      const std::vector<std::byte> all = run.content(operand);
      const auto* view = static_cast<const std::byte*>(operand.view.raw());
      const auto begin = all.begin() + (view - operand.memory.data());
      Outcome outcome{.dtype = operand.view.dtype(),
                      .shape = operand.view.shape(),
                      .close = operand.close,
                      .poisoned = operand.role == OpRun::Role::kOutput};
      outcome.bytes.assign(begin, begin + operand.view.bytes());
      out.outputs.emplace(name, std::move(outcome));
    }
    return out;
  }

  const OpCase& case_;
};

namespace {

// Magnitude that each element's error is relative to.
std::vector<double> magnitudes(const std::vector<double>& want, const Shape& shape, Close::Of of) {
  std::vector<double> out(want.size());
  if (want.empty()) return out;
  const size_t last = shape.rank() == 0 ? 1 : static_cast<size_t>(shape[shape.rank() - 1]);
  const size_t width = of == Close::Of::kElement ? 1 : of == Close::Of::kRow ? last : want.size();
  for (size_t begin = 0; begin < want.size(); begin += width) {
    double largest = 0;
    for (size_t i = begin; i < begin + width; ++i)
      if (std::isfinite(want[i])) largest = std::max(largest, std::abs(want[i]));
    std::fill_n(out.begin() + static_cast<int64_t>(begin), width, largest);
  }
  return out;
}

// Records the worst error of `got` in `report`. Returns "" or the difference. relative: the
// tolerance.
std::string compare_outcome(const Outcome& got, const Outcome& want, double relative,
                            CaseReport& report) {
  std::vector<double> a = to_doubles(got.view()), b = to_doubles(want.view());
  for (size_t i = 0; i < b.size(); ++i) {
    if (want.poisoned && std::isnan(b[i])) return concat("the oracle has NaN at [", i, "]");
    const bool same_infinity = std::isinf(b[i]) && a[i] == b[i];
    const bool both_nan = std::isnan(b[i]) && std::isnan(a[i]);
    if (same_infinity || both_nan) a[i] = b[i] = 0;
  }
  const std::vector<double> scale = magnitudes(b, want.shape, want.close.of);
  const TestTensor finite(got.dtype, got.shape, a);
  for (size_t i = 0; i < b.size(); ++i) {
    const double error = std::abs(a[i] - b[i]);
    if (error == 0) continue;
    const double in_units = error / std::max(scale[i], std::numeric_limits<double>::min());
    if (!(in_units * report.tolerance <= report.max_error * relative) || report.tolerance == 0) {
      report.max_error = in_units;
      report.tolerance = relative;
    }
  }
  return compare_within(finite, b, scale, {relative});
}

// Tolerance of an output. wide: against an oracle with nearly no error of its own.
double relative_tolerance(const Outcome& got, const Outcome& want, bool wide) {
  const Close& close = want.close;
  const DType dtype = got.dtype == DType::kF64 ? close.computed : got.dtype;
  return close.units + (wide ? tolerance(dtype, close.terms, close.accumulate).relative
                             : between_computations(dtype, close.terms, close.accumulate).relative);
}

std::string compare_outcomes(const Outcomes& got, const Outcomes& want, bool wide,
                             CaseReport& report) {
  if (!got.damage.empty()) return got.damage;
  if (!want.damage.empty()) return concat("on the CPU ", want.damage);
  if (got.outputs.empty()) return "the case has no output";
  for (const auto& [name, outcome] : got.outputs) {
    const Outcome& expected = want.outputs.at(name);
    std::string difference;
    if (is_float(outcome.dtype) && outcome.close.of != Close::Of::kExact)
      difference =
          compare_outcome(outcome, expected, relative_tolerance(outcome, expected, wide), report);
    else if (!wide)
      difference = compare_exact(outcome.view(), expected.view());
    if (!difference.empty()) return concat(name, ": ", difference);
  }
  return "";
}

std::string compare_bits(const Outcomes& a, const Outcomes& b) {
  for (const auto& [name, outcome] : a.outputs) {
    const std::string difference = compare_exact(outcome.view(), b.outputs.at(name).view());
    if (!difference.empty()) return concat(name, ": ", difference);
  }
  return "";
}

}  // namespace

void PrintTo(const OpCase& c, std::ostream* out) {
  *out << concat(c.op, " ", c.shape, " ", c.dtype);
}

CaseReport check_case(const OpCase& c, cuda::Context& gpu, const std::function<void(int)>& before) {
  const CaseRunner runner(c);
  CaseReport report;
  const auto fail = [&](const char* run, const std::string& what) {
    if (report.failure.empty() && !what.empty()) report.failure = concat(run, ": ", what);
  };
  const auto announce = [&](int run) {
    if (before) before(run);
  };
  const Outcomes want = runner.run(nullptr, {});
  announce(0);
  const Outcomes direct = runner.run(&gpu, {}, &report.launches);
  fail("direct arena", compare_outcomes(direct, want, false, report));
  announce(1);
  const Outcomes planned = runner.run_planned(gpu);
  fail("planned arena", compare_outcomes(planned, want, false, report));
  const std::string bits = compare_bits(planned, direct);
  report.bitwise = bits.empty();
  if (c.deterministic) fail("second run", bits);
  if (c.any_alignment) {
    announce(2);
    const Outcomes shifted = runner.run(&gpu, {.misaligned = true});
    fail("misaligned", compare_outcomes(shifted, want, false, report));
  }
  if (c.wide_oracle && narrow_float(c.dtype))
    fail("against float32",
         compare_outcomes(direct, runner.run(nullptr, {.wide = true}), true, report));
  return report;
}

LargeReport check_large_case(const OpCase& c, cuda::Context& gpu) {
  const CaseRunner runner(c);
  LargeReport report;
  const auto fail = [&](const std::string& run, const std::string& what) {
    if (report.failure.empty() && !what.empty()) report.failure = concat(run, ": ", what);
  };
  const auto library_calls = [&] {
    return gpu.attention_calls[static_cast<size_t>(cuda::AttentionPath::kCudnn)];
  };
  const int64_t before = library_calls();
  const Outcomes direct = runner.run(&gpu, {}, &report.launches);
  const bool library = library_calls() > before;
  fail("direct arena", direct.damage);
  const std::string bits = compare_bits(runner.run_planned(gpu), direct);
  report.bitwise = bits.empty();
  if (c.deterministic) fail("second run", bits);
  report.reference = "none";
  if (library) {
    report.reference = "own kernels";
    const auto kept = std::exchange(gpu.attention, nullptr);
    const Outcomes own = runner.run(&gpu, {});
    gpu.attention = kept;
    fail("against own kernels", compare_outcomes(direct, own, false, report));
  } else if (c.wide_oracle && narrow_float(c.dtype)) {
    report.reference = "float32";
    fail("against float32",
         compare_outcomes(direct, runner.run(&gpu, {.wide = true}), true, report));
  }
  return report;
}

double measure_case(const OpCase& c, cuda::Context& gpu) { return CaseRunner(c).seconds(gpu); }

}  // namespace trireme::test
