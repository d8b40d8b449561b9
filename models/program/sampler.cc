// `dtrain sampler`: shows which samples a rank gets, one index a line; the way to compare with
// DistributedSampler.
#include "runtime/data/sampler.h"

#include <fmt/format.h>

#include "models/program/commands.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"size", "Sampler", "N", "", "samples in the data set"},
    {"world", "Sampler", "W", "1", "workers"},
    {"rank", "Sampler", "R", "0", "which worker's indices"},
    {"seed", "Sampler", "S", "0", "as --seed of dtrain train"},
    {"epoch", "Sampler", "E", "0", "from 0"},
    {"no-shuffle", "Sampler", "", "", "in file order"},
    {"drop-last", "Sampler", "", "", "cut to equal parts instead of padding"},
    {"help", "Sampler", "", "", "this text"},
};
// clang-format on

}  // namespace

ExitCode run_sampler(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain sampler", kOptions, invocation.arguments, invocation.environment);
  if (options.enabled("help")) {
    fmt::print("{}", options_help("usage: dtrain sampler --size N [options]", kOptions));
    return ExitCode::ok;
  }
  const auto world = options.integer("world", 1, INT32_MAX);
  const DistributedSampler sampler({.dataset_size = options.integer("size", 1, INT64_MAX),
                                    .world_size = static_cast<int>(world),
                                    .rank = static_cast<int>(options.integer("rank", 0, world - 1)),
                                    .seed = static_cast<std::uint64_t>(options.integer("seed", 0, INT64_MAX)),
                                    .shuffle = !options.enabled("no-shuffle"),
                                    .drop_last = options.enabled("drop-last")});
  fmt::memory_buffer text;
  for (const std::int64_t index : sampler.order(options.integer("epoch", 0, INT64_MAX)))
    fmt::format_to(std::back_inserter(text), "{}\n", index);
  std::fwrite(text.data(), 1, text.size(), stdout);
  if (std::fflush(stdout) != 0) throw SystemError("write to standard output", errno);
  return ExitCode::ok;
}

}  // namespace dtrain
