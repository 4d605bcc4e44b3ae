// multipleOf: every text is compared with the test's own arithmetic.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/serving/structured/compiled_sources.h"

namespace trireme::test_multiples {
namespace {

using namespace test;

// thousandths / 1000 with this many decimals, which may end in zeros.
std::string decimal(int thousandths, int decimals) {
  std::string digits = std::to_string(std::abs(thousandths));
  if (digits.size() < 4) digits.insert(0, 4 - digits.size(), '0');
  std::string text = concat(thousandths < 0 ? "-" : "", digits.substr(0, digits.size() - 3));
  return decimals == 0
             ? text
             : text + "." +
                   digits.substr(digits.size() - 3, 3).substr(0, static_cast<size_t>(decimals));
}

TEST(SchemaMultiples, IntegersAreMultiplesWithinTheirBounds) {
  for (const int factor : {2, 3, 5, 7, 12, 25, 40, 60, 100, 128, 360, 1000}) {
    const auto free =
        compile(Kind::kJsonSchema, concat(R"({"type":"integer","multipleOf":)", factor, "}"));
    const auto bounded =
        compile(Kind::kJsonSchema, concat(R"({"type":"integer","minimum":-1000001,"maximum":800,)",
                                          R"("multipleOf":)", factor, "}"));
    for (int n = -1200; n <= 1200; ++n) {
      ASSERT_EQ(takes(*free, std::to_string(n)), n % factor == 0) << n << " " << factor;
      ASSERT_EQ(takes(*bounded, std::to_string(n)), n % factor == 0 && n <= 800) << n;
    }
    for (const int64_t turns : {int64_t{98765}, int64_t{-123456789}, int64_t{900'000'000'00}})
      for (const int64_t more : {0, 1}) {
        const std::string text = std::to_string(turns * factor + more);
        ASSERT_EQ(takes(*free, text), more == 0) << text << " " << factor;
      }
    EXPECT_FALSE(takes(*free, concat(factor, ".0"))) << factor;
    EXPECT_FALSE(takes(*free, concat("0", factor))) << factor;
  }
}

TEST(SchemaMultiples, NumbersAreMultiplesAsDecimals) {
  const std::vector<std::pair<const char*, int>> factors = {
      {"0.001", 1}, {"0.01", 10},  {"1e-2", 10},  {"0.1", 100}, {"0.5", 500}, {"0.25", 250},
      {"0.05", 50}, {"2.5", 2500}, {"1.1", 1100}, {"1", 1000},  {"3", 3000}};
  for (const auto& [factor, thousandths] : factors) {
    const auto grammar = compile(
        Kind::kJsonSchema, concat(R"({"type":"number","maximum":2.75,"multipleOf":)", factor, "}"));
    for (int n = -3100; n <= 3100; ++n)
      for (int decimals = n % 1000 == 0  ? 0
                          : n % 100 == 0 ? 1
                          : n % 10 == 0  ? 2
                                         : 3;
           decimals <= 3; ++decimals)
        ASSERT_EQ(takes(*grammar, decimal(n, decimals)), n % thousandths == 0 && n <= 2750)
            << decimal(n, decimals) << " " << factor;
    EXPECT_FALSE(takes(*grammar, "-1e1")) << factor;
  }
  // The integers among the multiples of a factor with decimals.
  for (const auto& [factor, whole] : {std::pair{"0.5", 1}, {"1.5", 3}, {"2.5", 5}, {"0.75", 3}}) {
    const auto grammar =
        compile(Kind::kJsonSchema, concat(R"({"type":"integer","multipleOf":)", factor, "}"));
    for (int n = -60; n <= 60; ++n)
      ASSERT_EQ(takes(*grammar, std::to_string(n)), n % whole == 0) << n << " " << factor;
  }
}

TEST(SchemaMultiples, LaterDigitsDecideInFewStates) {
  for (const char* factor : {"10", "1000", "1000000", "1e12", "3600", "86400", "4096", "97"}) {
    const auto grammar =
        compile(Kind::kJsonSchema, concat(R"({"type":"integer","multipleOf":)", factor, "}"));
    EXPECT_LT(grammar->automaton().states().size(), 12'000u) << factor;
    const auto step = static_cast<int64_t>(std::atof(factor));
    EXPECT_TRUE(takes(*grammar, std::to_string(7 * step))) << factor;
    EXPECT_FALSE(takes(*grammar, std::to_string(7 * step + step / 2))) << factor;
    EXPECT_FALSE(takes(*grammar, std::to_string(7 * step + 1))) << factor;
  }
  EXPECT_LT(compile(Kind::kJsonSchema, R"({"type":"integer","multipleOf":1000000})")
                ->automaton()
                .states()
                .size(),
            300u);
}

TEST(SchemaMultiples, SeveralFactorsHoldTogether) {
  const auto grammar =
      compile(Kind::kJsonSchema, R"({"allOf":[{"type":"integer","multipleOf":4},{"multipleOf":6},)"
                                 R"({"minimum":-50}]})");
  for (int n = -100; n <= 200; ++n)
    ASSERT_EQ(takes(*grammar, std::to_string(n)), n % 12 == 0 && n >= -50) << n;
  expect_schema(R"({"type":["integer","string","null"],"multipleOf":5})", {"10", "null", R"("a")"},
                {"11"});
  expect_schema(R"({"enum":[0.5,0.3,-0.75,"x",1e300,7],"multipleOf":0.25})",
                {"0.5", "-0.75", R"("x")", "1e+300", "7"}, {"0.3"});
  expect_schema(R"({"enum":[0.07,0.075],"multipleOf":0.01})", {"0.07"}, {"0.075"});
}

// Factors that need many states are enforced where the bounds contain few multiples.
TEST(SchemaMultiples, LargeFactorsAreRefusedWithTheirPath) {
  expect_schema(R"({"type":"integer","multipleOf":9973,"minimum":-20000,"exclusiveMaximum":29919})",
                {"-19946", "-9973", "0", "19946"}, {"29919", "9974", "-29919"});
  const auto why = [](const std::string& schema) { return refused(Kind::kJsonSchema, schema); };
  for (const char* type : {"integer", "number"})
    EXPECT_NE(why(concat(R"({"properties":{"a":{"type":")", type, R"(","multipleOf":9973}}})"))
                  .find("schema #/properties/a: \"multipleOf\" is not supported with a factor"),
              std::string::npos);
  for (const char* factor : {"0", "-2", "\"2\"", "[2]", "1e30"})
    EXPECT_NE(why(concat(R"({"type":"integer","multipleOf":)", factor, "}"))
                  .find("schema #: \"multipleOf\" must be"),
              std::string::npos)
        << factor;
  EXPECT_EQ(why(R"({"type":"integer","multipleOf":10,"minimum":1,"maximum":9})"),
            "no text satisfies the constraint");
}

}  // namespace
}  // namespace trireme::test_multiples
