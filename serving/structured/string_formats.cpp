#include "serving/structured/string_formats.h"

#include <array>
#include <utility>

#include "engine/core/error.h"

namespace trireme {
namespace {

// RFC 3339: every existing day of the years 0001 to 9999.
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

// --- formats of given strings ---

constexpr char kAnyTime[] =
    "(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
    "|23:59:60(\\.[0-9]+)?[Zz])";
constexpr char kAnyDuration[] =
    "P(([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)?"
    "(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))"
    "|[0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+W)";
constexpr char kAnyUuid[] =
    "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
constexpr char kPointer[] = "(/([^~/]|~[01])*)*";
constexpr char kAboveAscii[] = "\\u{80}-\\u{10FFFF}";

// letters: characters above ASCII, as part of a class; "": none.
std::string any_host(const std::string& letters) {
  const std::string letter = "[A-Za-z0-9" + letters + "]",
                    inside = "[A-Za-z0-9" + letters + "-]{0,61}",
                    label = letter + "(" + inside + letter + ")?";
  return label + "(\\." + label + ")*";
}

std::string any_email(const std::string& letters) {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~" + letters + "-]+";
  return "(" + atom + "(\\." + atom + ")*|\"([^\"\\\\]|\\\\.)*\")@(" + any_host(letters) +
         "|\\[[0-9A-Za-z:.]+\\])";
}

std::string any_ipv4() { return std::string(kByte) + "(\\." + kByte + "){3}"; }

std::string any_ipv6() {
  const std::string h = "[0-9A-Fa-f]{1,4}", hc = "(" + h + ":)",
                    last = "(" + h + ":" + h + "|" + any_ipv4() + ")";
  std::string all = hc + "{6}" + last + "|::" + hc + "{5}" + last;
  for (int before = 0; before <= 4; ++before)  // groups before "::" beyond the first
    all += concat("|(", hc, "{0,", before, "}", h, ")?::", hc, "{", 4 - before, "}", last);
  return all + "|(" + hc + "{0,5}" + h + ")?::" + h + "|(" + hc + "{0,6}" + h + ")?::";
}

std::string any_uri(const std::string& letters, bool may_be_relative) {
  const std::string plain = "A-Za-z0-9._~!$&'()*+,;=" + letters + "-", escape = "%[0-9A-Fa-f]{2}",
                    pchar = "([:@" + plain + "]|" + escape + ")",
                    authority = "//(([:" + plain + "]|" + escape + ")*@)?(\\[(" + any_ipv6() +
                                ")\\]|([" + plain + "]|" + escape + ")*)(:[0-9]*)?",
                    path = "(/" + pchar + "*)*",
                    end = "(\\?([:@/?" + plain + "]|" + escape + ")*)?(#([:@/?" + plain + "]|" +
                          escape + ")*)?",
                    rooted = authority + path + "|/(" + pchar + "+" + path + ")?";
  std::string absolute =
      "[A-Za-z][A-Za-z0-9+.-]*:(" + rooted + "|(" + pchar + "+" + path + ")?)" + end;
  if (!may_be_relative) return absolute;
  return absolute + "|(" + rooted + "|(([@" + plain + "]|" + escape + ")+" + path + ")?)" + end;
}

}  // namespace

std::string format_expression(std::string_view format) {
  for (const auto& [name, expression] : table())
    if (name == format) return expression;
  return "";
}

std::string format_check(std::string_view format) {
  if (format == "time") return kAnyTime;
  if (format == "date-time") return std::string(kDate) + "[Tt]" + kAnyTime;
  if (format == "duration") return kAnyDuration;
  if (format == "uuid") return kAnyUuid;
  if (format == "email") return any_email("");
  if (format == "idn-email") return any_email(kAboveAscii);
  if (format == "hostname") return any_host("");
  if (format == "idn-hostname") return any_host(kAboveAscii);
  if (format == "ipv6") return any_ipv6();
  if (format == "uri") return any_uri("", false);
  if (format == "iri") return any_uri(kAboveAscii, false);
  if (format == "uri-reference") return any_uri("", true);
  if (format == "iri-reference") return any_uri(kAboveAscii, true);
  if (format == "json-pointer") return kPointer;
  if (format == "relative-json-pointer") return std::string("(0|[1-9][0-9]*)(#|") + kPointer + ")";
  return format_expression(format);  // date, ipv4
}

}  // namespace trireme
