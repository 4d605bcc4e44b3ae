#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "engine/ops/gemm/gemm_algorithms.h"

namespace trireme::test::test_gemm_algorithms {
namespace {

GemmAlgorithms sample() {
  GemmAlgorithms all{.device = "NVIDIA H200", .version = "cuBLASLt 13.1.0"};
  all.chosen[{1, 2, 3, 4, 5, 6, 7, -8}] = {.algorithm = {1, 2, 3, 4, 5, 6, 7, ~uint64_t{0}},
                                           .bias_first = true};
  all.chosen[{9, 2, 3, 4, 5, 6, 7, int64_t{1} << 62}] = {.algorithm = {0, 0xabc}};
  return all;
}

std::string problem(const std::string& text) {
  try {
    read_gemm_algorithms(text, "kept/rank-00000.txt");
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(GemmAlgorithms, SurviveTheirText) {
  const std::string text = gemm_algorithms_text(sample());
  const GemmAlgorithms read = read_gemm_algorithms(text, "x");
  EXPECT_EQ(read.device, "NVIDIA H200");
  EXPECT_EQ(read.version, "cuBLASLt 13.1.0");
  EXPECT_EQ(read.chosen, sample().chosen);
  EXPECT_EQ(gemm_algorithms_text(read), text);
}

// The error names the line. A text truncated anywhere is read or refused.
TEST(GemmAlgorithms, OfADamagedFileAreAnError) {
  const std::string text = gemm_algorithms_text(sample());
  EXPECT_EQ(problem(text), "");
  EXPECT_NE(problem("").find("kept/rank-00000.txt line 1: expected \"trireme gemm"),
            std::string::npos);
  EXPECT_NE(problem("trireme gemm algorithms 2\n").find("line 1"), std::string::npos);
  EXPECT_NE(problem("trireme gemm algorithms 1\nlibrary x\n").find("line 2"), std::string::npos);
  const std::string head = text.substr(0, text.find("\n1 2 3") + 1);
  for (const char* line :
       {"1", "1 2 3 4 5 6 7 8 2 1 2 3 4 5 6 7 8", "1 2 3 4 5 6 7 8 0 1 2 3 4 5 6 7",
        "1 2 3 4 5 6 7 8 0 1 2 3 4 5 6 7 8 9", "1 2 3 4 5 6 7 x 0 1 2 3 4 5 6 7 8",
        "1 2 3 4 5 6 7 8 0 1 2 3 4 5 6 7 10000000000000000", "",
        "99999999999999999999 2 3 4 5 6 7 8 0 1 2 3 4 5 6 7 8"})
    EXPECT_NE(problem(head + line + "\n").find("line 4: expected 9 numbers"), std::string::npos)
        << line;
  for (size_t end = 0; end < text.size(); ++end) (void)problem(text.substr(0, end));
}

}  // namespace
}  // namespace trireme::test::test_gemm_algorithms
