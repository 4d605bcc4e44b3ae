// The known word that a mistyped or half-remembered one was meant to be: a key of a configuration,
// an option, a command.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal string
// alignment), comparing without regard to case and to '-' against '_'.
int edit_distance(const std::string& a, const std::string& b);

// The nearest of `known`, "" where none is near: the one with the fewest edits, at most one in
// three characters; else the one with these initials ("tp": "tensor-parallel"); else the one
// nearest in length whose parts between '-', '_' and '.' are shortened by the word's ("batch-sz":
// "micro-batch-size"), or shorten them. Leading hyphens do not count as parts.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace trireme
