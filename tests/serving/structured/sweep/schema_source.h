// Random schemas within the features that structured output supports.
#pragma once

#include <random>

#include "tests/serving/structured/sweep/json_validator.h"

namespace trireme::test {

class SchemaSource {
 public:
  explicit SchemaSource(uint64_t seed) : random_(seed) {}
  Json next();

 private:
  int64_t number(int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random_);
  }
  bool chance(int percent) { return number(1, 100) <= percent; }
  Json schema(int depth);
  Json constraints(int depth);
  Json exclusive_schema(int depth);
  Json string_schema();
  Json number_schema();
  Json array_schema(int depth);
  Json counted_array();
  Json object_schema(int depth);
  void add_counts(Json& object);
  Json dictionary();
  Json value(int depth);

  std::mt19937_64 random_;
  bool recursive_ = false;
};

}  // namespace trireme::test
