// Curves drawn with characters for a terminal.
#pragma once

#include <string>
#include <vector>

namespace trireme {

enum class Glyphs { kBraille, kAscii };

// A curve in columns x rows characters with a y axis and the range of x below it, newline after
// each row:
//   4.17 |:.
//        | '::...
//   1.80 |     '''::......
//         1          2000
// Each column shows the mean of its values; columns between those with values are interpolated. x
// is ascending. Non-finite y are skipped; "" if there is nothing to draw.
std::string text_plot(const std::vector<double>& x, const std::vector<double>& y, int columns,
                      int rows, Glyphs glyphs = Glyphs::kBraille);

// One line of eight-level bars, `columns` wide at most.
std::string sparkline(const std::vector<double>& y, int columns);

}  // namespace trireme
