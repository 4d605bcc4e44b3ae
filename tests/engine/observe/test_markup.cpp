#include <gtest/gtest.h>

#include "engine/observe/markup.h"

namespace trireme::test_markup {
namespace {

TEST(Markup, NothingEscapesItsElement) {
  EXPECT_EQ(escape_markup("<a href=\"x\">&'\x01"), "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  EXPECT_EQ(json_for_script("{\"a\":\"</script><!--\"}"), "{\"a\":\"\\u003c/script>\\u003c!--\"}");
}

}  // namespace
}  // namespace trireme::test_markup
