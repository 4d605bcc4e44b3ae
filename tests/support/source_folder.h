#pragma once
#include <string>

namespace trireme::test {

// The checkout that the tests were built from; on another machine, where it is not, the working
// directory. A function: as a macro it would stand in every test's command, and a compiler cache
// would compile them anew in each checkout.
const std::string& source_folder();

}  // namespace trireme::test
