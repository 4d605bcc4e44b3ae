// Table printer for standard output.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Prints rows with aligned columns; the last column is not padded.
void print_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace trireme
