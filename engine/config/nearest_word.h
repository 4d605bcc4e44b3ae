// Suggestion for a misspelled word: the nearest known configuration key, option or command.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Edits that turn a into b: insertions, deletions, substitutions and swaps of neighbours (optimal
// string alignment), ignoring case and treating '-' and '_' as equal.
int edit_distance(const std::string& a, const std::string& b);

// Nearest of `known`; "" if none is near. The first of these rules that finds a name decides; of
// several names under rules 2 and 3 the nearest in length:
//   1. fewest edits, at most one per three characters
//   2. the word is the name's initials ("tp": "tensor-parallel")
//   3. each part of the word, split at '-', '_' and '.', abbreviates a part of the name
//      ("batch-sz": "micro-batch-size"), or vice versa
// Leading hyphens do not count as parts.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace trireme
