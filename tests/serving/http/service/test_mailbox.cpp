// Mailbox through which a response receives messages from other threads.
#include <gtest/gtest.h>

#include <new>

#include "serving/http/service/mailbox.h"

namespace trireme::test_mailbox {
namespace {

struct Messages {
  int first = 0;
  std::vector<int> all = {};
};

TEST(Mailbox, IsWokenWhereWhatComesSaysSo) {
  Mailbox<Messages> mailbox(7);
  int wakes = 0;
  const auto put = [&](int message, bool wakes_up) {
    mailbox.put([&](Messages& messages) {
      messages.all.push_back(message);
      return wakes_up;
    });
  };
  put(1, true);  // it is not open
  EXPECT_FALSE(mailbox.is_open());
  mailbox.open([&] { ++wakes; });
  EXPECT_TRUE(mailbox.is_open());
  put(2, true);
  put(3, false);
  mailbox.close();
  put(4, true);
  EXPECT_EQ(wakes, 1);
  EXPECT_EQ(mailbox.look([](Messages& messages) { return messages.first; }), 7);
  const std::vector<int> want{2, 3};
  EXPECT_EQ(mailbox.look([](Messages& messages) { return std::exchange(messages.all, {}); }), want);
  EXPECT_TRUE(mailbox.look([](Messages& messages) { return messages.all.empty(); }));
}

TEST(Mailbox, ReportsThatSomethingIsLost) {
  Mailbox<Messages> mailbox;
  int wakes = 0;
  mailbox.open([&] { ++wakes; });
  EXPECT_EQ(mailbox.failure(), "");
  mailbox.put([](Messages&) -> bool { throw std::bad_alloc(); });
  EXPECT_NE(mailbox.failure(), "");
  EXPECT_EQ(wakes, 1);
  mailbox.open([]() { throw std::bad_alloc(); });
  mailbox.put([](Messages&) { return true; });  // nothing is thrown
}

}  // namespace
}  // namespace trireme::test_mailbox
