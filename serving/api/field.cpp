#include "serving/api/field.h"

#include <utility>

namespace trireme {

Field& Field::required() {
  is_required = true;
  return *this;
}

Field& Field::range(double min_value, double max_value) {
  min = min_value;
  max = max_value;
  return *this;
}

Field& Field::at_least(double bound) {
  min = bound;
  return *this;
}

Field& Field::at_most(double bound) {
  max = bound;
  return *this;
}

Field& Field::size_range(size_t least, size_t most) {
  min_size = least;
  max_size = most;
  return *this;
}

Field& Field::one_of(std::vector<std::string> choices) {
  words = std::move(choices);
  return *this;
}

}  // namespace trireme
