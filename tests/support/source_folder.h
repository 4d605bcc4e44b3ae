#pragma once
#include <string>

namespace trireme::test {

// Checkout that the tests were built from; where it does not exist (another machine), the working
// directory. A function, because a macro would be part of every test's compile command, and a
// compiler cache would miss in each new checkout.
const std::string& source_folder();

}  // namespace trireme::test
