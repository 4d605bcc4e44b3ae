#include "serving/structured/string_formats.h"

#include <array>
#include <utility>

namespace trireme {
namespace {

// RFC 3339: every day that there is, of the years 0001 to 9999.
constexpr char kDate[] =
    "("
    "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})-"
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29"
    ")";
constexpr char kTime[] =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr char kUuid[] = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
constexpr char kLabel[] = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
constexpr char kByte[] = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

constexpr char kDuration[] =
    "P([0-9]{1,4}[YMWD]|([0-9]{1,4}D)?T([0-9]{1,4}[HMS]|[0-9]{1,4}H[0-9]{1,2}M([0-9]{1,2}S)?))";
constexpr char kPath[] = "(/[A-Za-z0-9._~-]+)";

std::string host() { return std::string(kLabel) + "(\\." + kLabel + "){0,3}"; }

std::string uri() {
  return "https?://" + host() + "(:[1-9][0-9]{0,3})?" + kPath + "*/?(\\?[A-Za-z0-9._~=&-]*)?";
}

std::string email() {
  return "[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,30})?@" + std::string(kLabel) + "(\\." + kLabel +
         "){1,2}";
}

const auto& table() {
  static const std::string reference = "(" + uri() + "|" + kPath + "+/?)";
  static const std::array<std::pair<std::string, std::string>, 17> formats = {{
      {"date", kDate},
      {"time", kTime},
      {"date-time", std::string(kDate) + "T" + kTime},
      {"duration", kDuration},
      {"uuid", kUuid},
      {"email", email()},
      {"idn-email", email()},
      {"hostname", host()},
      {"idn-hostname", host()},
      {"ipv4", std::string(kByte) + "(\\." + kByte + "){3}"},
      {"ipv6", "[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}"},
      {"uri", uri()},
      {"iri", uri()},
      {"uri-reference", reference},
      {"iri-reference", reference},
      {"json-pointer", "(/[A-Za-z0-9_-]+)*"},
      {"relative-json-pointer", "(0|[1-9][0-9]{0,3})(#|(/[A-Za-z0-9_-]+)*)"},
  }};
  return formats;
}

}  // namespace

std::string format_expression(std::string_view format) {
  for (const auto& [name, expression] : table())
    if (name == format) return expression;
  return "";
}

}  // namespace trireme
