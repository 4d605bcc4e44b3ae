#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/core/error.h"
#include "parallel/pipeline/timeline.h"

namespace trireme {
namespace {

constexpr int kLabel = 9;       // columns before the cells
constexpr int kWidestCell = 4;  // columns of the shortest instruction
constexpr int kMaxLines = 60;   // in all bands, before cells are drawn too small for numbers

struct Cell {
  char glyph = '.';
  int colour = 0;  // 256-colour background; 0: none
};
using Row = std::vector<Cell>;

// Backgrounds by instruction and chunk parity, light enough for black digits.
int colour_of(const Instruction& in) {
  constexpr int kColours[4][2] = {{117, 75}, {120, 78}, {158, 115}, {222, 215}};
  return kColours[static_cast<size_t>(in.kind)][in.chunk % 2];
}

char letter_of(const Instruction& in) {
  const char letter = "FBIW"[static_cast<size_t>(in.kind)];
  return in.chunk % 2 == 0 ? letter : static_cast<char>(letter - 'A' + 'a');
}

// Columns per unit of time.
double choose_scale(const Schedule& schedule, const StageTimes& times, double makespan,
                    int columns) {
  double shortest = makespan;
  for (const Instruction& in : schedule.ranks[0])
    if (times.of(in.kind) > 0) shortest = std::min(shortest, times.of(in.kind));
  if (!(shortest > 0)) return 1;
  const double lengths = makespan / shortest;
  const int numbered = 1 + static_cast<int>(std::to_string(schedule.micro_batches - 1).size());
  for (int cell = std::max(kWidestCell, numbered); cell >= numbered; --cell)
    if (lengths * cell <= columns) return cell / shortest;
  for (int cell = numbered; cell >= 2; --cell) {
    const double bands = std::ceil(lengths * cell / columns);
    if (bands * (schedule.stages + 1) <= kMaxLines) return cell / shortest;
  }
  if (lengths <= columns) return 1 / shortest;
  return columns / makespan;
}

Row paint(const std::vector<Instruction>& order, const std::vector<Timeline::Span>& spans,
          double scale, size_t columns) {
  Row row(columns);
  for (size_t i = 0; i < order.size(); ++i) {
    const auto begin = static_cast<size_t>(std::lround(spans[i].start * scale));
    const size_t end = std::min(columns, static_cast<size_t>(std::lround(spans[i].end * scale)));
    if (begin >= end) continue;
    const size_t width = end - begin;
    std::string label = std::to_string(order[i].micro_batch);
    if (label.size() > width - 1) label = label.substr(label.size() - (width - 1));
    label.insert(label.begin(), letter_of(order[i]));
    label.resize(width, '-');
    for (size_t c = 0; c < width; ++c) row[begin + c] = {label[c], colour_of(order[i])};
  }
  return row;
}

std::string render(const Row& row, size_t begin, size_t end, bool colour) {
  std::string out;
  int current = 0;
  for (size_t c = begin; c < std::min(end, row.size()); ++c) {
    const Cell& cell = row[c];
    if (colour && cell.colour != current) {
      out += cell.colour == 0 ? std::string("\033[0m") : concat("\033[30;48;5;", cell.colour, "m");
      current = cell.colour;
    }
    out += colour && cell.glyph == '-' ? ' ' : cell.glyph;
  }
  return current == 0 ? out : out + "\033[0m";
}

std::string number(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.5g", value);
  return buffer;
}

std::string percent_text(double share) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f %%", 100 * std::max(0.0, share));
  return buffer;
}

std::string padded(const std::string& s, size_t width) {
  return s.size() < width ? std::string(width - s.size(), ' ') + s : s;
}

// Times at the ends of a band, below its cells.
std::string axis(double from, double to, size_t columns) {
  const std::string left = number(from), right = number(to);
  const size_t gap =
      columns > left.size() + right.size() ? columns - left.size() - right.size() : size_t{1};
  return std::string(kLabel, ' ') + left + std::string(gap, ' ') + right + "\n";
}

std::string legend(const Schedule& schedule) {
  bool used[4] = {};
  for (const Instruction& in : schedule.ranks[0]) used[static_cast<size_t>(in.kind)] = true;
  constexpr const char* kMeaning[4] = {"F forward", "B backward", "I backward of the input",
                                       "W of the weights"};
  std::string out(kLabel, ' ');
  for (size_t k = 0; k < 4; ++k)
    if (used[k]) out += concat(kMeaning[k], "   ");
  out += ". idle";
  if (schedule.chunks > 1) out += "   small letters: odd chunks";
  return out + "\n";
}

}  // namespace

std::string timeline_text(const Schedule& schedule, const StageTimes& times,
                          const Timeline& timeline, const TimelineTextOptions& options) {
  const int columns = std::max(40, options.width) - kLabel;
  const double scale = choose_scale(schedule, times, timeline.makespan, columns);
  const auto total = static_cast<size_t>(std::max(1L, std::lround(timeline.makespan * scale)));
  const auto band = static_cast<size_t>(columns);
  std::vector<Row> rows;
  for (size_t r = 0; r < schedule.ranks.size(); ++r)
    rows.push_back(paint(schedule.ranks[r], timeline.ranks[r].spans, scale, total));
  std::string out;
  for (size_t begin = 0; begin < total; begin += band) {
    const size_t end = std::min(total, begin + band);
    for (size_t r = 0; r < rows.size(); ++r) {
      std::string label = concat("rank ", r);
      label.resize(kLabel, ' ');
      out += concat(label, render(rows[r], begin, end, options.colour), "\n");
    }
    out += axis(static_cast<double>(begin) / scale,
                std::min(timeline.makespan, static_cast<double>(end) / scale), end - begin);
  }
  return out + legend(schedule);
}

std::string timeline_table(const Schedule& schedule, const StageTimes& times,
                           const Timeline& timeline) {
  constexpr size_t kColumn = 11;
  std::string out = concat(padded("rank", 4), padded("busy", kColumn), padded("idle", kColumn),
                           padded("of time", kColumn), padded("own idle", kColumn),
                           padded("peak in flight", 17), "\n");
  for (int r = 0; r < schedule.stages; ++r) {
    const Timeline::Rank& rank = timeline.ranks[static_cast<size_t>(r)];
    const double idle = timeline.idle(r);
    const double share = timeline.makespan > 0 ? idle / timeline.makespan : 0;
    out += concat(padded(std::to_string(r), 4), padded(number(rank.busy), kColumn),
                  padded(number(idle), kColumn), padded(percent_text(share), kColumn),
                  padded(number(rank.idle_inside), kColumn),
                  padded(std::to_string(rank.peak_in_flight), 17), "\n");
  }
  out += concat("\nbubble ", percent_text(timeline.idle_of_total()), " of the time, ",
                percent_text(timeline.idle_of_ideal()), " of the work; makespan ",
                number(timeline.makespan), "\n");
  const bool differs = timeline.idle_inside_of_total() + 1e-3 < timeline.idle_of_total();
  if (differs && idle_formula(schedule, times, 0).inside) {
    out += concat("       ", percent_text(timeline.idle_inside_of_total()),
                  " when no rank waits for the others at the end (own idle)\n");
  }
  return out;
}

}  // namespace trireme
