// `dtrain bench allreduce`: the time of all_reduce by size, on whatever the workers talk through.
#include <fmt/format.h>
#include <unistd.h>

#include "runtime/base/files/durable_file.h"
#include "training/start/peers.h"
#include "training/start/threads.h"
#include "worker/benchmark/all_reduce.h"
#include "worker/benchmark/byte_sizes.h"
#include "worker/benchmark/link_fit.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"min-bytes", "What to measure", "SIZE", "1K", "smallest message, such as 512, 4K, 1M or 1G"},
    {"max-bytes", "What to measure", "SIZE", "64M", "largest message"},
    {"factor", "What to measure", "N", "4", "each size is N times the previous one"},
    {"dtype", "What to measure", "NAME", "float32", "type of the elements: float32, float64, bfloat16, int64, int32 or uint8"},
    {"warmup", "What to measure", "N", "5", "untimed calls of each size before the timed ones"},
    {"iterations", "What to measure", "N", "20", "timed calls of each size"},
    {"device", "Machine", "NAME", "auto", "auto, cpu, cuda (this worker's GPU) or cuda:N"},
    {"backend", "Machine", "NAME", "auto", "collectives: auto, nccl, tcp, gloo, mpi or self"},
    {"allreduce", "Machine", "NAME", "auto", "algorithm: auto, direct, ring, tree or hierarchical"},
    {"timeout", "Machine", "SECONDS", "300", "longest wait for the other workers, at the start and in each call"},
    {"fit", "Output", "FILE", "", "fit latency and bandwidth of the links to the measured times and write them to FILE, for `dtrain bench predict`; the workers share one host, or have one each"},
    {"json", "Output", "", "", "print one JSON object per line"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

struct AllReduceOptions {
  AllReducePlan plan;
  std::vector<std::size_t> sizes;  ///< bytes
};

DType dtype_of_option(const Options& options) {
  const std::string& name =
      options.choice("dtype", {"float32", "float64", "bfloat16", "int64", "int32", "uint8"});
  for (const DType dtype : {DType::f64, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    if (name == name_of(dtype)) return dtype;
  }
  return DType::f32;
}

std::size_t bytes_option(const Options& options, const std::string& name) {
  const auto bytes = parse_bytes(options.text(name));
  if (!bytes) options.refuse(name, "a size like 512, 4K, 1M or 1G");
  return *bytes;
}

AllReduceOptions read_options(const Options& options) {
  AllReduceOptions result;
  result.plan.dtype = dtype_of_option(options);
  result.plan.warmup = static_cast<int>(options.integer("warmup", 0, 1'000'000));
  result.plan.iterations = static_cast<int>(options.integer("iterations", 1, 1'000'000));
  result.plan.timeout = Duration(static_cast<std::int64_t>(options.real("timeout", 0.001, 1e6) * 1e9));
  const std::size_t least = bytes_option(options, "min-bytes"), most = bytes_option(options, "max-bytes");
  if (most < least)
    options.refuse("max-bytes", fmt::format("at least --min-bytes {}", options.text("min-bytes")));
  const auto factor = static_cast<std::size_t>(options.integer("factor", 2, 1 << 20));
  result.sizes = sizes_between(least, most, factor, size_of(result.plan.dtype));
  return result;
}

/// Which links the workers are joined by. Throws UsageError where they are of both kinds.
LinkKind link_kind(const Options& options, const Placement& placement) {
  const int world = placement.world_size.value_or(1), here = placement.local_world_size.value_or(1);
  if (world > 1 && here == world) return LinkKind::within;
  if (world > 1 && here == 1) return LinkKind::between;
  options.refuse("fit", fmt::format("2 workers or more that share one host or have one each, got {} of {} on "
                                    "this host; start it in another way",
                                    here, world));
}

void write_fit(const std::filesystem::path& path, LinkKind kind, int ranks,
               std::span<const TimedReduction> measured) {
  const LinkFit fit = fit_link(ranks, measured);
  replace_file(path, link_json(kind, ranks, fit));
  fmt::print("# {}: latency {:.3g} us, {:.3g} GB/s; the model is within {:.0f} % of each time above\n",
             path.string(), fit.costs.latency * 1e6, 1e-9 / fit.costs.byte, 100 * fit.error);
}

// Rank 0 prints; every rank learns how many elements were wrong. `measured` gets each size's time.
std::int64_t measure_and_print(Communicator& communicator, const std::shared_ptr<Device>& device,
                               const AllReduceOptions& options, bool json,
                               std::vector<TimedReduction>& measured) {
  const bool prints = communicator.rank() == 0;
  if (prints && !json) {
    fmt::print(
        "# all_reduce by {}, {} worker{}, {}; time: median of {} calls, each as its slowest worker saw it\n",
        communicator.backend(), communicator.size(), communicator.size() == 1 ? "" : "s", device->name(),
        options.plan.iterations);
    if (const std::string way = communicator.all_reduce_text(); !way.empty()) fmt::print("# {}\n", way);
    fmt::print("{}", all_reduce_heading());
  }
  std::int64_t wrong = 0;
  double bus_gbs = 0;
  for (const std::size_t bytes : options.sizes) {
    const AllReduceResult result =
        measure_all_reduce(communicator, device, bytes / size_of(options.plan.dtype), options.plan);
    wrong += result.wrong;
    measured.push_back({result.bytes(), result.median_seconds});
    bus_gbs += result.bus_gbs() / static_cast<double>(options.sizes.size());
    if (!prints) continue;
    fmt::print("{}", json ? all_reduce_json(result, communicator.backend()) : all_reduce_line(result));
    std::fflush(stdout);
  }
  if (prints && !json) fmt::print("# average bus bandwidth: {:.3f} GB/s, wrong: {}\n", bus_gbs, wrong);
  return wrong;
}

}  // namespace

ExitCode run_bench_allreduce(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain bench allreduce", kOptions, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain bench allreduce [options]\n\n"
                                   "Runs as a worker of dtrain-launch, mpirun or srun.\n\nExamples:\n"
                                   "  dtrain-launch --nproc-per-node=2 dtrain bench allreduce",
                                   kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const AllReduceOptions wanted = read_options(options);
  const Placement placement = find_placement(invocation.environment);
  const bool fits = options.has("fit");
  const LinkKind kind = fits ? link_kind(options, placement) : LinkKind::within;
  limit_threads(placement, invocation.environment);
  FdLog log(STDERR_FILENO, "dtrain", LogLevel::info);
  const auto device = make_device(options.text("device"), {.local_rank = *placement.local_rank});
  Peers peers(placement,
              backend_named(options.choice("backend", {"auto", "nccl", "tcp", "gloo", "mpi", "self"})),
              invocation.environment, wanted.plan.timeout, log, device.get(), nullptr, {}, ServerUpdate::sync,
              all_reduce_algorithm_named(
                  options.choice("allreduce", {"auto", "direct", "ring", "tree", "hierarchical"})));
  std::vector<TimedReduction> measured;
  const std::int64_t wrong =
      measure_and_print(peers.communicator(), device, wanted, options.enabled("json"), measured);
  if (fits && peers.communicator().rank() == 0)
    write_fit(options.text("fit"), kind, peers.communicator().size(), measured);
  peers.leave();
  if (wrong == 0) return ExitCode::ok;
  throw Error(
      fmt::format("all_reduce: expected the sum in every element, got {} wrong ones (column #wrong)", wrong));
}

}  // namespace dtrain
