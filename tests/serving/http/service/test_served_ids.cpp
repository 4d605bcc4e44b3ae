#include <gtest/gtest.h>

#include "serving/api/api_error.h"
#include "serving/http/service/served_ids.h"

namespace trireme::test_served_ids {
namespace {

const std::vector<ModelCard> kModel{{.id = "m"}};

ModelCard card(const char* name, int32_t slot) {
  return {.id = name, .parent = "m", .adapter = slot};
}

int status_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const ApiError& error) {
    return error.status();
  }
  return 200;
}

TEST(ServedIds, FreeASlotWhenTheLastRequestIsOver) {
  std::vector<int32_t> freed;
  ServedIds ids(kModel, 2, [&](int32_t slot) { freed.push_back(slot); });
  EXPECT_EQ(ids.find("m")->generation, 0U);
  for (const char* name : {"a", "b"}) ids.add(card(name, ids.free_slot(name)));
  EXPECT_EQ(ids.find("b")->card.adapter, 1);
  EXPECT_EQ(status_of([&] { (void)ids.free_slot("b"); }), 400);
  EXPECT_EQ(status_of([&] { (void)ids.free_slot("m"); }), 400);
  EXPECT_EQ(status_of([&] { (void)ids.free_slot("c"); }), 503);
  std::optional<ServedId> request = ids.find("b");
  std::optional<ServedId> other = request;
  ids.remove("b");
  EXPECT_FALSE(ids.find("b").has_value());
  EXPECT_EQ(status_of([&] { ids.remove("b"); }), 404);
  EXPECT_EQ(status_of([&] { ids.remove("m"); }), 404);
  request.reset();
  EXPECT_EQ(status_of([&] { (void)ids.free_slot("c"); }), 503);
  EXPECT_TRUE(freed.empty());
  const uint64_t before = other->generation;
  other.reset();
  EXPECT_EQ(freed, (std::vector<int32_t>{1}));
  EXPECT_EQ(ids.name_of(1), "b");  // a metrics scrape may still need it
  ids.add(card("b", ids.free_slot("b")));
  EXPECT_EQ(ids.find("b")->card.adapter, 1);
  EXPECT_GT(ids.find("b")->generation, before);  // no cached block belongs to it
  EXPECT_EQ(ids.cards().size(), 3U);
}

TEST(ServedIds, TellNobodyOfSlotsBehindTheirEnd) {
  std::vector<int32_t> freed;
  std::optional<ServedId> request;
  {
    ServedIds ids(kModel, 1, [&](int32_t slot) { freed.push_back(slot); });
    ids.add(card("a", 0));
    request = ids.find("a");
  }
  request.reset();
  EXPECT_TRUE(freed.empty());
}

TEST(ServedIds, WithoutRoomAreThoseOfTheBeginning) {
  const ServedIds ids({kModel[0], card("a", 0)}, 0, [](int32_t) { FAIL(); });
  EXPECT_EQ(ids.find("a")->card.adapter, 0);
  EXPECT_EQ(ids.name_of(0), "a");
  EXPECT_EQ(ids.max_adapters(), 1);
  EXPECT_EQ(status_of([&] { (void)ids.free_slot("b"); }), 503);
}

}  // namespace
}  // namespace trireme::test_served_ids
