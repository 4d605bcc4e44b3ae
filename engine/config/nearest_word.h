// Suggestion for a misspelled word: the nearest known configuration key, option or command.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Edits that turn a into b: insertions, deletions, substitutions and swaps of neighbours (optimal
// string alignment), ignoring case and treating '-' and '_' as equal.
int edit_distance(const std::string& a, const std::string& b);

// Nearest of `known`, "" if none is near: the one with the fewest edits, at most one per three
// characters; else the one with these initials ("tp": "tensor-parallel"); else, among those whose
// parts between '-', '_' and '.' the word's parts abbreviate ("batch-sz": "micro-batch-size") or
// vice versa, the nearest in length. Leading hyphens do not count as parts.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace trireme
