#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "transformer/pass/kv_groups.h"

namespace trireme::test_kv_groups {
namespace {

using Windows = std::vector<int64_t>;

ModelConfig model(Windows windows, int64_t layers = 0) {
  ModelConfig config;
  config.num_layers = layers > 0 ? layers : std::ssize(windows);
  config.windows = std::move(windows);
  return config;
}

constexpr int64_t kLong = 1000;

Windows layers(int64_t full, int64_t with_window) {
  Windows windows(static_cast<size_t>(full), 0);
  windows.insert(windows.end(), static_cast<size_t>(with_window), 9);
  return windows;
}

TEST(KvGroups, HaveLayersOfOneWindow) {
  EXPECT_EQ(kv_windows(model({}, 7), kLong), (Windows{0}));
  EXPECT_EQ(kv_windows(model({0, 0, 0}), kLong), (Windows{0}));
  EXPECT_EQ(kv_windows(model({9, 9, 9}), kLong), (Windows{9}));
  EXPECT_EQ(kv_windows(model({9, 0, 9, 0}), kLong), (Windows{0, 9}));
  EXPECT_EQ(kv_windows(model({9, 9, 9, 0, 9, 9, 9, 0}), kLong), (Windows{0, 9, 9, 9}));
  EXPECT_EQ(kv_windows(model({0, 0, 0, 9}), kLong), (Windows{0, 0, 0, 9}));
  EXPECT_EQ(kv_windows(model({9, 4, 0, 9}), kLong), (Windows{0, 4, 9, 9}));
  EXPECT_EQ(kv_windows(model({9, 4, 9}), kLong), (Windows{4, 9, 9}));
}

TEST(KvGroups, ChunksAreAKindOfTheirOwn) {
  ModelConfig config = model({0, 9, 0, 0, 0, 9});
  config.attention_chunk = 32;
  config.chunked_layers = {1, 0, 1, 0, 0, 0};
  EXPECT_EQ(kv_windows(config, kLong), (Windows{0, -32, 9}));
  EXPECT_EQ(kv_windows(config, 9), (Windows{0}));
  const std::vector<KvPlace> places = kv_places(config, kv_windows(config, kLong), 0, 6);
  EXPECT_EQ(places[0].group, 1);
  EXPECT_EQ(places[1].group, 2);
  EXPECT_EQ(places[3].group, 0);
}

TEST(KvGroups, AreOneWhereNoSequenceIsLongerThanAWindow) {
  EXPECT_EQ(kv_windows(model({9, 0, 9, 0}), 9), (Windows{0}));
  EXPECT_EQ(kv_windows(model({9, 0, 9, 0}), 10), (Windows{0, 9}));
  EXPECT_EQ(kv_windows(model({9, 9}), 9), (Windows{0}));
}

TEST(KvGroups, HaveFewEmptyPlaces) {
  const auto groups = [](int64_t full, int64_t with_window) {
    return std::ssize(kv_windows(model(layers(full, with_window)), kLong));
  };
  EXPECT_EQ(groups(12, 12), 2);
  EXPECT_EQ(groups(8, 40), 6);
  EXPECT_EQ(groups(5, 29), 7);    // 35 places
  EXPECT_EQ(groups(10, 52), 13);  // 65 places; groups of 10 have 70
  EXPECT_EQ(groups(24, 4), 7);
  for (int64_t full = 1; full < 40; ++full)
    for (int64_t with_window = 1; with_window < 40; ++with_window) {
      const ModelConfig config = model(layers(full, with_window));
      const Windows windows = kv_windows(config, kLong);
      int64_t size = 0;
      for (const KvPlace& place : kv_places(config, windows, 0, config.num_layers))
        size = std::max(size, place.index + 1);
      EXPECT_LE(16 * (size * std::ssize(windows) - full - with_window), size * std::ssize(windows));
    }
}

TEST(KvGroups, EveryLayerHasAPlaceOfItsOwn) {
  for (const ModelConfig& config : {model({9, 9, 9, 9, 9, 0, 9, 9, 9, 9, 9, 0, 9}),
                                    model({9, 4, 0, 9, 0}), model({7, 7}), model({}, 5)}) {
    const Windows windows = kv_windows(config, kLong);
    for (int64_t stages = 1; stages <= 3; ++stages) {
      int64_t first = 0;
      for (int64_t stage = 0; stage < stages; ++stage) {
        const int64_t layers = config.num_layers / stages + (stage < config.num_layers % stages);
        const std::vector<KvPlace> places = kv_places(config, windows, first, layers);
        ASSERT_EQ(std::ssize(places), layers);
        std::vector<int64_t> used(windows.size());
        for (int64_t l = 0; l < layers; ++l) {
          const KvPlace& place = places[static_cast<size_t>(l)];
          const auto group = static_cast<size_t>(place.group);
          EXPECT_EQ(windows.at(group), config.window(first + l));
          EXPECT_EQ(place.index, used[group]++);
        }
        // Groups of the same window have the same number of layers, or one more.
        for (size_t a = 0; a < windows.size(); ++a)
          for (size_t b = 0; b < windows.size(); ++b)
            EXPECT_TRUE(windows[a] != windows[b] || used[a] <= used[b] + 1);
        first += layers;
      }
    }
  }
}

TEST(KvGroups, OneGroupHasAllLayersWhateverTheirWindows) {
  const std::vector<KvPlace> places = kv_places(model({9, 0, 9, 0}), Windows{0}, 1, 3);
  ASSERT_EQ(places.size(), 3u);
  for (int64_t l = 0; l < 3; ++l) {
    EXPECT_EQ(places[static_cast<size_t>(l)].group, 0);
    EXPECT_EQ(places[static_cast<size_t>(l)].index, l);
  }
  EXPECT_THROW(kv_places(model({9, 0, 9, 0}), Windows{0, 8}, 0, 4), Error);
}

}  // namespace
}  // namespace trireme::test_kv_groups
