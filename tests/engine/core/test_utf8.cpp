// Foreign bytes printed to a terminal.
#include <gtest/gtest.h>

#include "engine/core/utf8.h"

namespace trireme::test_utf8 {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  const std::string text = "line one\n\ttwo \xE2\x82\xAC \xF0\x9F\x98\x80";
  EXPECT_EQ(printable(text), text);
}

TEST(Printable, SpellsWhatATerminalWouldObeyAndWhatIsNoCharacter) {
  EXPECT_EQ(printable("a\x1B[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable(std::string("\0\r\x7F", 3)), "\\x00\\x0d\\x7f");
  EXPECT_EQ(printable("\xFF\xE2\x82"), "\\xff\\xe2\\x82");
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J"),
            "\\xc2\\x9b2J");
  EXPECT_EQ(printable("\xC2\xA0"), "\xC2\xA0");
  EXPECT_EQ(printable("\xC0\x80"
                      "a"),
            "\\xc0\\x80a");
}

TEST(Printable, CutsWhatIsTooLong) {
  EXPECT_EQ(printable(std::string(100, 'x'), 3), "xxx... and 97 bytes more");
  EXPECT_EQ(printable("ab\xE2\x82\xAC", 3), "ab\\xe2... and 2 bytes more");
}

}  // namespace
}  // namespace trireme::test_utf8
