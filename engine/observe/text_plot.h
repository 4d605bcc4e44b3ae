// Curves drawn with characters for a terminal.
#pragma once

#include <string>
#include <vector>

namespace trireme {

enum class Glyphs { kBraille, kAscii };

// A curve with a y axis, `rows` lines of at most `columns` characters, and a line with the range of
// x below; a newline after each line:
//   4.17 |:.
//        | '::...
//   1.80 |     '''::......
//         1          2000
// Each column shows the mean of its values; columns between those with values are interpolated. x
// is ascending. Non-finite y are skipped. "" without a finite y, for fewer than 13 columns or fewer
// than 2 rows.
std::string text_plot(const std::vector<double>& x, const std::vector<double>& y, int columns,
                      int rows, Glyphs glyphs = Glyphs::kBraille);

// One line of eight-level bars, `columns` wide at most, without a newline; "" without a finite y.
std::string sparkline(const std::vector<double>& y, int columns);

}  // namespace trireme
