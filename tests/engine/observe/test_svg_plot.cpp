#include <gtest/gtest.h>

#include <cmath>

#include "engine/observe/svg_plot.h"

namespace trireme::test_svg_plot {
namespace {

// Checks that tags are closed in reverse order of opening: sufficient for the XML written here.
bool well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (size_t at = svg.find('<'); at != std::string::npos; at = svg.find('<', at + 1)) {
    const size_t end = svg.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = svg.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" \n/", 1));
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != name) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty();
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_EQ(linear_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(linear_ticks(1.62, 4.19, 6), (std::vector<double>{2, 2.5, 3, 3.5, 4}));
  EXPECT_EQ(linear_ticks(-3, 3, 3), (std::vector<double>{-2, 0, 2}));
  EXPECT_TRUE(linear_ticks(1, 1, 5).empty());
  EXPECT_TRUE(linear_ticks(NAN, 1, 5).empty());
  EXPECT_EQ(log_ticks(1, 1e4), (std::vector<double>{1, 10, 100, 1000, 10000}));
  EXPECT_EQ(log_ticks(1, 60), (std::vector<double>{1, 2, 5, 10, 20, 50}));
  EXPECT_TRUE(log_ticks(0, 1).empty());
  for (const auto& [value, want] :
       std::vector<std::pair<double, std::string>>{{0, "0"},
                                                   {0.3 - 0.1 - 0.2, "0"},
                                                   {2.5, "2.5"},
                                                   {1000, "1k"},
                                                   {2e7, "20M"},
                                                   {1e-5, "1e-05"},
                                                   {-0.25, "-0.25"},
                                                   {3e9, "3G"},
                                                   {1500, "1.5k"}}) {
    EXPECT_EQ(tick_text(value), want);
  }
}

TEST(SvgPlot, DrawsWhatItIsGiven) {
  Plot plot{"Loss <& \"more\">", "step", "nats", false, false, 400, 200, {}};
  plot.series = {{"run <1>", {1, 2, 3}, {3, NAN, 1}, 0, false, true},
                 {"", {1, 3}, {2, 2}, 1, true, false}};
  const std::string svg = svg_plot(plot);
  EXPECT_TRUE(well_formed(svg)) << svg;
  EXPECT_NE(svg.find("run &lt;1&gt;"), std::string::npos);
  EXPECT_EQ(svg.find("run <1>"), std::string::npos);
  EXPECT_EQ(count(svg, "<circle"), 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"line c1 faint\""), 1u);
}

TEST(SvgPlot, NothingToDrawIsSaid) {
  for (const auto& values : {std::vector<double>{}, {NAN, INFINITY}}) {
    const std::string svg =
        svg_plot({"t", "x", "y", false, false, 400, 200, {{"r", values, values}}});
    EXPECT_TRUE(well_formed(svg));
    EXPECT_NE(svg.find("no data"), std::string::npos);
  }
  const std::string svg = svg_plot({"t", "x", "y", true, true, 400, 200, {{"r", {-1, 0}, {1, 1}}}});
  EXPECT_NE(svg.find("no data"), std::string::npos);
}

TEST(SvgPlot, OnePointAndConstantsHaveAxes) {
  for (const bool logarithmic : {false, true}) {
    const std::string svg = svg_plot(
        {"t", "x", "y", logarithmic, logarithmic, 400, 200, {{"r", {5}, {2}, 0, false, true}}});
    EXPECT_TRUE(well_formed(svg));
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << svg;
    EXPECT_EQ(count(svg, "<circle"), 1u);
  }
}

TEST(SvgPlot, LongSeriesAreThinnedButKeepTheirPeaks) {
  Plot plot{"t", "x", "y", false, false, 400, 200, {}};
  PlotSeries series{"r", {}, {}, 0, false, false};
  for (int i = 0; i < 100000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 54321 ? 100.0 : std::sin(i));
  }
  plot.series = {series};
  const std::string svg = svg_plot(plot);
  EXPECT_LT(svg.size(), 40000u);
  // The peak is the only point above 1.1: only it reaches the upper half of the plot.
  EXPECT_TRUE(well_formed(svg));
  plot.series[0].y[54321] = 0;
  EXPECT_NE(svg_plot(plot), svg);
}

TEST(Smoothed, KeepsConstantsAndLinesAndPassesOverGaps) {
  for (const double value : smoothed({2, 2, NAN, 2}, 10)) EXPECT_DOUBLE_EQ(value, 2);
  std::vector<double> line;
  for (int i = 0; i < 401; ++i) line.push_back(i);
  EXPECT_NEAR(smoothed(line, 20)[200], 200, 1e-9);  // no lag
  EXPECT_TRUE(smoothed({}, 5).empty());
  EXPECT_TRUE(std::isnan(smoothed({NAN}, 5)[0]));
}

}  // namespace
}  // namespace trireme::test_svg_plot
