// Connection set-up of ranks: hello, coordinates, liveness board.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/core/cpu.h"
#include "parallel/comm/collectives/collectives.h"
#include "parallel/comm/liveness/fixed_width.h"

namespace trireme {
namespace {

// Increased whenever ranks of two builds would not understand each other.
constexpr int kWireFormat = 2;

struct Hello {
  std::string build;      // build id and wire format
  std::string options;    // settings that must be equal on all ranks
  std::string host;       // name, and what distinguishes two machines with one name
  std::string container;  // its process namespace there
  int pid = 0;
  int cores = 1;
  std::string core_list;
};

// Includes the boot id, because machines may have the same name, as clones do.
std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return concat(name, "/", boot);
}

// Name of the process namespace. Ranks share memory through the process ids of peers, and another
// container of the same machine numbers processes differently.
std::string container_name() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

// Description of each rank: "rank 2 (process 4711 on node17)".
std::vector<std::string> introductions(const std::vector<Hello>& all) {
  std::vector<std::string> who;
  for (size_t r = 0; r < all.size(); ++r)
    who.push_back(concat("rank ", r, " (process ", all[r].pid, " on ",
                         all[r].host.substr(0, all[r].host.find('/')), ")"));
  return who;
}

// Cores that this rank may use before it pins its threads: "0 1 2 3".
std::string core_list() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::string list;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) list += concat(list.empty() ? "" : " ", core);
  return list;
}

std::string options_text(const CommOptions& o) {
  return concat("algorithm ", static_cast<int>(o.algorithm), ", ranks_per_node ", o.ranks_per_node,
                ", window_bytes ", o.window_bytes, ", check_operations ", o.check_operations);
}

std::string write_hello(const Hello& h) {
  return concat(h.build, "\n", h.options, "\n", h.host, "\n", h.container, "\n",
                fixed_width(h.pid, 10), " ", h.cores, "\n", h.core_list);
}

Hello read_hello(const std::string& line) {
  Hello h;
  std::istringstream in(line);
  std::getline(in, h.build);
  std::getline(in, h.options);
  std::getline(in, h.host);
  std::getline(in, h.container);
  in >> h.pid >> h.cores;
  in >> std::ws;
  std::getline(in, h.core_list);
  TRIREME_CHECK(!in.fail() && h.cores >= 1, "a rank sent the invalid greeting \"", line, "\"");
  return h;
}

void compare(const std::vector<Hello>& all) {
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r].build != all[0].build)
      fail_input("rank ", r, " on ", all[r].host, " runs a different program than rank 0 on ",
                 all[0].host, " (", all[r].build, " against ", all[0].build,
                 "); start the same executable everywhere");
    if (all[r].options != all[0].options)
      fail_input("rank ", r, " has different communication options than rank 0 (", all[r].options,
                 " against ", all[0].options, "); give all ranks the same configuration");
  }
}

// Coordinates of all ranks, without `shares`.
std::vector<RankCoordinates> find_coordinates(const std::vector<Hello>& all, int ranks_per_node) {
  std::map<std::string, int> hosts, containers;
  std::map<int, int> ranks_of_host, ranks_of_container;
  std::map<std::pair<int, int>, int> nodes;  // (container, virtual node in it)
  const auto number = [](auto& numbers, const auto& key) {
    return numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second;
  };
  std::vector<RankCoordinates> coordinates;
  for (const Hello& hello : all) {
    RankCoordinates member;
    member.host = number(hosts, hello.host);
    member.local = ranks_of_host[member.host]++;
    member.container = number(containers, concat(hello.host, "/", hello.container));
    const int index = ranks_of_container[member.container]++;
    const int part = ranks_per_node > 0 ? index / ranks_per_node : 0;
    member.node = number(nodes, std::pair{member.container, part});
    coordinates.push_back(member);
  }
  return coordinates;
}

// Detects whether ranks share cores on some machine, and whether this rank's machine still has to
// be divided among its ranks: a launcher that binds ranks has given them different cores.
void find_crowds(const std::vector<Hello>& all, RankState& state) {
  const int own_host = state.coordinates[static_cast<size_t>(state.transport->rank())].host;
  std::map<int, std::vector<const Hello*>> hosts;
  for (size_t r = 0; r < all.size(); ++r) hosts[state.coordinates[r].host].push_back(&all[r]);
  for (const auto& [host, ranks] : hosts) {
    const Hello& first = *ranks[0];
    const bool same =
        std::ranges::all_of(ranks, [&](const Hello* h) { return h->core_list == first.core_list; });
    if (host == own_host) state.same_cores = same;
    const int others = host == own_host ? state.machine_ranks.all : 0;
    if (same && std::max(static_cast<int>(ranks.size()), others) > first.cores)
      state.oversubscribed = true;
  }
}

// Joins the board of this rank's container, which its first rank creates.
void join_board(GroupState& world, RankState& state) {
  const auto self = static_cast<size_t>(world.rank);
  std::vector<int> mates;
  int row = 0;
  for (int r = 0; r < world.size(); ++r) {
    const RankCoordinates& member = state.coordinates[static_cast<size_t>(r)];
    if (member.host == state.coordinates[self].host) ++state.host_ranks;
    if (member.container != state.coordinates[self].container) continue;
    if (r == world.rank) row = static_cast<int>(mates.size());
    mates.push_back(r);
  }
  Operation op(world, CommKind::kControl, 0);
  SharedMemory board;
  bool mine = true;
  // Ranks that cannot share memory still work, point to point.
  const auto attempt = [&](auto&& f) {
    try {
      f();
    } catch (const Error&) {
      mine = false;
    }
  };
  const bool first = mates[0] == world.rank;
  const int64_t bytes = Liveness::board_bytes(static_cast<int>(mates.size()));
  if (first) attempt([&] { board = SharedMemory::create(bytes); });
  const std::string address = gather_strings(op, board.address())[static_cast<size_t>(mates[0])];
  if (!first) attempt([&] { board = SharedMemory::attach(address, bytes); });
  const std::vector<std::string> votes = gather_strings(op, mine ? "y" : "n");
  const bool shares_memory =
      std::ranges::all_of(mates, [&](int r) { return votes[static_cast<size_t>(r)] == "y"; });
  for (int r : mates) state.coordinates[static_cast<size_t>(r)].shares_memory = shares_memory;
  board.close_address();
  if (shares_memory) state.liveness.join(std::move(board), mates, row);
  dissemination_barrier(op);
  if (shares_memory) state.liveness.watch();
  if (shares_memory) state.board_ranks = static_cast<int>(mates.size());
}

// Not for ranks that are threads of one process: they live and die together.
void start_watchdog(RankState& state, const Announce& announce) {
  const Transport& link = *state.transport;
  if (link.size() == 1 || !link.ranks_are_processes()) return;
  std::vector<int> lines = link.life_lines();
  for (size_t r = 0; r < lines.size(); ++r)
    if (state.liveness.on_board(static_cast<int>(r))) lines[r] = -1;
  // One reporting rank per machine, if there is more than one machine.
  const bool says_terminated = state.board_ranks < link.size() &&
                               state.coordinates[static_cast<size_t>(link.rank())].local == 0;
  state.watchdog =
      std::make_unique<Watchdog>(state.liveness, PeerLinks(lines), says_terminated, announce);
}

}  // namespace

void RankState::count(CommKind kind, const Traffic::Counter& moved) {
  const std::lock_guard lock(traffic_mutex);
  traffic[kind] += moved;
}

std::byte* RankState::scratch(size_t which, int64_t bytes) {
  Buffer& buffer = scratch_[which];
  if (buffer.bytes() < bytes) {
    buffer = Buffer();  // frees the old one first
    buffer = Buffer("communication scratch", bytes);
  }
  return buffer.data();
}

std::shared_ptr<RankState> connect_rank(std::unique_ptr<Transport> transport,
                                        const CommOptions& options, const std::string& build_id,
                                        const Announce& announce) {
  if (options.ranks_per_node < 0)
    fail_input("comm.ranks_per_node ", options.ranks_per_node, " must not be negative");
  if (options.window_bytes < 64)
    fail_input("the node window of ", options.window_bytes, " bytes is too small (at least 64)");
  auto state = std::make_shared<RankState>(std::move(transport), options);
  state->machine_ranks = machine_ranks_from_environment();
  Transport& link = *state->transport;
  GroupState hello_group;
  hello_group.rank_state = state;
  hello_group.name = "world";
  hello_group.rank = link.rank();
  for (int r = 0; r < link.size(); ++r) hello_group.members.push_back(r);

  const std::string build = build_id.empty() ? executable_build_id() : build_id;
  const Hello own{concat("build ", build, ", wire format ", kWireFormat),
                  options_text(options),
                  host_name(),
                  container_name(),
                  getpid(),
                  available_cores(),
                  core_list()};
  std::vector<Hello> all;
  {
    Operation op(hello_group, CommKind::kControl, 0);
    for (const std::string& line : gather_strings(op, write_hello(own)))
      all.push_back(read_hello(line));
  }
  compare(all);
  state->coordinates = find_coordinates(all, options.ranks_per_node);
  find_crowds(all, *state);
  state->liveness.introduce(link.rank(), introductions(all));
  join_board(hello_group, *state);
  start_watchdog(*state, announce);
  return state;
}

}  // namespace trireme
