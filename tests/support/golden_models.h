#pragma once
#include <string>
#include <vector>

namespace trireme::test {

// Names of the folders of tests/golden/hf, in alphabetical order: a model, its configuration and
// its results, made by tests/golden/make_transformers.py.
std::vector<std::string> golden_models();

// Path of the folder of that name.
std::string golden_folder(const std::string& name);

}  // namespace trireme::test
