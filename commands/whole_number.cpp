#include "commands/whole_number.h"

#include <CLI/CLI.hpp>

#include "engine/core/error.h"

namespace trireme {

CLI::Validator whole_number(int64_t least) {
  const auto problem = [least](const std::string& word) {
    int64_t value = 0;
    if (CLI::detail::lexical_cast(word, value) && value >= least) return std::string();
    return concat("\"", word, "\" is not a whole number of at least ", least);
  };
  return {problem, least == 0 ? "NONNEGATIVE" : "POSITIVE"};
}

}  // namespace trireme
