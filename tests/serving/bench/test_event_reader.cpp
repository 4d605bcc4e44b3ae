#include <gtest/gtest.h>

#include "engine/core/error.h"
#include "serving/bench/event_reader.h"

namespace trireme::test_event_reader {
namespace {

std::vector<std::string> events_of(const std::vector<std::string>& pieces) {
  EventReader reader(100);
  std::vector<std::string> out;
  for (const std::string& piece : pieces)
    reader.feed(piece, [&](const std::string& data) { out.push_back(data); });
  return out;
}

TEST(EventReader, TakesEventsWhereverTheyAreCut) {
  const std::string stream =
      "data: a\n\n: ping\n\ndata:b\r\ndata: c\r\n\r\nevent: x\rid: 3\rdata\r\rdata: cut";
  const std::vector<std::string> want = {"a", "b\nc", ""};
  EXPECT_EQ(events_of({stream}), want);
  std::vector<std::string> bytes;
  for (const char c : stream) bytes.emplace_back(1, c);
  EXPECT_EQ(events_of(bytes), want);
  for (size_t cut = 0; cut <= stream.size(); ++cut)
    EXPECT_EQ(events_of({stream.substr(0, cut), stream.substr(cut)}), want) << cut;
}

TEST(EventReader, BoundsAnEvent) {
  EXPECT_EQ(events_of({"data: " + std::string(94, 'x') + "\n\n"}).size(), 1U);
  EXPECT_THROW(events_of({"data: " + std::string(95, 'x') + "\n\n"}), InputError);
  EXPECT_THROW(events_of(std::vector<std::string>(30, "data: 789\n")), InputError);
}

}  // namespace
}  // namespace trireme::test_event_reader
