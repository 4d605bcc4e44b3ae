// Line charts as SVG text: axes with round ticks, several series, a legend, light and dark colours
// according to the reader's system, no scripts. Suitable for a README, a report page and an e-mail
// attachment.
#pragma once

#include <string>
#include <vector>

namespace trireme {

struct PlotSeries {
  std::string name;       // "" : not in the legend
  std::vector<double> x;  // ascending; points with a non-finite x or y are gaps
  std::vector<double> y;  // as many as x
  int colour = 0;         // index into the palette of 6 colours, modulo its size; not negative
  bool faint = false;     // a thin pale line, for raw values of a smoothed curve
  bool points = false;    // also a dot at every point
};

struct Plot {
  std::string title, x_label, y_label;
  bool log_x = false, log_y = false;  // non-positive values are then gaps
  int width = 760, height = 380;      // pixels
  std::vector<PlotSeries> series;
};

// SVG of a plot. Series of more than two points per pixel are thinned, keeping the extremes of each
// pixel column. A plot without a point has a message instead of axes.
std::string svg_plot(const Plot& plot);

// Multiples, inside [low, high], of a step of 1, 2 or 5 times a power of ten: about `wanted` steps.
// Empty unless low < high.
std::vector<double> linear_ticks(double low, double high, int wanted);
// Powers of ten inside [low, high]; if the range spans less than 2.5 decades, also 2 and 5 times
// them. linear_ticks() if that gives fewer than three. Empty unless 0 < low < high.
std::vector<double> log_ticks(double low, double high);
std::string tick_text(double value);  // 0, 2.5, 1k, 20M, 1e-05

// Symmetric moving average, so that the curve does not lag the values: weights (1 - alpha)^distance
// with alpha = 2 / (window + 1), normalized to a sum of 1. distance, window: numbers of values; a
// window of 1 changes nothing. Non-finite values have no weight; in their place is the average of
// the finite ones.
std::vector<double> smoothed(const std::vector<double>& values, double window);

}  // namespace trireme
