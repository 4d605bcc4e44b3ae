#include "engine/ops/gemm/gemm_algorithms.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>
#include <utility>

#include "engine/core/error.h"

namespace trireme {
namespace {

constexpr const char* kTitle = "trireme gemm algorithms 1";
constexpr std::string_view kDevice = "device ", kLibrary = "library ";

// Parses the next word of a line, which must be a number as a whole.
template <class T>
bool take_number(std::string_view& line, T& value, int base = 10) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  const std::string_view word = line.substr(0, line.find(' '));
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (error != std::errc() || end != word.data() + word.size()) return false;
  line.remove_prefix(word.size());
  return true;
}

bool read_choice(std::string_view line, GemmAlgorithms::Product& product,
                 GemmAlgorithms::Choice& choice) {
  for (int64_t& part : product)
    if (!take_number(line, part)) return false;
  int bias_first = 0;
  if (!take_number(line, bias_first) || (bias_first != 0 && bias_first != 1)) return false;
  choice.bias_first = bias_first == 1;
  for (uint64_t& word : choice.algorithm)
    if (!take_number(line, word, 16)) return false;
  return line.empty();
}

}  // namespace

std::string gemm_algorithms_text(const GemmAlgorithms& algorithms) {
  std::ostringstream out;
  out << kTitle << "\n"
      << kDevice << algorithms.device << "\n"
      << kLibrary << algorithms.version << "\n";
  for (const auto& [product, choice] : algorithms.chosen) {
    out << std::dec;
    for (const int64_t part : product) out << part << " ";
    out << (choice.bias_first ? 1 : 0) << std::hex;
    for (const uint64_t word : choice.algorithm) out << " " << word;
    out << "\n";
  }
  return out.str();
}

GemmAlgorithms read_gemm_algorithms(const std::string& text, const std::string& path) {
  std::istringstream in(text);
  std::string line;
  const auto next = [&] { return static_cast<bool>(std::getline(in, line)); };
  if (!next() || line != kTitle)
    fail_input(path, " line 1: expected \"", kTitle, "\"; remove the file to choose again");
  GemmAlgorithms out;
  int64_t number = 1;
  for (const auto& [word, value] : {std::pair{kDevice, &out.device}, {kLibrary, &out.version}}) {
    ++number;
    if (!next() || !line.starts_with(word))
      fail_input(path, " line ", number, ": expected \"", word,
                 "...\"; remove the file to choose again");
    *value = line.substr(word.size());
  }
  while (next()) {
    ++number;
    GemmAlgorithms::Product product;
    GemmAlgorithms::Choice choice;
    if (!read_choice(line, product, choice))
      fail_input(path, " line ", number,
                 ": expected 9 numbers and 8 hexadecimal ones; remove the file to choose again");
    out.chosen[product] = choice;
  }
  return out;
}

}  // namespace trireme
