// `dtrain sampler`: shows which samples a rank gets, one index a line; the way to compare with
// DistributedSampler.
#include "runtime/data/sampler.h"

#include <fmt/format.h>

#include "runtime/data/step_sampler.h"
#include "worker/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"size", "Sampler", "N", "", "samples in the data set"},
    {"world", "Sampler", "W", "1", "number of workers"},
    {"rank", "Sampler", "R", "0", "rank whose indices to print"},
    {"seed", "Sampler", "S", "0", "as --seed of dtrain train"},
    {"epoch", "Sampler", "E", "0", "epoch, counted from 0"},
    {"no-shuffle", "Sampler", "", "", "do not shuffle"},
    {"drop-last", "Sampler", "", "", "drop the last samples so that all workers get the same number, instead of repeating some; with --global-batch-size: drop those that do not fill a step"},
    {"global-batch-size", "Sampler", "B", "", "as --global-batch-size of dtrain train; for --from-position, and for batches that do not divide evenly among the workers"},
    {"from-position", "Sampler", "P", "0", "skip the steps that took the epoch's first P samples"},
    {"help", "Sampler", "", "", "print this text"},
};
// clang-format on

std::vector<std::int64_t> indices_of(const Options& options) {
  const std::int64_t size = options.integer("size", 1, INT64_MAX),
                     epoch = options.integer("epoch", 0, INT64_MAX);
  const auto world = options.integer("world", 1, INT32_MAX);
  const int rank = static_cast<int>(options.integer("rank", 0, world - 1));
  const auto seed = static_cast<std::uint64_t>(options.integer("seed", 0, INT64_MAX));
  const bool shuffle = !options.enabled("no-shuffle");
  if (options.has("global-batch-size")) {
    const StepSampler sampler({.dataset_size = size,
                               .world_size = static_cast<int>(world),
                               .rank = rank,
                               .global_batch = options.integer("global-batch-size", 1, INT32_MAX),
                               .seed = seed,
                               .shuffle = shuffle,
                               .drop_last = options.enabled("drop-last")});
    return sampler.order(epoch, options.integer("from-position", 0, size));
  }
  if (options.integer("from-position", 0, size) != 0)
    throw UsageError("--from-position: expected with --global-batch-size B, got it alone");
  return DistributedSampler({.dataset_size = size,
                             .world_size = static_cast<int>(world),
                             .rank = rank,
                             .seed = seed,
                             .shuffle = shuffle,
                             .drop_last = options.enabled("drop-last")})
      .order(epoch);
}

}  // namespace

ExitCode run_sampler(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain sampler", kOptions, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain sampler --size N [options]\n\nExamples:\n  dtrain sampler "
                                   "--size 10 --world 2 --rank 1",
                                   kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  fmt::memory_buffer text;
  for (const std::int64_t index : indices_of(options))
    fmt::format_to(std::back_inserter(text), "{}\n", index);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) throw SystemError("write to standard output", errno);
  return ExitCode::ok;
}

}  // namespace dtrain
