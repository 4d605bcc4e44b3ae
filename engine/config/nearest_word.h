// Suggestion for a misspelled word: the nearest known configuration key, option or command.
#pragma once

#include <string>
#include <vector>

namespace trireme {

// Number of edits that turn a into b: insertions, deletions, substitutions and swaps of adjacent
// characters (optimal string alignment distance). Ignores case and treats '-' and '_' as equal.
// Returns 128 if either has more than 128 characters.
int edit_distance(const std::string& a, const std::string& b);

// Returns the name in `known` that is nearest to `word`; "" if none is near. The first of these
// rules that finds a name decides:
//   1. fewest edits: at most one per three characters of the word, but always one
//   2. the word, of at least two letters, is the name's initials ("tp": "tensor-parallel")
//   3. each part of the word, split at '-', '_' and '.', abbreviates a part of the name, in order
//      ("batch-sz": "micro-batch-size"), or vice versa; both have more than three characters. An
//      abbreviation has the same first letter and omits some of the others.
// Among several names, rules 2 and 3 prefer the nearest in length; then the first in `known` wins.
// Leading hyphens are ignored by rules 2 and 3.
std::string nearest_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace trireme
