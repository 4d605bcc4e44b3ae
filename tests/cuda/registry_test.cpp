// Runs every case of the registry on the emulated GPU, and checks that every op has a case and that
// the comparison fails on wrong results.
#include "tests/cuda/registry.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "engine/ops/norm/norm.h"
#include "engine/ops/rows/activation_function.h"
#include "tests/cuda/ops_session.h"
#include "tests/emulator/emulator.h"
#include "tests/support/source_folder.h"

namespace trireme::test {
namespace {

// Blocks and threads run forwards, then backwards: results that depend on their order are an error.
void change_order(int run) {
  emulator::set_order(run % 2 == 0 ? emulator::Order::kForward : emulator::Order::kBackward);
}

class OpOnGpu : public testing::TestWithParam<OpCase> {};

TEST_P(OpOnGpu, GivesWhatTheCpuGives) {
  EXPECT_EQ(check_case(GetParam(), shared_gpu(), change_order).failure, "");
}

std::string case_name(const testing::TestParamInfo<OpCase>& info) {
  std::string name = concat(info.param.op, "_", info.param.shape, "_", info.param.dtype);
  std::string out;
  for (char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  return out;
}

INSTANTIATE_TEST_SUITE_P(Registry, OpOnGpu, testing::ValuesIn(chosen_cases()), case_name);

// Functions of the headers whose first argument is a Ctx.
std::set<std::string> declared_ops() {
  std::set<std::string> ops;
  const std::regex declaration(R"(\n[A-Za-z_0-9:<>]+ ([a-z_0-9]+)\(Ctx& ctx,)");
  const auto path = std::filesystem::path(test::source_folder()) / "engine/ops";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.path().extension() != ".h") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator i(source.begin(), source.end(), declaration), end; i != end; ++i)
      ops.insert((*i)[1]);
  }
  // Ops of every activation function instead of those that have the function as an argument.
  for (const auto& [op, name] : {std::pair{"activation_forward", &ActivationOps::forward},
                                 std::pair{"activation_backward", &ActivationOps::backward},
                                 std::pair{"gated_forward", &ActivationOps::gated_forward},
                                 std::pair{"gated_backward", &ActivationOps::gated_backward}}) {
    if (ops.erase(op) == 0) continue;
    for (const ActivationOps& names : kActivationOps) ops.insert(names.*name);
  }
  return ops;
}

TEST(Registry, HasACaseOfEveryOp) {
  std::set<std::string> tried;
  for (const OpCase& c : emulated_cases()) tried.insert(c.op);
  const std::set<std::string> declared = declared_ops();
  const std::map<std::string, std::string> excused = ops_without_case();
  EXPECT_GT(declared.size(), 40u) << "the headers are not read as they are written";
  for (const std::string& op : declared)
    EXPECT_EQ(tried.contains(op) + excused.contains(op), 1u)
        << op << (tried.contains(op) ? " has cases and a reason to have none" : " has no case");
  for (const std::string& op : tried) EXPECT_TRUE(declared.contains(op)) << op << " is no op";
  for (const auto& [op, reason] : excused) EXPECT_TRUE(declared.contains(op)) << op << " is no op";
}

TEST(Registry, HasEveryNameOnce) {
  std::set<std::string> names;
  for (const OpCase& c : all_cases())
    EXPECT_TRUE(names.insert(concat(c.op, " ", c.shape, " ", c.dtype)).second)
        << concat(c.op, " ", c.shape, " ", c.dtype, " is there twice");
}

// --- negative controls of the comparison ---

std::string failure_of(const std::function<void(OpRun&)>& body) {
  return check_case({.op = "control", .body = body}, shared_gpu()).failure;
}

// RMSNorm of three rows; `eps` is used on the GPU.
void control_norm(OpRun& run, const Tensor& y, double eps) {
  const Tensor rstd = run.output("rstd", DType::kF32, {3}, each(8));
  rmsnorm_forward(run.ctx, y, rstd, {}, run.random("x", DType::kF32, {3, 8}), {},
                  run.random("w", DType::kF32, {8}), run.ctx.gpu == nullptr ? 1e-5 : eps);
}

TEST(Comparison, AcceptsTheSame) {
  EXPECT_EQ(failure_of([](OpRun& run) {
              control_norm(run, run.output("y", DType::kF32, {3, 8}, row(8)), 1e-5);
            }),
            "");
}

TEST(Comparison, SeesAWrongResult) {
  EXPECT_NE(failure_of([](OpRun& run) {
              control_norm(run, run.output("y", DType::kF32, {3, 8}, row(8)), 1e-3);
            }),
            "");
}

TEST(Comparison, SeesWhatWasNotWritten) {
  const std::string failure = failure_of([](OpRun& run) {
    const Tensor y = run.output("y", DType::kF32, {3, 8}, row(8));
    if (run.ctx.gpu == nullptr) control_norm(run, y, 1e-5);
  });
  EXPECT_NE(failure, "");
  EXPECT_NE(failure_of([](OpRun& run) { run.output("y", DType::kF32, {3, 8}, row(8)); }), "");
}

TEST(Comparison, SeesAWriteBesideTheOutput) {
  const std::string failure = failure_of([](OpRun& run) {
    const Tensor y = run.output("y", DType::kF32, {2, 8}, row(8));
    control_norm(run, Tensor(y.raw(), DType::kF32, {3, 8}, y.device()), 1e-5);
  });
  EXPECT_NE(failure.find("bytes after y"), std::string::npos) << failure;
}

TEST(Comparison, SeesAChangedInput) {
  const std::string failure = failure_of([](OpRun& run) {
    const ConstTensor x = run.random("other", DType::kF32, {3, 8});
    control_norm(run, Tensor(const_cast<void*>(x.raw()), DType::kF32, {3, 8}, x.device()), 1e-5);
  });
  EXPECT_NE(failure.find("other was changed"), std::string::npos) << failure;
}

TEST(Comparison, SeesBitsThatDiffer) {
  int calls = 0;
  const std::string failure = failure_of([&](OpRun& run) {
    const Tensor y = run.output("y", DType::kF32, {3, 8}, row(8));
    // Within the tolerance, but different in each run.
    control_norm(run, y, run.planning() ? 0 : 1e-5 + 5e-7 * ++calls);
  });
  EXPECT_NE(failure.find("second run"), std::string::npos) << failure;
}

}  // namespace
}  // namespace trireme::test
