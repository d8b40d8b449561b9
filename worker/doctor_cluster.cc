// What `dtrain doctor` says about the way to other nodes. Nothing is sent to anybody but the name service and
// Slurm.
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/timex.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cluster/detect/detect.h"
#include "cluster/detect/slurm_node.h"
#include "cluster/mpi/module.h"
#include "cluster/net/endpoint.h"
#include "cluster/net/token.h"
#include "runtime/base/check.h"
#include "training/start/peers.h"
#include "worker/doctor.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr auto kPatience = std::chrono::seconds(5);

Finding check_interfaces() {
  ifaddrs* list = nullptr;
  check(Sys{::getifaddrs(&list)}, "getifaddrs");
  std::string found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool usable = entry->ifa_addr != nullptr && entry->ifa_addr->sa_family == AF_INET &&
                        (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable) continue;
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", entry->ifa_name,
                         SocketAddress(entry->ifa_addr, sizeof(sockaddr_in)).host());
  }
  ::freeifaddrs(list);
  if (found.empty())
    return {"interfaces", Verdict::note, "none is up but loopback",
            "only for jobs of several nodes: bring one up"};
  return {"interfaces", Verdict::good, found, ""};
}

// True when one of `addresses` is this machine's own.
bool is_here(const std::vector<SocketAddress>& addresses) {
  for (const SocketAddress& address : addresses) {
    if (address.is_loopback() || route_to(address).address == address.host()) return true;
  }
  return false;
}

Finding check_master(const Environment& environment) {
  Placement placement = find_placement(environment);
  if (!placement.master_addr)
    return {"master", Verdict::good, "MASTER_ADDR is not set; a job of one node needs none", ""};
  use_reachable_master(placement, kPatience);
  const Endpoint master{*placement.master_addr, placement.master_port.value_or(0)};
  const auto addresses = resolve(master, Deadline::after(kPatience));
  if (!is_here(addresses)) {
    const Route route = route_to(addresses.front());
    return {"master", Verdict::good,
            fmt::format("{} is {}, reached through {} from {}", master.host, addresses.front().host(),
                        route.interface, route.address),
            ""};
  }
  // In a job that runs rank 0 has the port.
  if (find_variable(environment, "DTRAIN_STORE_FD") != nullptr || *placement.rank > 0)
    return {"master", Verdict::good, "this machine; rank 0 of this job listens there", ""};
  const Listener listener = listen_on(master.host, master.port, Deadline::after(kPatience));
  return {"master", Verdict::good, fmt::format("this machine; can listen on {}", listener.address.text()),
          ""};
}

Finding check_token(const Environment& environment) {
  const bool given = find_token(environment).has_value();
  return {"token", Verdict::good,
          given ? "given"
                : "none (DTRAIN_TOKEN); dtrain-launch on one node makes its own, several nodes need one",
          ""};
}

Finding check_clock() {
  timex state{};
  const bool synchronised = ::adjtimex(&state) != -1 && (state.status & STA_UNSYNC) == 0;
  if (synchronised) return {"clock", Verdict::good, "synchronised", ""};
  return {"clock", Verdict::note, "not synchronised: times in the logs of several nodes will not line up",
          "apt install chrony"};
}

std::string in_path(const Environment& environment, const std::string& name) {
  const std::string* path = find_variable(environment, "PATH");
  std::istringstream folders(path != nullptr ? *path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  }
  return {};
}

// A machine without MPI is well, one whose mpirun has started this is not.
Finding check_mpi_module(const Environment& environment) {
  try {
    const LibraryVersion mpi = mpi::version();
    return {"mpi", Verdict::good,
            fmt::format("{} {} ({}), module built with {}", mpi.name, mpi.loaded.text(), mpi.file,
                        mpi.built.text()),
            ""};
  } catch (const UsageError& error) {
    const bool needed = detect_mpi(environment).world_size.has_value();
    return {"mpi", needed ? Verdict::bad : Verdict::note, error.what(), ""};
  }
}

Finding check_mpirun(const Environment& environment) {
  const std::string mpirun = in_path(environment, "mpirun");
  return {"mpirun", Verdict::good, mpirun.empty() ? "not found; needed only to start jobs with it" : mpirun,
          ""};
}

// The socket that Slurm's configuration names, or munge's own default.
std::string munge_socket(const std::string& conf) {
  std::ifstream in(conf);
  for (std::string line; std::getline(in, line);) {
    const std::size_t at = line.find("socket=");
    if (line.starts_with("AuthInfo") && at != std::string::npos) {
      const std::string rest = line.substr(at + std::strlen("socket="));
      return rest.substr(0, rest.find_first_of(", \t"));
    }
  }
  return "/run/munge/munge.socket.2";
}

bool answers(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return false;
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(static_cast<int>(
      check(Sys{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)}, "socket for munge")));
  return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
         errno == EAGAIN;
}

Finding check_slurm(const Environment& environment) {
  const std::string srun = in_path(environment, "srun");
  const std::string* chosen = find_variable(environment, "SLURM_CONF");
  const std::string conf = chosen != nullptr ? *chosen : "/etc/slurm/slurm.conf";
  if (srun.empty() || (chosen == nullptr && !fs::exists(conf)))
    return {"slurm", Verdict::good, "not found; needed only to start jobs with srun", ""};
  if (!fs::exists(conf))
    return {"slurm", Verdict::bad, conf + " (SLURM_CONF) is not there",
            "unset SLURM_CONF, or name the right file"};
  const std::string socket = munge_socket(conf);
  if (!answers(socket))
    return {"slurm", Verdict::bad,
            fmt::format("munge does not answer at {}: srun cannot prove who it is", socket),
            "systemctl start munge"};
  return {"slurm", Verdict::good, fmt::format("{}, configuration {}, munge answers", srun, conf), ""};
}

}  // namespace

std::vector<Finding> examine_cluster(const Environment& environment) {
  return {
      guarded("interfaces", "", [] { return check_interfaces(); }),
      guarded("master",
              "set MASTER_ADDR to a name or address that every node can resolve, MASTER_PORT to a free port",
              [&] { return check_master(environment); }),
      guarded("token", "export DTRAIN_TOKEN=$(openssl rand -hex 32) on one node, and give it to all nodes",
              [&] { return check_token(environment); }),
      check_clock(),
      guarded("mpi", "unset the variables named", [&] { return check_mpi_module(environment); }),
      check_mpirun(environment),
      guarded("slurm", "", [&] { return check_slurm(environment); })};
}

}  // namespace dtrain
