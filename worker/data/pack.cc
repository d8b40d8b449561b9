// `dtrain data pack` and `dtrain data index`: pictures in tar shards, and what is in them.
#include <fmt/format.h>

#include <filesystem>

#include "runtime/data/images/files/pack.h"
#include "runtime/data/images/files/survey.h"
#include "runtime/data/images/files/wds_index.h"
#include "runtime/data/sources/open_files.h"
#include "worker/data/data.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kPackOptions[] = {
    {"dataset", "What to pack", "NAME", "", "folder:DIR, or shards:PATTERN with its settings label, classes and index"},
    {"data-dir", "What to pack", "DIR", "", "folder of relative names; unset: the current one"},
    {"output", "The shards", "PREFIX", "", "start of the shards' paths: PREFIX-000000.tar, PREFIX-000001.tar, …"},
    {"shard-mib", "The shards", "N", "256", "MiB after which the next shard begins"},
    {"shuffle", "The shards", "SEED", "", "write a random order, for programs that read shards from front to back; unset: the order of the files"},
    {"threads", "Machine", "N", "", "reading and rewriting threads; unset: one per core"},
    {"help", "Output", "", "", "print this text"},
};
constexpr OptionSpec kIndexOptions[] = {
    {"shards", "What to index", "PATTERN", "", "tar archives, as in s-{0000..1281}.tar"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

/// How many cannot be read; each is named.
std::int64_t report_bad(const std::vector<PictureFacts>& facts) {
  std::int64_t bad = 0;
  for (const PictureFacts& one : facts) {
    if (one.bad.empty()) continue;
    fmt::print("{}\n", one.bad);
    ++bad;
  }
  return bad;
}

}  // namespace

ExitCode run_data_pack(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain data pack", kPackOptions, invocation.arguments, invocation.environment);
  if (const auto help =
          asked_help(options,
                     "usage: dtrain data pack --dataset NAME --output PREFIX [options]\n\nExamples:\n  "
                     "dtrain data pack --dataset folder:pictures --output packed/pictures",
                     kPackOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  PackOptions how{.prefix = required(options, "output"),
                  .shard_bytes = options.integer("shard-mib", 1, 1 << 20) << 20,
                  .threads = threads_of(options)};
  if (options.has("shuffle"))
    how.shuffle = static_cast<std::uint64_t>(options.integer("shuffle", 0, INT64_MAX));
  const auto files = open_picture_files(required(options, "dataset"),
                                        options.has("data-dir") ? options.text("data-dir") : "");
  if (const std::int64_t bad = report_bad(survey(*files, how.threads)); bad > 0) {
    fmt::print("{} of {} pictures are bad; nothing was written\n", bad, files->size());
    return ExitCode::data;
  }
  const Packed packed = pack_pictures(*files, how);
  fmt::print("{} pictures in {} shard{}: {:.1f} MB, {:.1f} MB before; {} JPEGs were rewritten without loss\n",
             packed.samples, packed.shards.size(), packed.shards.size() == 1 ? "" : "s",
             1e-6 * static_cast<double>(packed.bytes_after), 1e-6 * static_cast<double>(packed.bytes_before),
             packed.rewritten);
  fmt::print("{}\n", packed.shards.size() == 1 ? packed.shards.front()
                                               : packed.shards.front() + " to " + packed.shards.back());
  return ExitCode::ok;
}

ExitCode run_data_index(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain data index", kIndexOptions, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain data index --shards PATTERN\n\nExamples:\n  dtrain data "
                                   "index --shards 'train-{0000..0127}.tar'",
                                   kIndexOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  for (const std::string& shard : expand_shards(required(options, "shards"))) {
    const std::string path = std::filesystem::path(shard).replace_extension(".idx").string();
    fmt::print("{}: {} samples\n", path, write_wds_index(shard, path));
  }
  return ExitCode::ok;
}

}  // namespace dtrain
