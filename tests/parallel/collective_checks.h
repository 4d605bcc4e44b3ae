// Checks of every collective against plain loops, for ranks with any transport.
#pragma once

#include "parallel/comm/communicator.h"

namespace trireme::test {

// Call on every rank of the group. Returns "" or the first error on this rank. Values are small
// whole numbers, so that every order of additions gives the same bits in every dtype.
std::string check_collectives(Communicator& group);
std::string check_all_reduce(Communicator& group, DType dtype, int64_t n);

double operand(int rank, int64_t i);                         // element i of rank's operand
void fill(const Tensor& t, int rank);                        // operand(rank, i)
void fill_normal(const Tensor& t, const std::string& name);  // normals of that name
std::string bytes_of(const ConstTensor& t);

}  // namespace trireme::test
