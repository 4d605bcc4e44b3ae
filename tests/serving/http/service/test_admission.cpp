#include <gtest/gtest.h>

#include "serving/api/api_error.h"
#include "serving/http/service/admission.h"

namespace trireme::test_admission {
namespace {

std::string refusal(Admission& admission, const std::string& tenant, int64_t sequences,
                    int64_t tokens = 0) {
  try {
    admission.enter(tenant, sequences, tokens);
  } catch (const ApiError& error) {
    EXPECT_GT(error.retry_after_ms(), 0);
    return concat(error.status(), " ", error.error_code(), " ", error.what());
  }
  return "";
}

TEST(Admission, TakesAsManyAsThereAreAndNoMore) {
  Admission admission({.running = 2, .waiting = 3});
  const auto four = admission.enter("", 4, 0);
  EXPECT_EQ(refusal(admission, "", 1), "");
  EXPECT_EQ(refusal(admission, "", 2), "429 queue_full queue full (2 waiting)");
  auto one = admission.enter("", 1, 0);
  EXPECT_THROW(admission.check(""), ApiError);
  one.reset();
  EXPECT_NO_THROW(admission.check(""));
  four->end_sequence();
  EXPECT_EQ(admission.sequences(), 3);
  EXPECT_EQ(refusal(admission, "", 2), "");
}

TEST(Admission, CountsTheTokensOfPromptsThatWait) {
  Admission admission({.running = 8, .waiting = 8, .waiting_tokens = 100});
  {
    const auto ticket = admission.enter("", 1, 1000);  // the first is always admitted
    EXPECT_EQ(refusal(admission, "", 1, 1),
              "429 queue_full queue full (prompts of 1000 tokens waiting)");
    ticket->set_prompt_tokens(60);
    EXPECT_EQ(refusal(admission, "", 1, 40), "");
    EXPECT_NE(refusal(admission, "", 1, 41), "");
    ticket->set_prompt_tokens(0);
    EXPECT_EQ(refusal(admission, "", 1, 1000), "");
  }
  EXPECT_EQ(admission.prompt_tokens(), 0);
  EXPECT_EQ(admission.sequences(), 0);
}

TEST(Admission, KeepsTokensForOtherTenants) {
  Admission admission({.running = 8, .waiting = 8, .waiting_tokens = 100, .several_tenants = true});
  const auto first = admission.enter("a", 1, 40);
  EXPECT_EQ(refusal(admission, "a", 1, 11).substr(0, 3), "429");
  EXPECT_EQ(refusal(admission, "a", 1, 10), "");
  const auto other = admission.enter("b", 1, 60);  // the first of a tenant, while there is room
  EXPECT_EQ(refusal(admission, "c", 1, 1).substr(0, 3), "503");
  other->set_prompt_tokens(0);
  EXPECT_EQ(refusal(admission, "b", 1, 50), "");
}

TEST(Admission, KeepsPlacesForOtherTenants) {
  Admission admission({.running = 4, .waiting = 16, .several_tenants = true});
  // A single tenant may use half of all places; a second one gets the other half at once.
  const auto greedy = admission.enter("a", 10, 0);
  EXPECT_EQ(refusal(admission, "a", 1).substr(0, 3), "429");
  const auto other = admission.enter("b", 10, 0);
  EXPECT_EQ(refusal(admission, "b", 1).substr(0, 3), "429");
  // Full, and not because of this tenant; a single sequence is always admitted.
  EXPECT_EQ(refusal(admission, "c", 2).substr(0, 3), "503");
  const auto single = admission.enter("c", 1, 0);
  EXPECT_EQ(refusal(admission, "c", 1).substr(0, 3), "503");
}

// A busy key that came first keeps its places, and does not shut out any other key.
TEST(Admission, HasAPlaceForEveryTenant) {
  Admission admission({.running = 8, .waiting = 32, .several_tenants = true});
  const auto busy = admission.enter("busy", 20, 0);
  std::vector<std::unique_ptr<Admission::Ticket>> tickets;
  int refused = 0;
  for (int request = 0; request < 2; ++request)
    for (int key = 0; key < 19; ++key) {
      const std::string tenant = concat("key ", key);
      try {
        tickets.push_back(admission.enter(tenant, 1, 0));
      } catch (const ApiError& error) {
        EXPECT_EQ(error.status(), 503);
        EXPECT_EQ(request, 1);  // never the first one
        ++refused;
      }
    }
  EXPECT_EQ(refused, 18);  // second requests, while 20 places were free
  EXPECT_EQ(refusal(admission, "busy", 1).substr(0, 3), "429");
  // Places released by the busy key go to keys below their share.
  for (int i = 0; i < 18; ++i) busy->end_sequence();
  for (int key = 1; key < 19; ++key) tickets.push_back(admission.enter(concat("key ", key), 1, 0));
  EXPECT_EQ(admission.sequences(), 40);
  // All places are taken; a new tenant gets one nevertheless.
  for (const char* tenant : {"new", "newer"}) tickets.push_back(admission.enter(tenant, 1, 0));
  EXPECT_EQ(admission.sequences(), 42);
}

// Released places go to tenants below their share, until all have the same number.
TEST(Admission, SharesAmongThoseThatAreThere) {
  Admission admission({.running = 4, .waiting = 20, .several_tenants = true});
  const auto a = admission.enter("a", 12, 0), b = admission.enter("b", 12, 0);
  for (int i = 0; i < 5; ++i) a->end_sequence();
  const auto c = admission.enter("c", 4, 0);
  EXPECT_EQ(refusal(admission, "b", 1).substr(0, 3), "429");
  EXPECT_EQ(refusal(admission, "a", 2).substr(0, 3), "429");  // a third is eight
  const auto more = admission.enter("a", 1, 0);
  EXPECT_EQ(admission.sequences(), 24);
  b->end_sequence();
  EXPECT_EQ(refusal(admission, "b", 1).substr(0, 3), "429");
  EXPECT_EQ(refusal(admission, "c", 1), "");
  // A first request may exceed the share, so that none is refused forever.
  for (int i = 0; i < 11; ++i) b->end_sequence();
  EXPECT_EQ(refusal(admission, "d", 12), "");
}

// A single tenant can use all running places, however few may wait.
TEST(Admission, LeavesNoPlaceToRunEmpty) {
  Admission admission({.running = 4, .waiting = 1, .several_tenants = true});
  const auto all = admission.enter("a", 4, 0);
  EXPECT_EQ(refusal(admission, "a", 1).substr(0, 3), "429");
  EXPECT_EQ(refusal(admission, "b", 1), "");
}

// A valid request can be admitted eventually: clients retry refused ones.
TEST(Admission, TakesWhatATenantMayHave) {
  for (const bool several : {false, true}) {
    const AdmissionLimits limits{.running = 4, .waiting = 8, .several_tenants = several};
    EXPECT_EQ(limits.max_request_sequences(), several ? 6 : 12);
    Admission admission(limits);
    EXPECT_EQ(refusal(admission, "a", static_cast<int>(limits.max_request_sequences())), "");
    EXPECT_EQ(
        refusal(admission, "a", static_cast<int>(limits.max_request_sequences()) + 1).substr(0, 3),
        "429");
  }
}

TEST(Admission, TakesNothingWhenClosed) {
  Admission admission({});
  EXPECT_NO_THROW(admission.check_open());
  admission.close("draining", "the server is draining");
  EXPECT_EQ(refusal(admission, "", 1), "503 draining the server is draining");
  EXPECT_THROW(admission.check_open(), ApiError);
  admission.close("", "");
  EXPECT_EQ(refusal(admission, "", 1), "");
}

}  // namespace
}  // namespace trireme::test_admission
