#include "transformer/pass/kv_groups.h"

#include <algorithm>
#include <map>
#include <ranges>

#include "engine/ops/context.h"

namespace trireme {

namespace {

constexpr int64_t kPlacesOfAnEmptyOne = 16;

int64_t window_of(const ModelConfig& config, int64_t layer) {
  return config.chunked(layer) ? -config.attention_chunk : config.window(layer);
}

// Orders windows: 0 comes first.
struct BeforeWindow {
  bool operator()(int64_t a, int64_t b) const {
    return std::pair(a != 0, a) < std::pair(b != 0, b);
  }
};
using LayerCounts = std::map<int64_t, int64_t, BeforeWindow>;  // by window

// Number of layers in a group.
int64_t group_size(const LayerCounts& layers) {
  const auto counts = layers | std::views::values;
  int64_t size = std::ranges::min(counts);
  const auto is_filled = [&](int64_t count) {
    const int64_t places = ceil_div(count, size) * size;
    return (places - count) * kPlacesOfAnEmptyOne <= places;
  };
  while (!std::ranges::all_of(counts, is_filled)) --size;  // ends at 1
  return size;
}

}  // namespace

std::vector<int64_t> kv_windows(const ModelConfig& config, int64_t length) {
  LayerCounts layers;
  bool drops = false;
  for (int64_t l = 0; l < config.num_layers; ++l) {
    const int64_t window = window_of(config, l);
    ++layers[window];
    drops = drops || (window != 0 && std::abs(window) < length);
  }
  if (!drops) return {0};
  const int64_t size = group_size(layers);
  std::vector<int64_t> windows;
  for (const auto& [window, count] : layers)
    windows.insert(windows.end(), static_cast<size_t>(ceil_div(count, size)), window);
  return windows;
}

std::vector<KvPlace> kv_places(const ModelConfig& config, std::span<const int64_t> windows,
                               int64_t first_layer, int64_t layers) {
  const bool one = windows.size() == 1;
  std::map<int64_t, int64_t> seen;  // layers so far, by window
  std::vector<int64_t> used(windows.size(), 0);
  std::vector<KvPlace> places;
  for (int64_t l = 0; l < first_layer + layers; ++l) {
    const int64_t window = one ? windows[0] : window_of(config, l);
    const auto groups = std::ranges::equal_range(windows, window, BeforeWindow());
    TRIREME_CHECK(!groups.empty(), "layer ", l, " has a window of ", window,
                  ", which no group of the KV cache has");
    // In turn, so that the groups have about as many layers on every rank.
    const int64_t turn = seen[window]++ % std::ssize(groups);
    const int64_t group = groups.begin() - windows.begin() + turn;
    if (l >= first_layer) places.push_back({group, used[static_cast<size_t>(group)]++});
  }
  return places;
}

}  // namespace trireme
