// Sites of a run as processes of this machine, and their rendezvous in this process: for tests, and
// to try on one machine what will run on several.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "training/config/run_config.h"

namespace trireme {

struct LocalSites {
  int sites = 0;
  int ranks = 1;                     // of each site
  std::vector<std::string> command;  // of a site, without the keys that differ between sites
  std::string output_dir = {};       // site i writes to output_dir/site-i
  bool divides_cores = true;         // gives each rank its share of the cores
};

// Keys of site i, as --set gives them.
std::vector<std::string> keys_of_local_site(const LocalSites& sites, int site,
                                            const std::string& rendezvous,
                                            const std::string& secret_file);

// Runs the sites until all have ended, and passes SIGUSR1 (save) and SIGUSR2 (save and stop) on to
// all of them: take_signal() returns one of these, or 0, and is called again and again. A closed
// standard output is passed on as SIGUSR2. The sites have process groups of their own, which a
// terminal's signals do not reach, and the kernel kills them when the calling thread ends. The
// console has the output of site 0, and the errors of all. Returns the first exit code of a site
// that is not 0, 128 + signal if a signal ended it, or 0.
int run_local_sites(const LocalSites& sites, const std::function<int()>& take_signal);

}  // namespace trireme
