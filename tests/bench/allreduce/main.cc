// bench_allreduce gloo WORLD | mpirun -np WORLD bench_allreduce mpi: times of raw and ours in alternation, by
// size.
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
#include "tests/bench/allreduce/sides.h"

namespace dtrain::bench {
namespace {

constexpr int kRounds = 15;

// Microseconds a call, over `calls` calls.
double time_calls(Side& side, std::vector<float>& data, int calls) {
  const TimePoint start = steady_clock().now();
  for (int i = 0; i < calls; ++i) side.sum(data.data(), data.size());
  return std::chrono::duration<double, std::micro>(steady_clock().now() - start).count() / calls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void compare(Communicator& communicator, Side& raw, std::string_view backend) {
  const auto ours = make_ours(communicator);
  if (communicator.rank() == 0) {
    fmt::print("# {} world {}: microseconds a call, median of {} rounds, raw and ours in turn\n", backend,
               communicator.size(), kRounds);
    fmt::print("{:>12} {:>10} {:>10} {:>8} {:>12} {:>12}\n", "bytes", "raw", "ours", "ours/raw", "raw best",
               "ours best");
  }
  for (std::size_t bytes = 1024; bytes <= std::size_t{64} << 20; bytes *= 4) {
    std::vector<float> data(bytes / sizeof(float));
    const int calls = static_cast<int>(std::clamp<std::size_t>((std::size_t{4} << 20) / bytes, 1, 300));
    time_calls(raw, data, calls), time_calls(*ours, data, calls);
    std::vector<double> raw_times, our_times;
    for (int round = 0; round < kRounds; ++round) {
      raw_times.push_back(time_calls(raw, data, calls));
      our_times.push_back(time_calls(*ours, data, calls));
    }
    if (communicator.rank() != 0) continue;
    fmt::print("{:>12} {:>10.1f} {:>10.1f} {:>8.2f} {:>12.1f} {:>12.1f}\n", bytes, median(raw_times),
               median(our_times), median(our_times) / median(raw_times),
               *std::min_element(raw_times.begin(), raw_times.end()),
               *std::min_element(our_times.begin(), our_times.end()));
    std::fflush(stdout);
  }
}

#ifdef DTRAIN_BENCH_GLOO
void run_gloo_rank(Listener& listener, int rank, int size, const std::string& folder) {
  const Endpoint endpoint{"127.0.0.1", listener.port()};
  std::optional<StoreServer> server;
  if (rank == 0) server.emplace(std::move(listener), StoreServerOptions{});
  StoreClient store(endpoint, {}, Deadline::after(std::chrono::seconds(20)));
  NullLog log;
  Bootstrap bootstrap;
  bootstrap.rank = rank, bootstrap.size = size, bootstrap.store = &store;
  const auto communicator = make_communicator(Backend::gloo, bootstrap, log);
  const auto raw = make_raw_gloo(rank, size, folder);
  compare(*communicator, *raw, "gloo");
  communicator->barrier("end")->wait(Deadline::never());
}

int run_gloo(int size) {
  std::string folder = std::filesystem::temp_directory_path() / "bench-allreduce-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  Listener listener = listen_on("127.0.0.1", 0, Deadline::after(std::chrono::seconds(5)));
  for (int rank = 0; rank < size; ++rank) {
    if (::fork() != 0) continue;
    run_gloo_rank(listener, rank, size, folder);
    std::fflush(stdout);
    ::_exit(0);
  }
  int failed = 0, status = 0;
  while (::wait(&status) > 0) failed += status != 0;
  std::filesystem::remove_all(folder);
  return failed;
}
#endif

#ifdef DTRAIN_BENCH_MPI
int run_mpi() {
  NullLog log;
  const Placement placement = detect_mpi(current_environment());
  Bootstrap bootstrap;
  bootstrap.rank = placement.rank.value_or(0), bootstrap.size = placement.world_size.value_or(1);
  const auto communicator = make_communicator(Backend::mpi, bootstrap, log);
  compare(*communicator, *make_raw_mpi(), "mpi");
  return 0;
}
#endif

int run(int argc, char** argv) {
#ifdef DTRAIN_BENCH_GLOO
  if (argc == 3 && std::string_view(argv[1]) == "gloo") return run_gloo(std::atoi(argv[2]));
#endif
#ifdef DTRAIN_BENCH_MPI
  if (argc == 2 && std::string_view(argv[1]) == "mpi") return run_mpi();
#endif
  fmt::print(stderr, "usage: bench_allreduce gloo WORLD | mpirun -np WORLD bench_allreduce mpi\n");
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
