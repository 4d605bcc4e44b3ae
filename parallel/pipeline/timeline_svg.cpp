#include <algorithm>
#include <cstdio>

#include "engine/core/error.h"
#include "engine/observe/markup.h"
#include "engine/observe/svg_plot.h"
#include "parallel/pipeline/timeline.h"

namespace trireme {
namespace {

// Blue, green, light blue and orange of Okabe and Ito's palette, as in the charts.
constexpr const char* kStyle = R"(<style>
.pipe{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#333}
.pipe .paper{fill:#fff}.pipe .title{font-size:15px;font-weight:600;fill:#111}
.pipe .lane{fill:#f0f1f3}.pipe .tick{stroke:#888}.pipe rect.w{stroke:#fff;stroke-width:.8}
.pipe .k0{fill:#0072b2}.pipe .k1{fill:#009e73}.pipe .k2{fill:#56b4e9}.pipe .k3{fill:#e69f00}
.pipe .odd{opacity:.62}.pipe .n{font-size:11px;fill:#fff;text-anchor:middle}.pipe .dark{fill:#1b1b1b}
@media (prefers-color-scheme:dark){.pipe{fill:#c8c8c8}.pipe .paper{fill:#16191d}.pipe .title{fill:#eee}
.pipe .lane{fill:#23272d}.pipe .tick{stroke:#777}.pipe rect.w{stroke:#16191d}}
</style>
)";
constexpr double kWidth = 960, kLeft = 66, kRight = 96, kTop = 72, kRow = 30, kGap = 4;
constexpr double kDigit = 6.6;  // width of a digit, generously
constexpr const char* kKinds[4] = {"forward", "backward", "backward, input", "backward, weights"};

// A coordinate: two decimals, without trailing zeros.
std::string px(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.2f", value);
  std::string s = buffer;
  while (s.back() == '0') s.pop_back();
  if (s.back() == '.') s.pop_back();
  return s;
}

std::string percent(double share) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f %%", 100 * std::max(0.0, share));
  return buffer;
}

std::string text_at(double x, double y, const char* attributes, const std::string& content) {
  return concat("<text x=\"", px(x), "\" y=\"", px(y), "\"", attributes, ">",
                escape_markup(content), "</text>\n");
}

std::string draw_legend(const Schedule& schedule) {
  bool used[4] = {};
  for (const Instruction& in : schedule.ranks[0]) used[static_cast<size_t>(in.kind)] = true;
  std::string out;
  double x = kLeft;
  for (size_t k = 0; k < 4; ++k) {
    if (!used[k]) continue;
    out += concat("<rect class=\"k", k, "\" x=\"", px(x),
                  "\" y=\"42\" width=\"14\" height=\"12\"/>", text_at(x + 20, 52, "", kKinds[k]));
    x += 42 + kDigit * static_cast<double>(std::string(kKinds[k]).size());
  }
  if (schedule.chunks > 1) out += text_at(x, 52, "", "pale: odd chunks");
  return out;
}

std::string draw_rank(const Schedule& schedule, const Timeline& timeline, int rank, double scale) {
  const auto& order = schedule.ranks[static_cast<size_t>(rank)];
  const Timeline::Rank& times = timeline.ranks[static_cast<size_t>(rank)];
  const double top = kTop + rank * (kRow + kGap), middle = top + kRow / 2 + 4;
  std::string out = text_at(kLeft - 8, middle, " text-anchor=\"end\"", concat("rank ", rank));
  out += concat("<rect class=\"lane\" x=\"", px(kLeft), "\" y=\"", px(top), "\" width=\"",
                px(timeline.makespan * scale), "\" height=\"", px(kRow), "\"/>\n");
  for (size_t i = 0; i < order.size(); ++i) {
    const double x = kLeft + times.spans[i].start * scale;
    const double width = (times.spans[i].end - times.spans[i].start) * scale;
    if (width <= 0) continue;
    const Instruction& in = order[i];
    out += concat("<rect class=\"w k", static_cast<int>(in.kind), in.chunk % 2 == 1 ? " odd" : "",
                  "\" x=\"", px(x), "\" y=\"", px(top), "\" width=\"", px(width), "\" height=\"",
                  px(kRow), "\"/>");
    const std::string number = std::to_string(in.micro_batch);
    const bool dark = in.kind == InstructionKind::kBackwardInput ||
                      in.kind == InstructionKind::kBackwardWeight || in.chunk % 2 == 1;
    if (width >= kDigit * static_cast<double>(number.size()) + 2)
      out += text_at(x + width / 2, middle, dark ? " class=\"n dark\"" : " class=\"n\"", number);
    else
      out += "\n";
  }
  const double share = timeline.makespan > 0 ? timeline.idle(rank) / timeline.makespan : 0;
  return out + text_at(kWidth - kRight + 10, middle, "",
                       concat(percent(share), ", ", times.peak_in_flight));
}

}  // namespace

std::string timeline_svg(const Schedule& schedule, const StageTimes& times,
                         const Timeline& timeline) {
  const double bottom = kTop + schedule.stages * (kRow + kGap);
  const double height = bottom + 40;
  const double scale = timeline.makespan > 0 ? (kWidth - kLeft - kRight) / timeline.makespan : 1;
  const std::string sizes =
      concat(schedule.name, ": ", schedule.stages, " ranks, ",
             schedule.chunks > 1 ? concat(schedule.chunks, " chunks each, ") : std::string(),
             schedule.micro_batches, " micro-batches");
  const bool differs = timeline.idle_inside_of_total() + 1e-3 < timeline.idle_of_total();
  const std::string own =
      differs && idle_formula(schedule, times, 0).inside
          ? concat(" (", percent(timeline.idle_inside_of_total()), " without waiting at the end)")
          : std::string();
  std::string out =
      concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", px(kWidth), " ",
             px(height), "\" width=\"", px(kWidth), "\" height=\"", px(height),
             "\" class=\"pipe\" role=\"img\" aria-label=\"", escape_markup(sizes), "\">\n", kStyle);
  out += concat("<rect class=\"paper\" width=\"", px(kWidth), "\" height=\"", px(height),
                "\" rx=\"6\"/>\n");
  out += text_at(16, 26, " class=\"title\"",
                 concat(sizes, ", bubble ", percent(timeline.idle_of_total()), own));
  out += draw_legend(schedule);
  out += text_at(kWidth - kRight + 10, kTop - 10, "", "idle, peak");
  for (int r = 0; r < schedule.stages; ++r) out += draw_rank(schedule, timeline, r, scale);
  for (const double tick : linear_ticks(0, timeline.makespan, 10)) {
    const double x = kLeft + tick * scale;
    out += concat("<path class=\"tick\" d=\"M", px(x), " ", px(bottom), "v5\"/>",
                  text_at(x, bottom + 20, " text-anchor=\"middle\"", tick_text(tick)));
  }
  return out + "</svg>\n";
}

}  // namespace trireme
