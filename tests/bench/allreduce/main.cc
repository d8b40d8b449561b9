// Times of all_reduce by size, what the library below does on its own and ours in alternation:
//   bench_allreduce tcp WORLD | gloo WORLD
//       ranks of this machine, messages through its loopback interface
//   bench_allreduce rank RANK WORLD HOST PORT FOLDER
//       one rank of tcp, for machines that links join
//   bench_allreduce hosts RANK WORLD RANKS HOST PORT
//       one of RANKS ranks of a host, directly and as auto chooses
//   mpirun -np WORLD bench_allreduce mpi
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cluster/detect/detect.h"
#include "cluster/net/endpoint.h"
#include "cluster/store/store_client.h"
#include "cluster/store/store_server.h"
#include "runtime/base/environment.h"
#include "tests/bench/allreduce/hosts.h"
#include "tests/bench/allreduce/sides.h"
#include "tests/bench/allreduce/timing.h"

namespace dtrain::bench {
namespace {

struct Named {
  std::string name;
  std::unique_ptr<Side> side;
};

// Medians by side, all sides in turn.
std::vector<double> time_sides(std::vector<Named>& sides, std::size_t bytes) {
  std::vector<float> data(bytes / sizeof(float));
  const int calls = static_cast<int>(std::clamp<std::size_t>(4 * kMiB / bytes, 1, 300));
  for (Named& one : sides) time_calls(*one.side, data, calls);
  std::vector<std::vector<double>> times(sides.size());
  for (int round = 0; round < rounds(); ++round) {
    for (std::size_t i = 0; i < sides.size(); ++i)
      times[i].push_back(time_calls(*sides[i].side, data, calls));
  }
  std::vector<double> medians;
  for (auto& one : times) medians.push_back(median(std::move(one)));
  return medians;
}

// A line a size: microseconds of each side, then the speed of the last side as a share of each other's.
void compare(std::vector<Named>& sides, std::string_view what, const Communicator& communicator,
             std::size_t least) {
  const bool prints = communicator.rank() == 0;
  if (prints) {
    fmt::print("# {} world {}: microseconds a call, median of {} rounds, all in turn\n{:>12}", what,
               communicator.size(), rounds(), "bytes");
    for (const Named& one : sides) fmt::print(" {:>13}", one.name);
    for (std::size_t i = 0; i + 1 < sides.size(); ++i) fmt::print(" {:>22}", "speed of " + sides[i].name);
    fmt::print("\n");
  }
  for (std::size_t bytes = least; bytes <= 64 * kMiB; bytes *= 4) {
    const std::vector<double> times = time_sides(sides, bytes);
    if (!prints) continue;
    fmt::print("{:>12}", bytes);
    for (const double time : times) fmt::print(" {:>13.1f}", time);
    for (std::size_t i = 0; i + 1 < times.size(); ++i)
      fmt::print(" {:>21.0f}%", 100 * times[i] / times.back());
    fmt::print("\n");
    std::fflush(stdout);
  }
}

// Keeps the communicators that the sides use.
struct Ranked {
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<Named> sides;

  void add(const std::string& name, Backend backend, const Bootstrap& bootstrap, Log& log) {
    communicators.push_back(make_communicator(backend, bootstrap, log));
    sides.push_back({name, make_ours(*communicators.back())});
  }
};

// Raw Gloo, then tcp without protection, encrypted, and, last, as it is by default.
void run_tcp_rank(Bootstrap bootstrap, [[maybe_unused]] const std::string& own_address,
                  [[maybe_unused]] const std::string& folder, std::string_view what) {
  NullLog log;
  Ranked ranked;
#ifdef DTRAIN_BENCH_GLOO
  ranked.sides.push_back({"Gloo", make_raw_gloo(bootstrap.rank, bootstrap.size, folder, own_address)});
#endif
  for (const Protection protection : {Protection::none, Protection::encrypt, Protection::authenticate}) {
    bootstrap.protection = protection;
    bootstrap.name = name_of(protection);
    ranked.add(bootstrap.name, Backend::tcp, bootstrap, log);
  }
  compare(ranked.sides, what, *ranked.communicators.front(), kMiB);
  ranked.communicators.front()->barrier("end")->wait(Deadline::never());
}

void run_gloo_rank(const Bootstrap& bootstrap, const std::string& folder) {
#ifdef DTRAIN_BENCH_GLOO
  NullLog log;
  Ranked ranked;
  ranked.sides.push_back({"Gloo", make_raw_gloo(bootstrap.rank, bootstrap.size, folder, "127.0.0.1")});
  ranked.add("ours", Backend::gloo, bootstrap, log);
  compare(ranked.sides, "gloo, through shared memory,", *ranked.communicators.front(), 1024);
  ranked.communicators.front()->barrier("end")->wait(Deadline::never());
#else
  static_cast<void>(bootstrap), static_cast<void>(folder);
  fmt::print(stderr, "bench_allreduce: built without Gloo\n");
#endif
}

void run_local_rank(std::string_view backend, Listener& listener, int rank, int size,
                    const std::string& folder) {
  const Endpoint endpoint{"127.0.0.1", listener.port()};
  std::optional<StoreServer> server;
  if (rank == 0) server.emplace(std::move(listener), StoreServerOptions{});
  StoreClient store(endpoint, {}, Deadline::after(std::chrono::seconds(20)));
  Bootstrap bootstrap;
  bootstrap.rank = rank, bootstrap.size = size, bootstrap.store = &store;
  bootstrap.locality.share_memory = backend == "gloo";
  if (backend == "gloo") return run_gloo_rank(bootstrap, folder);
  run_tcp_rank(bootstrap, "127.0.0.1", folder, "tcp through loopback,");
}

int run_local(std::string_view backend, int size) {
  std::string folder = std::filesystem::temp_directory_path() / "bench-allreduce-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  Listener listener = listen_on("127.0.0.1", 0, Deadline::after(std::chrono::seconds(5)));
  for (int rank = 0; rank < size; ++rank) {
    if (::fork() != 0) continue;
    run_local_rank(backend, listener, rank, size, folder);
    std::fflush(stdout);
    ::_exit(0);
  }
  int failed = 0, status = 0;
  while (::wait(&status) > 0) failed += status != 0;
  std::filesystem::remove_all(folder);
  return failed;
}

// DTRAIN_TOKEN is the secret.
int run_one_rank(int rank, int size, const Endpoint& master, const std::string& folder) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  const auto token = find_token(current_environment());
  std::optional<StoreServer> server;
  if (rank == 0) {
    StoreServerOptions options;
    options.token = token;
    server.emplace(listen_on(master.host, master.port, deadline), std::move(options));
  }
  StoreClientOptions options;
  options.token = token;
  StoreClient store(master, std::move(options), deadline);
  Bootstrap bootstrap;
  bootstrap.rank = rank, bootstrap.size = size, bootstrap.store = &store, bootstrap.token = token;
  bootstrap.locality.share_memory = false;
  bootstrap.address = address_towards(master.host, deadline);
  const char* what = std::getenv("BENCH_LINK");
  run_tcp_rank(bootstrap, bootstrap.address, folder, what != nullptr ? what : "tcp");
  if (server) server->wait_until_clients(1, Deadline::after(std::chrono::seconds(5)));
  return 0;
}

#ifdef DTRAIN_BENCH_MPI
int run_mpi() {
  NullLog log;
  const Placement placement = detect_mpi(current_environment());
  Bootstrap bootstrap;
  bootstrap.rank = placement.rank.value_or(0), bootstrap.size = placement.world_size.value_or(1);
  Ranked ranked;
  ranked.sides.push_back({"MPI", nullptr});
  ranked.add("ours", Backend::mpi, bootstrap, log);
  ranked.sides.front().side = make_raw_mpi();
  compare(ranked.sides, "mpi", *ranked.communicators.front(), 1024);
  return 0;
}
#endif

int run(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (argc == 3 && (what == "gloo" || what == "tcp")) return run_local(what, std::atoi(argv[2]));
  if (argc == 7 && what == "rank") {
    return run_one_rank(std::atoi(argv[2]), std::atoi(argv[3]), {argv[4], parse_port(argv[5], "PORT")},
                        argv[6]);
  }
  if (argc == 7 && what == "hosts") {
    return run_host_rank(std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4]),
                         {argv[5], parse_port(argv[6], "PORT")});
  }
#ifdef DTRAIN_BENCH_MPI
  if (argc == 2 && what == "mpi") return run_mpi();
#endif
  fmt::print(stderr,
             "usage: bench_allreduce tcp|gloo WORLD | rank RANK WORLD HOST PORT FOLDER | hosts RANK WORLD "
             "RANKS HOST PORT | mpirun -np WORLD bench_allreduce mpi\n");
  return 2;
}

}  // namespace
}  // namespace dtrain::bench

int main(int argc, char** argv) {
  try {
    return dtrain::bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_allreduce: {}\n", error.what());
    return 1;
  }
}
