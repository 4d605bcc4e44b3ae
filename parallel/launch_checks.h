// Conditions without which a launch hangs, or ends without a word of the cause.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// Raises this process's soft limit of open descriptors to the hard one where it is below `wanted`.
// InputError that names `purpose`, the limit and the way out where that is not enough.
void require_descriptors(int64_t wanted, const std::string& purpose);

// Whether Open MPI's mpirun at this path can start so many ranks here: enough descriptors and
// processes, a folder for its session in which files can be made, a program whose --version names
// Open MPI within ten seconds. InputError with the way out otherwise.
void check_mpirun(const std::string& mpirun, int ranks);

}  // namespace trireme
