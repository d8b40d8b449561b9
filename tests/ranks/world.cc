#include "tests/ranks/world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "cluster/detect/detect.h"
#include "cluster/net/endpoint.h"
#include "cluster/store/store_client.h"
#include "cluster/store/store_server.h"
#include "runtime/base/environment.h"
#include "runtime/base/error.h"
#include "runtime/device/device.h"
#include "tests/support/process.h"
#include "tests/support/temp_dir.h"

namespace dtrain::test {
namespace {

using std::chrono::seconds;

struct Entry {
  Scenario scenario;
  WorldOptions options;
};

std::map<std::string, Entry>& scenarios() {
  static std::map<std::string, Entry> all;
  return all;
}

std::string verdict_path(const std::string& folder, int rank) {
  return fmt::format("{}/rank-{}", folder, rank);
}

// Whether a rank has a neighbour to share memory with.
bool has_neighbour(std::string_view hosts, int rank, int size) {
  for (int other = 0; other < size; ++other) {
    if (other != rank && host_of_rank(hosts, other, size) == host_of_rank(hosts, rank, size)) return true;
  }
  return false;
}

// Memory that ranks share shows among this process's.
bool shares_memory() { return read_file("/proc/self/maps").find("memfd:dtrain-ranks") != std::string::npos; }

// "tcp_shm": tcp, whose ranks share memory; with an algorithm and hosts behind it, or as a program finds
// them.
struct TestedBackend {
  explicit TestedBackend(std::string_view text) {
    name = next_word(text);
    shares = name.ends_with(kShared);
    if (shares) name.remove_suffix(kShared.size());
    if (!text.empty()) algorithm = next_word(text);
    hosts = text;
  }
  static std::string_view next_word(std::string_view& text) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    return word;
  }
  static constexpr std::string_view kShared = "_shm";
  std::string_view name, algorithm = "auto", hosts;
  bool shares = false;
};

std::string verdict_of(const Entry& entry, const TestedBackend& tested, const Bootstrap& bootstrap,
                       const std::string& folder) {
  NullLog log;
  const std::string_view backend = tested.name;
  const bool shares = has_neighbour(tested.hosts, bootstrap.rank, bootstrap.size);
  try {
    Rank rank{make_communicator(backend_named(backend), bootstrap, log), folder, bootstrap};
    const bool are_processes = backend == "tcp" || backend == "gloo" || backend == "mpi";
    if (are_processes && shares_memory() != (bootstrap.locality.share_memory && shares))
      return "memory is shared where it should not be, or is not";
    return entry.scenario(rank);
  } catch (const std::exception& error) {
    return error.what();
  }
}

Bootstrap bootstrap_of(const Entry& entry, int rank, int size, const TestedBackend& backend) {
  Bootstrap bootstrap;
  bootstrap.rank = rank;
  bootstrap.size = size;
  bootstrap.locality.share_memory = backend.shares;
  bootstrap.locality.all_reduce = all_reduce_algorithm_named(backend.algorithm);
  if (!backend.hosts.empty())
    bootstrap.locality.host_identity = fmt::format("host {}", host_of_rank(backend.hosts, rank, size));
  bootstrap.timeout = entry.options.call_timeout;
  bootstrap.token = entry.options.token;
  bootstrap.protection = entry.options.protection;
  return bootstrap;
}

// As workers do: rank 0 hosts the store on a socket that listens before anyone starts.
void run_store_rank(const Entry& entry, const TestedBackend& backend, Listener& listener, int rank, int size,
                    const std::string& folder) {
  const Endpoint endpoint{"127.0.0.1", listener.port()};
  std::optional<StoreServer> server;
  if (rank == 0) {
    StoreServerOptions options;
    options.token = entry.options.token;
    server.emplace(std::move(listener), std::move(options));
  } else {
    listener.fd.reset();
  }
  StoreClientOptions options;
  options.token = entry.options.token;
  StoreClient store(endpoint, std::move(options), Deadline::after(seconds(20)));
  Bootstrap bootstrap = bootstrap_of(entry, rank, size, backend);
  bootstrap.store = &store;
  std::shared_ptr<Device> gpu;
  if (backend.name == "nccl") {
    ::setenv("DTRAIN_EMULATED_GPUS", std::to_string(size).c_str(), 1);
    gpu = make_device(fmt::format("cuda:{}", rank));
    bootstrap.device = gpu.get();
  }
  write_file(verdict_path(folder, rank), verdict_of(entry, backend, bootstrap, folder));
  if (server) server->wait_until_clients(1, Deadline::after(seconds(3)));
}

void run_store_world(const Entry& entry, const TestedBackend& backend, int size, const std::string& folder,
                     std::vector<int>& codes) {
  Listener listener = listen_on("127.0.0.1", 0, Deadline::after(seconds(5)));
  codes = run_ranks(
      size, [&](int rank) { run_store_rank(entry, backend, listener, rank, size, folder); },
      entry.options.run_timeout);
}

void run_mpi_world(const std::string& name, const Entry& entry, std::string_view backend, int size,
                   const std::string& folder) {
  RunOptions options;
  options.timeout = entry.options.run_timeout;
  // Recovery keeps mpirun from ending the world when one rank dies: what the others notice is under test.
  const RunResult result =
      run({"mpirun", "--allow-run-as-root", "--oversubscribe", "--enable-recovery", "--bind-to", "none",
           "--mca", "btl", "self,vader", "-np", std::to_string(size),
           std::filesystem::read_symlink("/proc/self/exe").string(), "--scenario", name, std::string(backend),
           folder},
          options);
  // Its exit code says nothing here: with recovery it is 0 whatever became of the ranks.
  write_file(folder + "/mpirun", result.err);
}

int run_mpi_rank(const std::string& name, const TestedBackend& backend, const std::string& folder) {
  const Entry& entry = scenarios().at(name);
  const Placement placement = detect_mpi(current_environment());
  const int rank = placement.rank.value(), size = placement.world_size.value();
  write_file(verdict_path(folder, rank),
             verdict_of(entry, backend, bootstrap_of(entry, rank, size, backend), folder));
  return 0;
}

void run_threads_world(const Entry& entry, const TestedBackend& backend, int size,
                       const std::string& folder) {
  const auto rendezvous = make_thread_rendezvous();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Bootstrap bootstrap = bootstrap_of(entry, rank, size, backend);
      bootstrap.rendezvous = rendezvous;
      write_file(verdict_path(folder, rank), verdict_of(entry, backend, bootstrap, folder));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

void Rank::publish_pid() const {
  write_file(fmt::format("{}/pid-{}", folder, rank()), std::to_string(::getpid()));
}

int Rank::pid_of(int other) const { return std::stoi(read_file(fmt::format("{}/pid-{}", folder, other))); }

int host_of_rank(std::string_view hosts, int rank, int size) {
  if (hosts == "pairs") return rank / 2;
  if (hosts == "halves") return rank < (size + 1) / 2 ? 0 : 1;
  if (hosts == "dealt") return rank % 2;
  if (hosts == "lone") return rank == 0 ? 0 : 1;
  return hosts == "apart" ? rank : 0;
}

void register_scenario(const std::string& name, Scenario scenario, WorldOptions options) {
  scenarios()[name] = {std::move(scenario), options};
}

std::vector<std::string> run_world(std::string_view backend_text, int size, const std::string& scenario) {
  const TempDir folder;
  const TestedBackend backend(backend_text);
  const Entry& entry = scenarios().at(scenario);
  std::vector<int> codes(static_cast<std::size_t>(size), -1);
  if (backend.name == "self") {
    write_file(verdict_path(folder.path(), 0),
               verdict_of(entry, backend, bootstrap_of(entry, 0, 1, backend), folder.path()));
  } else if (backend.name == "threads") {
    run_threads_world(entry, backend, size, folder.path());
  } else if (backend.name == "tcp" || backend.name == "gloo" || backend.name == "nccl") {
    run_store_world(entry, backend, size, folder.path(), codes);
  } else {
    run_mpi_world(scenario, entry, backend_text, size, folder.path());
  }
  std::vector<std::string> verdicts;
  for (int rank = 0; rank < size; ++rank) {
    const std::string path = verdict_path(folder.path(), rank);
    verdicts.push_back(std::filesystem::exists(path)
                           ? read_file(path)
                           : fmt::format("no verdict, exit code {}", codes[static_cast<std::size_t>(rank)]));
  }
  const auto silent = std::find_if(verdicts.begin(), verdicts.end(), [](const std::string& verdict) {
    return verdict.starts_with("no verdict");
  });
  if (silent != verdicts.end() && std::filesystem::exists(folder / "mpirun")) {
    *silent += "; mpirun: " + read_file(folder / "mpirun");
  }
  return verdicts;
}

bool has_backend(std::string_view backend) {
  if (backend == "nccl") return DTRAIN_TEST_NCCL != 0;
  const auto built = built_backends();
  return std::find(built.begin(), built.end(), TestedBackend(backend).name) != built.end();
}

int run_tests_or_scenario(int argc, char** argv) {
  if (argc == 5 && std::string_view(argv[1]) == "--scenario") {
    return run_mpi_rank(argv[2], TestedBackend(argv[3]), argv[4]);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace dtrain::test
