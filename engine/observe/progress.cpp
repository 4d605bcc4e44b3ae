#include "engine/observe/progress.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/observe/console.h"

namespace trireme {
namespace {

// Three significant digits with a suffix, as "12.3k".
std::string scaled(double value, double base, const std::array<const char*, 5>& suffixes) {
  size_t i = 0;
  while (i + 1 < suffixes.size() && std::fabs(value) >= 999.5) {
    value /= base;
    ++i;
  }
  const double size = std::fabs(value);
  const int decimals = i == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, suffixes[i]);
}

constexpr int kMinBar = 8, kWidestBar = 30;

// Piece of the line; on a narrow terminal the lowest `weight` is dropped first.
struct Piece {
  int weight;
  std::string text;
};

size_t width_of(const std::vector<Piece>& pieces) {
  size_t width = 0;
  for (const Piece& piece : pieces) width += piece.text.size() + (width == 0 ? 0 : 2);
  return width;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "--:--";
  const auto total = static_cast<int64_t>(std::llround(seconds));
  const int64_t days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

std::string format_count(double count) { return scaled(count, 1000, {"", "k", "M", "G", "T"}); }

std::string format_bytes(int64_t bytes) {
  return scaled(static_cast<double>(bytes), 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}

std::string progress_line(const std::string& label, const StepMetrics& m, double eta_seconds,
                          int columns) {
  const double part =
      m.train_steps > 0 ? static_cast<double>(m.step) / static_cast<double>(m.train_steps) : 0;
  const double done = std::clamp(part, 0.0, 1.0);
  std::vector<Piece> pieces = {{2, label},
                               {9, fmt::format("{:3d}%", static_cast<int>(done * 100))},
                               {7, fmt::format("{}/{}", m.step, m.train_steps)},
                               {6, fmt::format("loss {:.4f}", m.loss)},
                               {4, format_count(m.tokens_per_second) + " tok/s"},
                               {8, "ETA " + format_duration(eta_seconds)}};
  const auto available = static_cast<size_t>(std::max(0, columns));
  while (!pieces.empty() && width_of(pieces) > available) {
    pieces.erase(std::min_element(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
      return a.weight < b.weight;
    }));
  }
  const int room = static_cast<int>(available) - static_cast<int>(width_of(pieces)) - 4;
  if (pieces.size() == 6 && room >= kMinBar) {
    const int width = std::min(room, kWidestBar);
    const auto filled = static_cast<size_t>(std::lround(done * width));
    const std::string bar =
        std::string(filled, '#') + std::string(static_cast<size_t>(width) - filled, '.');
    pieces.insert(pieces.begin() + 2, {0, "[" + bar + "]"});
  }
  std::string line;
  for (const Piece& piece : pieces) line += (line.empty() ? "" : "  ") + piece.text;
  return line;
}

ProgressBar::ProgressBar(std::string label, int64_t first_step)
    : label_(std::move(label)), first_step_(first_step), start_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() { console_set_status(""); }

void ProgressBar::update(const StepMetrics& metrics) {
  if (!console_is_terminal()) return;
  const auto now = std::chrono::steady_clock::now();
  const bool last = metrics.step >= metrics.train_steps;
  if (!last && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const auto done = static_cast<double>(std::max<int64_t>(1, metrics.step - first_step_));
  const double eta = elapsed / done * static_cast<double>(metrics.train_steps - metrics.step);
  // A character in the last column makes some terminals wrap.
  console_set_status(progress_line(label_, metrics, eta, console_width() - 1));
}

}  // namespace trireme
