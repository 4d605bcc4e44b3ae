#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "engine/core/error.h"

namespace trireme::test_error {
namespace {

TEST(Error, TextOfValues) {
  EXPECT_EQ(concat("n ", 3, " of ", int64_t{-4}, ' ', true, ' ', std::string("s"), uint8_t{200}),
            "n 3 of -4 true s200");
  EXPECT_EQ(text(0.1), "0.1") << "the shortest form that reads back";
  for (double x : {1.0 / 3.0, 1e300, -5e-324, 123456789.125})
    EXPECT_EQ(std::strtod(text(x).c_str(), nullptr), x);
  EXPECT_EQ(text(INFINITY), "inf");
}

TEST(Error, CheckSaysWhereWhatAndWithWhichValues) {
  const int got = 7;
  try {
    TRIREME_CHECK(got == 8, "got ", got, " of ", 8);
    FAIL() << "did not throw";
  } catch (const Error& e) {
    const std::string what = e.what();
    for (const char* part : {"test_error.cpp:", "got == 8", "got 7 of 8"})
      EXPECT_NE(what.find(part), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos);
    EXPECT_EQ(e.code(), ExitCode::kFailure);
  }
}

TEST(Error, CheckEvaluatesItsMessageOnlyWhenItFails) {
  int calls = 0;
  const auto count = [&] { return ++calls; };
  TRIREME_CHECK(true, count());
  EXPECT_EQ(calls, 0);
  EXPECT_THROW(TRIREME_CHECK(false, count()), Error);
  EXPECT_EQ(calls, 1);
}

TEST(Error, TheUsersFaultHasItsOwnTypeAndCode) {
  try {
    fail_input("batch ", 3, " does not divide ", 8);
    FAIL() << "did not throw";
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "batch 3 does not divide 8");
    EXPECT_EQ(e.code(), ExitCode::kBadInput);
  }
}

TEST(Error, UnreachableThrows) { EXPECT_THROW(TRIREME_UNREACHABLE("case ", 9), Error); }

}  // namespace
}  // namespace trireme::test_error
