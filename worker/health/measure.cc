// Each measurement is the best of several, so that a moment's disturbance is no sickness.
#include "worker/health/measure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/fd.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/device/kernel_flops.h"
#include "runtime/tensor/tensor.h"
#include "worker/benchmark/samples.h"

namespace dtrain {
namespace {

using std::chrono::duration;

// On a CPU a product takes a millisecond, so that some are computed without being interrupted on a busy
// machine too.
constexpr std::int64_t kSideOnCpu = 256, kSideOnGpu = 8192, kSideEmulated = 128;
constexpr std::size_t kCopyBytes = std::size_t{16} << 20, kDiskBytes = std::size_t{64} << 20;
constexpr int kLeastCopies = 16;
constexpr std::size_t kMessageBytes = std::size_t{4} << 20;
constexpr int kMostRounds = 4, kRoundTrips = 10;
constexpr double kSecondsOfMessages = 0.25;
constexpr int kLeastMessages = 4, kMostMessages = 64;

double now_seconds() { return duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }
double seconds_since(TimePoint start) { return duration<double>(steady_clock().now() - start).count(); }

template <class Check>
void guarded_into(HealthReport& report, const std::string& subject, const std::string& fix, Check check) {
  try {
    check();
  } catch (const std::exception& error) {
    report.bad.push_back({subject, Verdict::bad, error.what(), fix});
  }
}

// Of two matrices whose elements are all 1/2 each element is side/4, exactly in float32.
void measure_matmul(HealthReport& report, const std::shared_ptr<Device>& device, double seconds) {
  const std::int64_t side = device->type() == DeviceType::cpu ? kSideOnCpu
                            : device->is_emulated()           ? kSideEmulated
                                                              : kSideOnGpu;
  const Tensor a = Tensor::full({1, side, side}, 0.5, device), b = a.clone(), out = a.clone();
  const auto multiply = [&] {
    device->kernels().matmul(a.view(), b.view(), {}, Activation::none, false, out.view());
  };
  multiply();  // makes its plan
  double best = seconds_of(*device, multiply);
  for (const TimePoint start = steady_clock().now(); seconds_since(start) < seconds;)
    best = std::min(best, seconds_of(*device, multiply));
  report[Metric::matmul] = matmul_flops(a.view(), out.view()) / best;
  std::vector<float> result(static_cast<std::size_t>(side * side));
  device->copy(result.data(), out.view().data, result.size() * sizeof(float), CopyKind::device_to_host,
               device->compute_stream());
  device->compute_stream().synchronize();
  const float right = static_cast<float>(side) / 4;
  const auto wrong =
      std::count_if(result.begin(), result.end(), [right](float each) { return each != right; });
  if (wrong > 0)
    report.bad.push_back({"matmul", Verdict::bad,
                          fmt::format("{} of {} elements of a matrix product are wrong on {}: expected {}",
                                      wrong, result.size(), device->name(), right),
                          "the device computes wrongly: take it out of service"});
}

void measure_memory(HealthReport& report, double seconds) {
  std::vector<char> from(kCopyBytes, 1), to(kCopyBytes);
  double best = std::numeric_limits<double>::infinity();
  const TimePoint begin = steady_clock().now();
  for (int run = 0; run < kLeastCopies || seconds_since(begin) < seconds; ++run) {
    const TimePoint start = steady_clock().now();
    std::memcpy(to.data(), from.data(), kCopyBytes);
    best = std::min(best, seconds_since(start));
  }
  report[Metric::memory_copy] = static_cast<double>(kCopyBytes) / best;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    std::istringstream words(line);
    std::string name;
    double kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") report[Metric::memory_free] = kib * 1024;
  }
}

void measure_disk(HealthReport& report, const std::string& folder) {
  std::string path = folder + "/dtrain-doctor-XXXXXX";
  const UniqueFd file(
      static_cast<int>(check(Sys{::mkostemp(path.data(), O_CLOEXEC)}, "create a file in " + folder)));
  ::unlink(path.c_str());  // gone with this process, whatever happens
  // Not all zeros, which a file system may not write at all.
  std::string bytes(std::size_t{1} << 20, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24U);
  const TimePoint start = steady_clock().now();
  for (std::size_t written = 0; written < kDiskBytes; written += bytes.size())
    write_all(file.get(), bytes, path);
  check(Sys{::fdatasync(file.get())}, "fdatasync in " + folder);
  report[Metric::disk_write] = static_cast<double>(kDiskBytes) / seconds_since(start);
  struct statvfs disk {};
  check(Sys{::statvfs(folder.c_str(), &disk)}, "statvfs " + folder);
  report[Metric::disk_free] = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
}

// Of rank r from rank 0's, by the round trip that took least: it had the least time to be asymmetric in.
void measure_clock(HealthReport& report, Communicator& communicator, Duration timeout) {
  const int rank = communicator.rank();
  const auto send = [&](double& value, int to) {
    communicator.send({&value, 1, DType::f64}, to, "clock")->wait(Deadline::after(timeout));
  };
  const auto receive = [&](double& value, int from) {
    communicator.receive({&value, 1, DType::f64}, from, "clock")->wait(Deadline::after(timeout));
  };
  report[Metric::clock] = 0;
  double shortest = std::numeric_limits<double>::infinity();
  for (int other = 1; other < communicator.size(); ++other) {
    for (int trip = 0; trip < kRoundTrips && (rank == 0 || rank == other); ++trip) {
      double asked = now_seconds(), theirs = 0;
      if (rank == 0) {
        receive(theirs, other);
        theirs = now_seconds();
        send(theirs, other);
        continue;
      }
      send(asked, 0);
      receive(theirs, 0);
      const double answered = now_seconds();
      if (answered - asked >= shortest) continue;
      shortest = answered - asked;
      report[Metric::clock] = (asked + answered) / 2 - theirs;
    }
  }
}

// Bytes a second of one direction, of the fastest of several messages; both partners send as many.
double rate_with(Communicator& communicator, int partner, Duration timeout) {
  std::vector<std::uint8_t> out(kMessageBytes, 1), in(kMessageBytes);
  const auto exchange = [&](std::size_t bytes) {
    const Message send{{out.data(), bytes, DType::u8}, partner},
        receive{{in.data(), bytes, DType::u8}, partner};
    communicator.exchange({&send, 1}, {&receive, 1}, "link")->wait(Deadline::after(timeout));
  };
  const auto timed = [&] {
    exchange(1);  // what the partner sent early would be there already, and the link look faster than it is
    const TimePoint start = steady_clock().now();
    exchange(kMessageBytes);
    return seconds_since(start);
  };
  // The slower side decides how many follow.
  double best = timed(), mine = best, theirs = 0;
  const Message send{{&mine, 1, DType::f64}, partner}, receive{{&theirs, 1, DType::f64}, partner};
  communicator.exchange({&send, 1}, {&receive, 1}, "link time")->wait(Deadline::after(timeout));
  const double wanted = kSecondsOfMessages / std::max({mine, theirs, 1e-9});
  const int messages = std::clamp(static_cast<int>(wanted), kLeastMessages, kMostMessages);
  for (int i = 0; i < messages; ++i) best = std::min(best, timed());
  return static_cast<double>(kMessageBytes) / best;
}

}  // namespace

std::vector<int> ends_of_links(const std::vector<std::string>& hosts) {
  std::vector<int> firsts, all;
  std::set<std::string_view> seen;
  for (int rank = 0; rank < static_cast<int>(hosts.size()); ++rank) {
    all.push_back(rank);
    if (seen.insert(hosts[static_cast<std::size_t>(rank)]).second) firsts.push_back(rank);
  }
  return firsts.size() > 1 ? firsts : all;
}

int partner_in_round(int rank, int size, int round) {
  // The circle method: the last one stands still, the others go round.
  const int even = size + size % 2, circle = even - 1;
  int partner = 0;
  if (rank == even - 1) {
    // The one whose mirror it is.
    for (int other = 0; other < circle; ++other) {
      if ((2 * other) % circle == round % circle) partner = other;
    }
  } else {
    partner = (round - rank % circle + 2 * circle) % circle;
    if (partner == rank) partner = even - 1;
  }
  return partner >= size ? -1 : partner;
}

void measure_node(HealthReport& report, const std::shared_ptr<Device>& device, const std::string& folder,
                  bool whole_node, double seconds) {
  if (device)
    guarded_into(report, "matmul",
                 "the device fails: look for its errors in dmesg, and take it out of service",
                 [&] { measure_matmul(report, device, seconds); });
  if (!whole_node) return;
  guarded_into(report, "memory", "free some memory", [&] { measure_memory(report, seconds / 2); });
  guarded_into(report, "disk", "free some space, or choose another folder with --run-dir",
               [&] { measure_disk(report, folder); });
}

void measure_links(HealthReport& report, Communicator& communicator, const std::vector<std::string>& hosts,
                   Duration timeout) {
  const int rank = communicator.rank(), size = communicator.size();
  if (size < 2) return;
  measure_clock(report, communicator, timeout);
  // How fast one worker is says nothing of a link that it shares with its node's others while they come and
  // go.
  const std::vector<int> ends = ends_of_links(hosts);
  const int count = static_cast<int>(ends.size());
  const auto own = std::find(ends.begin(), ends.end(), rank);
  const int all = count - 1 + count % 2, step = std::max(1, all / kMostRounds);
  double best = std::nan("");
  for (int round = 0; round < all; round += step) {
    communicator.barrier("link")->wait(Deadline::after(timeout));
    if (own == ends.end()) continue;
    const int partner = partner_in_round(static_cast<int>(own - ends.begin()), count, round);
    if (partner >= 0)
      best = std::fmax(best, rate_with(communicator, ends[static_cast<std::size_t>(partner)], timeout));
  }
  report[Metric::link] = best;
}

}  // namespace dtrain
