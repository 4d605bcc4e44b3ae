// Rendezvous of sites that are jobs of their own: the process that adds their updates
// (parallel/outer/remote/site_hub.h), and the address at which they find it.
#pragma once

#include <atomic>
#include <string>

#include "parallel/outer/remote/hub_exchange.h"
#include "parallel/outer/remote/site_hub.h"
#include "training/config/run_config.h"

namespace trireme {

// Address of the rendezvous of a site's configuration. Reads the secret (read_secret_file()).
HubAddress hub_address(const OuterConfig& outer);

// Keys in which the run of another site differs from the first one's, with both values; empty:
// none. Layout, device, files, logging and evaluation may differ.
std::string site_difference(const RunConfig& first, const RunConfig& other);

// Note on a key that may differ but has an effect in the first site's run only; empty: none.
std::string site_note(const OuterConfig& first, const OuterConfig& other);

struct RendezvousOptions {
  std::string host = "127.0.0.1";
  int port = 0;              // 0: any free one
  std::string secret = {};   // at least 16 characters; empty: a new one
  std::string records = {};  // file that gets a JSON object per round; empty: none
};

class Rendezvous {
 public:
  explicit Rendezvous(const RendezvousOptions& options);  // InputError if it cannot listen
  std::string address() const;                            // "HOST:PORT"
  const std::string& secret() const { return hub_.address().secret; }
  // Serves until the run has ended or `stop` is set; returns whether it has ended.
  bool run(const std::atomic<bool>& stop) { return hub_.run(stop); }

 private:
  void report(const HubRound& round);
  std::string records_path_;
  SiteHub hub_;
};

}  // namespace trireme
