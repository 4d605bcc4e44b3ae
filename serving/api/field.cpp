#include "serving/api/field.h"

#include <utility>

namespace trireme {

Field& Field::required() {
  is_required = true;
  return *this;
}

Field& Field::range(double least_value, double max_value) {
  min = least_value;
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

Field& Field::entries(size_t fewest, size_t largest) {
  least = fewest;
  most = largest;
  return *this;
}

Field& Field::one_of(std::vector<std::string> choices) {
  words = std::move(choices);
  return *this;
}

}  // namespace trireme
