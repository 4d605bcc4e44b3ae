#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/observe/text_plot.h"

namespace trireme::test_text_plot {
namespace {

TEST(TextPlot, IsAsWideAndHighAsAsked) {
  std::vector<double> x, y;
  for (int i = 0; i < 500; ++i) {
    x.push_back(i);
    y.push_back(i == 7 ? NAN : 4 - i * 0.005);
  }
  for (const Glyphs glyphs : {Glyphs::kBraille, Glyphs::kAscii}) {
    const std::string plot = text_plot(x, y, 60, 8, glyphs);
    EXPECT_EQ(std::count(plot.begin(), plot.end(), '\n'), 9);
    EXPECT_NE(plot.find(" 3.9"), std::string::npos) << plot;
    EXPECT_NE(plot.find("499"), std::string::npos) << plot;
  }
  EXPECT_EQ(text_plot({1, 2, 3, 4}, {1, 2, 3, 4}, 13, 2, Glyphs::kAscii),
            "      4 |  .:\n"
            "      1 |.:'\n"
            "         1  4\n");
  EXPECT_EQ(text_plot({}, {}, 60, 8), "");
  EXPECT_EQ(text_plot({1}, {NAN}, 60, 8), "");
  EXPECT_EQ(text_plot({1}, {1}, 5, 8), "");
  EXPECT_NE(text_plot({1}, {1}, 60, 8), "");
}

TEST(TextPlot, Sparkline) {
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}, 20), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({0, 0, 7, 7}, 2), "▁█");
  EXPECT_EQ(sparkline({}, 5), "");
  EXPECT_EQ(sparkline({NAN}, 5), "");
}

}  // namespace
}  // namespace trireme::test_text_plot
