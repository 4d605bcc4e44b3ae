#include "engine/observe/text_plot.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/core/error.h"
#include "engine/observe/svg_plot.h"

namespace trireme {
namespace {

// Dots per character cell.
struct Cell {
  int wide, high;
};

// Mean of y per dot column; NaN without points, filled from the left neighbour if the curve
// continues to the right.
std::vector<double> columns_of(const std::vector<double>& x, const std::vector<double>& y,
                               size_t count) {
  std::vector<double> sum(count, 0.0), points(count, 0.0);
  const double left = x.front(), extent = x.back() - x.front();
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(y[i])) continue;
    const double at = extent > 0 ? (x[i] - left) / extent : 0;
    const auto column = std::min(count - 1, static_cast<size_t>(at * static_cast<double>(count)));
    sum[column] += y[i];
    points[column] += 1;
  }
  std::vector<double> mean(count, std::numeric_limits<double>::quiet_NaN());
  size_t previous = count;
  for (size_t c = 0; c < count; ++c) {
    if (points[c] == 0) continue;
    mean[c] = sum[c] / points[c];
    for (size_t gap = previous + 1; previous < count && gap < c; ++gap) {
      const double part = static_cast<double>(gap - previous) / static_cast<double>(c - previous);
      mean[gap] = mean[previous] + part * (mean[c] - mean[previous]);
    }
    previous = c;
  }
  return mean;
}

bool finite_range(const std::vector<double>& values, double& low, double& high) {
  low = std::numeric_limits<double>::infinity();
  high = -low;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  return low <= high;
}

std::string utf8(uint32_t code) {  // of the basic plane above U+07FF
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

// dots: rows of booleans, `cell.high` rows by `cell.wide` columns a character.
std::string cell_text(const std::vector<std::vector<bool>>& dots, size_t row, size_t column,
                      const Cell& cell) {
  // Unicode numbers the dots of a Braille cell column by column, the lowest row last.
  constexpr uint32_t kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  uint32_t bits = 0;
  for (int r = 0; r < cell.high; ++r) {
    for (int c = 0; c < cell.wide; ++c) {
      const size_t y = row * static_cast<size_t>(cell.high) + static_cast<size_t>(r);
      const size_t x = column * static_cast<size_t>(cell.wide) + static_cast<size_t>(c);
      if (dots[y][x]) bits |= kBits[r][c];
    }
  }
  if (bits == 0) return " ";
  if (cell.high == 4) return utf8(0x2800 + bits);
  return bits == kBits[0][0] ? "'" : bits == kBits[1][0] ? "." : ":";
}

}  // namespace

std::string text_plot(const std::vector<double>& x, const std::vector<double>& y, int columns,
                      int rows, Glyphs glyphs) {
  TRIREME_CHECK(x.size() == y.size(), "a plot has ", x.size(), " x values and ", y.size(),
                " y values");
  constexpr int kMargin = 9;  // "  12.345 |"
  if (x.empty() || columns < kMargin + 4 || rows < 2) return "";
  const Cell cell = glyphs == Glyphs::kBraille ? Cell{2, 4} : Cell{1, 2};
  const auto width = static_cast<size_t>(columns - kMargin) * static_cast<size_t>(cell.wide);
  const auto height = static_cast<size_t>(rows) * static_cast<size_t>(cell.high);
  const std::vector<double> means = columns_of(x, y, width);
  double low = 0, high = 0;
  if (!finite_range(means, low, high)) return "";
  const double extent = high > low ? high - low : 1;

  std::vector<std::vector<bool>> dots(height, std::vector<bool>(width, false));
  size_t previous = height;
  for (size_t c = 0; c < width; ++c) {
    if (!std::isfinite(means[c])) continue;
    const double part = (high - means[c]) / extent;
    const auto at = static_cast<size_t>(std::lround(part * static_cast<double>(height - 1)));
    // Steep pieces are drawn as upright strokes, so that the curve is connected.
    const size_t from = previous == height ? at : std::min(at, previous);
    const size_t to = previous == height ? at : std::max(at, previous);
    for (size_t r = from; r <= to; ++r) dots[r][c] = true;
    previous = at;
  }
  std::string out;
  for (int row = 0; row < rows; ++row) {
    std::string label;
    if (row == 0) label = fmt::format("{:.4g}", high);
    if (row == rows - 1) label = fmt::format("{:.4g}", low);
    out += fmt::format("{:>{}} |", label, kMargin - 2);
    std::string line;
    for (int column = 0; column < columns - kMargin; ++column) {
      line += cell_text(dots, static_cast<size_t>(row), static_cast<size_t>(column), cell);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  const std::string first = tick_text(x.front()), last = tick_text(x.back());
  const auto room = static_cast<size_t>(columns - kMargin);
  const size_t space = room > first.size() + last.size() ? room - first.size() - last.size() : 1;
  return out + std::string(kMargin, ' ') + first + std::string(space, ' ') + last + "\n";
}

std::string sparkline(const std::vector<double>& y, int columns) {
  if (y.empty() || columns < 1) return "";
  std::vector<double> x(y.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const auto means = columns_of(x, y, std::min(y.size(), static_cast<size_t>(columns)));
  double low = 0, high = 0;
  if (!finite_range(means, low, high)) return "";
  std::string out;
  for (const double mean : means) {
    const double part = high > low ? (mean - low) / (high - low) : 0.5;
    out += std::isfinite(mean) ? utf8(0x2581 + static_cast<uint32_t>(std::lround(part * 7))) : " ";
  }
  return out;
}

}  // namespace trireme
