// Checks of conditions under which a launch would hang or fail without a useful message.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

// Raises this process's soft limit of open descriptors to `wanted`, or to the hard limit if that is
// lower. InputError with `purpose`, the limit and the way out if the limit is then below `wanted`.
void require_descriptors(int64_t wanted, const std::string& purpose);

// Checks that Open MPI's mpirun at this path can start `ranks` ranks here: enough descriptors and
// processes, a writable session folder, a program whose --version names Open MPI within ten
// seconds. Raises the soft limits of descriptors and processes where necessary. InputError with the
// way out otherwise.
void check_mpirun(const std::string& mpirun, int ranks);

}  // namespace trireme
