#include "engine/observe/svg_plot.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/error.h"
#include "engine/observe/markup.h"

namespace trireme {
namespace {

// Okabe and Ito's palette without yellow and black: distinguishable for colour-blind readers, and
// legible on white and on dark grey.
constexpr const char* kStyle = R"(<style>
.plot{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#333}
.plot .paper{fill:#fff}.plot .title{font-size:15px;font-weight:600;fill:#111}
.plot .grid{stroke:#e4e4e4}.plot .axis{stroke:#888}.plot .line{fill:none;stroke-width:1.8;stroke-linejoin:round}
.plot .faint{stroke-width:1;opacity:.28}
.plot .c0{stroke:#0072b2}.plot .c1{stroke:#d55e00}.plot .c2{stroke:#009e73}.plot .c3{stroke:#cc79a7}
.plot .c4{stroke:#e69f00}.plot .c5{stroke:#56b4e9}
.plot .d0{fill:#0072b2}.plot .d1{fill:#d55e00}.plot .d2{fill:#009e73}.plot .d3{fill:#cc79a7}
.plot .d4{fill:#e69f00}.plot .d5{fill:#56b4e9}
@media (prefers-color-scheme:dark){.plot{fill:#c8c8c8}.plot .paper{fill:#16191d}.plot .title{fill:#eee}
.plot .grid{stroke:#2c3138}.plot .axis{stroke:#777}.plot .c0{stroke:#4aa8e0}.plot .d0{fill:#4aa8e0}
.plot .c1{stroke:#f08a3c}.plot .d1{fill:#f08a3c}.plot .c2{stroke:#2fc79a}.plot .d2{fill:#2fc79a}}
</style>
)";
constexpr int kColours = 6;
constexpr double kGlyphWidth = 6.6;  // of 12 px text, rather wide

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool empty() const { return low > high; }
  void include(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
};

// One dimension of the drawing: data range, ticks and conversion to pixels.
struct Axis {
  bool logarithmic = false;
  Range range;
  std::vector<double> ticks;
  double pixel_low = 0, pixel_high = 0;

  double value(double v) const { return logarithmic ? std::log10(v) : v; }
  double pixel(double v) const {
    const double low = value(range.low), high = value(range.high);
    return pixel_low + (value(v) - low) / (high - low) * (pixel_high - pixel_low);
  }
};

bool drawable(const Plot& plot, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!plot.log_x || x > 0) && (!plot.log_y || y > 0);
}

// Axis over a range, widened if it has no extent.
Axis make_axis(Range range, bool logarithmic, int wanted_ticks, bool to_ticks) {
  if (range.low == range.high) {
    const double pad = logarithmic ? 0 : std::max(std::fabs(range.low) * 0.05, 1e-9);
    range = logarithmic ? Range{range.low / 2, range.high * 2}
                        : Range{range.low - pad, range.high + pad};
  }
  Axis axis{logarithmic, range, {}, 0, 0};
  axis.ticks = logarithmic ? log_ticks(range.low, range.high)
                           : linear_ticks(range.low, range.high, wanted_ticks);
  if (to_ticks && !logarithmic && axis.ticks.size() >= 2) {
    const double step = axis.ticks[1] - axis.ticks[0];
    if (range.low < axis.ticks.front())
      axis.ticks.insert(axis.ticks.begin(), axis.ticks.front() - step);
    if (range.high > axis.ticks.back()) axis.ticks.push_back(axis.ticks.back() + step);
    axis.range = {axis.ticks.front(), axis.ticks.back()};
  }
  return axis;
}

// Path data of one series: per pixel column the first, lowest, highest and last point.
std::string path_of(const Plot& plot, const PlotSeries& series, const Axis& x, const Axis& y) {
  std::string path;
  bool pen_down = false;
  const auto draw = [&](double px, double py) {
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? 'L' : 'M', px, py);
    pen_down = true;
  };
  double column = -1, low = 0, high = 0, last = 0;
  const auto close_column = [&] {
    if (column < 0) return;
    if (low < std::min(high, last)) draw(column, low);
    if (high > last) draw(column, high);
    draw(column, last);
    column = -1;
  };
  const bool thin = static_cast<double>(series.x.size()) > 2 * (x.pixel_high - x.pixel_low);
  for (size_t i = 0; i < series.x.size(); ++i) {
    if (!drawable(plot, series.x[i], series.y[i])) {
      close_column();
      pen_down = false;
      continue;
    }
    const double px = x.pixel(series.x[i]), py = y.pixel(series.y[i]);
    if (!thin) {
      draw(px, py);
    } else if (std::floor(px) != column) {
      close_column();
      column = std::floor(px);
      low = high = last = py;
    } else {
      low = std::min(low, py);
      high = std::max(high, py);
      last = py;
    }
  }
  close_column();
  return path;
}

std::string draw_axes(const Plot& plot, const Axis& x, const Axis& y) {
  std::string out;
  for (const double tick : y.ticks) {
    const double at = y.pixel(tick);
    out += fmt::format(
        "<path class=\"grid\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        x.pixel_low, at, x.pixel_high, x.pixel_low - 8, at + 4, tick_text(tick));
  }
  for (const double tick : x.ticks) {
    const double at = x.pixel(tick);
    out += fmt::format(
        "<path class=\"axis\" d=\"M{:.1f} {:.1f}v5\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
        at, y.pixel_low, at, y.pixel_low + 19, tick_text(tick));
  }
  out += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>\n", x.pixel_low,
                     y.pixel_low, x.pixel_high);
  out +=
      fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                  (x.pixel_low + x.pixel_high) / 2, plot.height - 8, escape_markup(plot.x_label));
  const double middle = (y.pixel_low + y.pixel_high) / 2;
  out += fmt::format(
      "<text x=\"14\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {0:.1f})\">{1}"
      "</text>\n",
      middle, escape_markup(plot.y_label));
  return out;
}

// Swatches and names from the left, in as many rows as needed; moves `y` below them.
std::string draw_legend(const Plot& plot, double left, double& y) {
  std::string out;
  double x = left;
  for (const PlotSeries& series : plot.series) {
    if (series.name.empty()) continue;
    const double width = 34 + kGlyphWidth * static_cast<double>(series.name.size());
    if (x > left && x + width > plot.width - 10) {
      x = left;
      y += 18;
    }
    out += fmt::format(
        "<path class=\"line c{}\" d=\"M{:.1f} {:.1f}h18\"/><text x=\"{:.1f}\" "
        "y=\"{:.1f}\">{}</text>\n",
        series.colour % kColours, x, y - 4, x + 24, y, escape_markup(series.name));
    x += width;
  }
  if (!out.empty()) y += 14;
  return out;
}

std::string draw_series(const Plot& plot, const Axis& x, const Axis& y) {
  std::string out;
  for (const PlotSeries& series : plot.series) {
    const int colour = series.colour % kColours;
    const std::string path = path_of(plot, series, x, y);
    if (path.empty()) continue;
    out += fmt::format("<path class=\"line c{}{}\" d=\"{}\"/>\n", colour,
                       series.faint ? " faint" : "", path);
    if (!series.points) continue;
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (!drawable(plot, series.x[i], series.y[i])) continue;
      out += fmt::format("<circle class=\"d{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.6\"/>\n", colour,
                         x.pixel(series.x[i]), y.pixel(series.y[i]));
    }
  }
  return out;
}

}  // namespace

std::vector<double> linear_ticks(double low, double high, int wanted) {
  const double raw = (high - low) / std::max(1, wanted);
  if (!(raw > 0) || !std::isfinite(raw)) return {};
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double mantissa = raw / power;
  const double step = power * (mantissa < 1.5 ? 1 : mantissa < 3.5 ? 2 : mantissa < 7.5 ? 5 : 10);
  std::vector<double> ticks;
  // Multiples of the step, so that a tick at 0.3 is not 0.30000000000000004.
  const double first = std::ceil(low / step - 1e-9), last = std::floor(high / step + 1e-9);
  for (double k = first; k <= last && ticks.size() < 1000; ++k) ticks.push_back(k * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  if (!(low > 0) || !(high > low)) return {};
  const bool dense = std::log10(high / low) < 2.5;
  std::vector<double> ticks;
  for (double power = std::floor(std::log10(low)); power <= std::log10(high); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10.0, power);
      const bool inside = tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9);
      if (inside && (dense || factor == 1.0)) ticks.push_back(tick);
    }
  }
  return ticks.size() < 3 ? linear_ticks(low, high, 5) : ticks;
}

std::string tick_text(double value) {
  const double size = std::fabs(value);
  if (size < 1e-12) return "0";
  if (size < 1e-3) return fmt::format("{:.3g}", value);
  if (size >= 1e9) return fmt::format("{:.4g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (size >= 1e3) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.6g}", value);
}

std::vector<double> smoothed(const std::vector<double>& values, double window) {
  const double keep = 1 - 2 / (std::max(1.0, window) + 1);
  struct Sum {
    double value = 0, weight = 0;
  };
  // For each position the weighted sum of it and everything before, in iteration order.
  const auto accumulate = [keep](auto from, auto to) {
    std::vector<Sum> sums;
    Sum sum;
    for (; from != to; ++from) {
      const bool there = std::isfinite(*from);
      sum = {sum.value * keep + (there ? *from : 0), sum.weight * keep + (there ? 1 : 0)};
      sums.push_back(sum);
    }
    return sums;
  };
  const std::vector<Sum> left = accumulate(values.begin(), values.end());
  const std::vector<Sum> right = accumulate(values.rbegin(), values.rend());
  std::vector<double> out;
  for (size_t i = 0; i < values.size(); ++i) {
    const Sum& other = right[values.size() - 1 - i];
    const bool there = std::isfinite(values[i]);  // then counted on both sides
    const double weight = left[i].weight + other.weight - (there ? 1 : 0);
    const double sum = left[i].value + other.value - (there ? values[i] : 0);
    out.push_back(weight > 0 ? sum / weight : values[i]);
  }
  return out;
}

std::string svg_plot(const Plot& plot) {
  Range x_range, y_range;
  for (const PlotSeries& series : plot.series) {
    TRIREME_CHECK(series.x.size() == series.y.size(), "series ", series.name, " has ",
                  series.x.size(), " x values and ", series.y.size(), " y values");
    for (size_t i = 0; i < series.x.size(); ++i) {
      if (!drawable(plot, series.x[i], series.y[i])) continue;
      x_range.include(series.x[i]);
      y_range.include(series.y[i]);
    }
  }
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" "
      "class=\"plot\" role=\"img\" aria-label=\"{2}\">\n",
      plot.width, plot.height, escape_markup(plot.title));
  out += kStyle;
  out += fmt::format("<rect class=\"paper\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n", plot.width,
                     plot.height);
  out +=
      fmt::format("<text class=\"title\" x=\"16\" y=\"26\">{}</text>\n", escape_markup(plot.title));
  if (x_range.empty()) {
    return out +
           fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">no data</text>\n</svg>\n",
                       plot.width / 2, plot.height / 2);
  }
  double top = 48;
  const std::string legend = draw_legend(plot, 16, top);
  Axis x = make_axis(x_range, plot.log_x, std::max(3, plot.width / 110), false);
  Axis y = make_axis(y_range, plot.log_y, std::max(3, plot.height / 60), true);
  size_t widest = 1;
  for (const double tick : y.ticks) widest = std::max(widest, tick_text(tick).size());
  x.pixel_low = 34 + kGlyphWidth * static_cast<double>(widest) + 6;
  x.pixel_high = plot.width - 20;
  y.pixel_low = plot.height - 46;
  y.pixel_high = top;
  return out + legend + draw_axes(plot, x, y) + draw_series(plot, x, y) + "</svg>\n";
}

}  // namespace trireme
