// Coefficients of Adasum (Maleki et al. 2020), a combination of updates that adds those that are
// orthogonal and averages those that are parallel:
//
//   a (+) b = (1 - a.b / (2 |a|^2)) a + (1 - a.b / (2 |b|^2)) b
//
// of neighbours in a binary tree, in the order of the sites. Of an odd number of nodes the last one
// moves up as it is: three updates are (d_0 (+) d_1) (+) d_2.
//
// Every node of the tree is a linear combination of the updates, so their Gram matrix determines
// all norms and dot products, and with them the coefficients c of the result sum over s of c_s d_s.
#pragma once

#include <span>
#include <vector>

namespace trireme {

// Coefficients by site, zero for those that do not count.
//   gram    (S, S) row-major: dot products of the sites' updates of one tensor
//   counts  (S): whether a site's update is combined
// A factor that would divide by a norm of zero is 1; so is one whose norm is only the rounding
// error of a cancellation. Coefficients are rounded to 30 bits, so that the order in which a layout
// adds dot products does not show in the weights.
std::vector<double> adasum_coefficients(std::span<const double> gram,
                                        const std::vector<bool>& counts);

}  // namespace trireme
