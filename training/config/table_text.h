// Names and summaries of the rows of a table, for a choice of the schema.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/core/error.h"

namespace trireme {

template <class Row>
std::vector<std::string> names_of(std::span<const Row> rows, const char* Row::*name) {
  std::vector<std::string> names;
  for (const Row& row : rows) names.emplace_back(row.*name);
  return names;
}

// "average: mean of the sites' weights; diloco: ..."
template <class Row>
std::string summaries_of(std::span<const Row> rows, const char* Row::*name) {
  std::string all;
  for (const Row& row : rows) all += concat(all.empty() ? "" : "; ", row.*name, ": ", row.summary);
  return all;
}

}  // namespace trireme
