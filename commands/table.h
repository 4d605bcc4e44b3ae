// Tables on the standard output.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Rows with the columns aligned; the last column is not padded.
void print_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace trireme
