#include <fstream>

#include "engine/core/error.h"
#include "engine/observe/log.h"
#include "serving/http/server/refusal_log.h"
#include "tests/serving/http/service/recorded_server.h"
#include "tests/support/scratch_directory.h"

namespace trireme::test_refusal_log {
namespace {

using namespace test;

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) out.push_back(line);
  return out;
}

TEST(RefusalLog, ShowsWhoGuessesKeysAndNoKey) {
  const ScratchDirectory folder;
  open_log_file(folder / "log");
  {
    RecordedServerOptions options;
    options.http.keys = ApiKeys({"user"}, {"admin"});
    RecordedServer server(options);
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(server.ask(get(concat("/v1/models?guess=", i), "Authorization: Bearer sesame\r\n"))
                    .status,
                401);
  }
  close_log_file();
  const std::vector<std::string> lines = lines_of(folder / "log");
  EXPECT_EQ(std::ssize(lines), RefusalLog::kLines);
  for (const std::string& line : lines) {
    EXPECT_NE(line.find("127.0.0.1 to /v1/models with 401 invalid_api_key"), std::string::npos)
        << line;
    EXPECT_EQ(line.find("sesame"), std::string::npos) << line;
    EXPECT_EQ(line.find("guess"), std::string::npos) << line;
  }
}

TEST(RefusalLog, CountsWhatItDoesNotWrite) {
  const ScratchDirectory folder;
  open_log_file(folder / "log");
  RefusalLog log;
  const ApiError error(403, "a message", "", "admin_key_required");
  RefusalLog::Clock::time_point now{RefusalLog::kPeriod};
  for (int i = 0; i < 100; ++i) log.note("192.0.2.7", "", error, now);
  log.note("192.0.2.8", "/metrics", error, now + RefusalLog::kPeriod);
  close_log_file();
  const std::vector<std::string> lines = lines_of(folder / "log");
  ASSERT_EQ(std::ssize(lines), RefusalLog::kLines + 1);
  EXPECT_NE(lines[0].find("192.0.2.7 to no route with 403 admin_key_required"), std::string::npos);
  EXPECT_NE(lines.back().find("192.0.2.8 to /metrics"), std::string::npos) << lines.back();
  EXPECT_NE(lines.back().find("95 more since the last line"), std::string::npos) << lines.back();
}

}  // namespace
}  // namespace trireme::test_refusal_log
