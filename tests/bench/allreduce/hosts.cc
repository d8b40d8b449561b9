#include "tests/bench/allreduce/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/detect/detect.h"
#include "cluster/store/store_client.h"
#include "cluster/store/store_server.h"
#include "runtime/base/environment.h"
#include "tests/bench/allreduce/timing.h"
#include "tests/bench/allreduce/traffic.h"

namespace dtrain::bench {
namespace {

std::vector<std::size_t> sizes_asked() {
  const char* text = std::getenv("BENCH_SIZES");
  std::vector<std::size_t> sizes;
  if (text == nullptr) {
    for (std::size_t bytes = 1024; bytes <= 64 * kMiB; bytes *= 4) sizes.push_back(bytes);
    return sizes;
  }
  std::istringstream words(text);
  for (std::size_t bytes = 0; words >> bytes;) sizes.push_back(bytes);
  return sizes;
}

struct HostSide {
  std::string name;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Side> side;
  std::vector<double> times = {};
  double sent = 0;  ///< bytes that left this host in all those calls
};

// One side once: all ranks begin together. The barriers' few bytes count too: the other ranks of this host
// may begin, and end, before this one looks.
void time_host_side(HostSide& one, std::vector<float>& data, int calls) {
  const std::uint64_t before = bytes_sent("eth0");
  one.communicator->barrier("begin")->wait(Deadline::never());
  one.times.push_back(time_calls(*one.side, data, calls));
  one.communicator->barrier("end")->wait(Deadline::never());
  one.sent += static_cast<double>(bytes_sent("eth0") - before);
}

void print_heading(const std::vector<HostSide>& sides, std::string_view what, int hosts) {
  fmt::print("# {} world {}: microseconds a call, median of {} rounds, in turn; {}\n", what,
             sides.front().communicator->size(), rounds(), sides.back().communicator->all_reduce_text());
  fmt::print("# sends: bytes that leave the first host over the data's, with all headers; at least {:.2f}\n",
             2.0 * (hosts - 1) / hosts);
  fmt::print("{:>10} {:>12} {:>12} {:>7} {:>13} {:>13} {:>13}\n", "bytes", "direct", "auto", "ratio",
             "least-most", "direct sends", "auto sends");
}

// The ratio of the medians, and the least and most of all rounds'.
void print_line(const HostSide& direct, const HostSide& levels, std::size_t bytes, int calls) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < direct.times.size(); ++i) ratios.push_back(direct.times[i] / levels.times[i]);
  const auto [least, most] = std::ranges::minmax(ratios);
  const auto share = [&](const HostSide& one) {
    return one.sent / (static_cast<double>(bytes) * calls * rounds());
  };
  const double time = median(direct.times), levels_time = median(levels.times);
  fmt::print("{:>10} {:>12.1f} {:>12.1f} {:>7.2f} {:>13} {:>13.2f} {:>13.2f}\n", bytes, time, levels_time,
             time / levels_time, fmt::format("{:.2f}-{:.2f}", least, most), share(direct), share(levels));
  std::fflush(stdout);
}

void compare_host_sides(std::vector<HostSide>& sides, std::string_view what, int rank, int hosts) {
  if (rank == 0) print_heading(sides, what, hosts);
  for (const std::size_t bytes : sizes_asked()) {
    std::vector<float> data(bytes / sizeof(float));
    const int calls = static_cast<int>(std::clamp<std::size_t>(4 * kMiB / bytes, 1, 100));
    for (HostSide& one : sides) {
      one.times.clear();
      one.sent = 0;
      time_calls(*one.side, data, 1);
    }
    for (int round = 0; round < rounds(); ++round) {
      for (HostSide& one : sides) time_host_side(one, data, calls);
    }
    if (rank == 0) print_line(sides.front(), sides.back(), bytes, calls);
  }
}

}  // namespace

int run_host_rank(int rank, int size, int ranks, const Endpoint& master) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
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
  bootstrap.address = address_towards(master.host, deadline);
  NullLog log;
  std::vector<HostSide> sides;
  for (const AllReduceAlgorithm algorithm : {AllReduceAlgorithm::direct, AllReduceAlgorithm::automatic}) {
    bootstrap.name = name_of(algorithm);
    bootstrap.locality.all_reduce = algorithm;
    auto communicator = make_communicator(Backend::tcp, bootstrap, log);
    auto side = make_ours(*communicator);
    sides.push_back({bootstrap.name, std::move(communicator), std::move(side)});
  }
  const char* what = std::getenv("BENCH_LINK");
  compare_host_sides(sides, what != nullptr ? what : "tcp", rank, size / ranks);
  sides.front().communicator->barrier("over")->wait(Deadline::never());
  sides.clear();
  if (server) server->wait_until_clients(1, Deadline::after(std::chrono::seconds(5)));
  return 0;
}

}  // namespace dtrain::bench
