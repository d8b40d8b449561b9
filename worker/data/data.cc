// `dtrain data`: looks at data sets before a run does, and packs pictures.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/base/blocked_signals.h"
#include "runtime/data/batch_layout.h"
#include "runtime/data/images/files/pack.h"
#include "runtime/data/sources/open_source.h"
#include "runtime/data/sources/source_spec.h"
#include "worker/data/data.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"dataset", "What to check", "NAME", "", "as --dataset of dtrain train"},
    {"data-dir", "What to check", "DIR", "", "folder with the data set's files; unset: where Debian's package installs them"},
    {"threads", "Machine", "N", "", "reading threads; unset: one per core"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

/// What is wrong with the samples of one split, by their index.
class Check {
 public:
  explicit Check(const Source& source) : source_(source), layout_(source, 1, {}) {}

  std::map<std::int64_t, std::string> run(int threads) {
    std::vector<std::thread> readers;
    {
      const AllSignalsBlocked for_the_threads;
      for (int i = 0; i < threads; ++i) readers.emplace_back([this] { read_all(); });
    }
    for (std::thread& reader : readers) reader.join();
    return std::move(bad_);
  }

 private:
  void read_all() noexcept {
    std::vector<std::byte> memory(layout_.bytes());
    for (std::int64_t index; (index = next_.fetch_add(1)) < source_.size();) {
      KeyedGenerator generator(0, 0, static_cast<std::uint64_t>(index));
      try {
        read_sample(source_, index, layout_.first_sample(memory.data()), generator);
        layout_.check_values(source_, memory.data(), {&index, 1});
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex_);
        bad_.emplace(index, error.what());
      }
    }
  }

  const Source& source_;
  BatchLayout layout_;
  std::atomic<std::int64_t> next_ = 0;
  std::mutex mutex_;
  std::map<std::int64_t, std::string> bad_;
};

/// The pictures of packed shards against their checksums.
std::int64_t check_shards(const std::string& dataset, const std::string& folder) {
  if (!dataset.starts_with("shards:")) return 0;
  std::int64_t bad = 0;
  SourceSpec spec("shards", std::string_view(dataset).substr(7));
  for (const auto& pattern : {std::optional(spec.file()), spec.take("test")}) {
    if (!pattern) continue;
    const auto shards = expand_shards((std::filesystem::path(folder) / *pattern).string());
    check_packed(shards, [&](const std::string& message) {
      fmt::print("{}\n", message);
      ++bad;
    });
  }
  return bad;
}

ExitCode run_check(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain data check", kOptions, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain data check --dataset NAME [options]\n\nExamples:\n  dtrain "
                                   "data check --dataset csv:mine.csv,target=price",
                                   kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const std::string dataset = required(options, "dataset");
  const std::string folder = options.has("data-dir") ? options.text("data-dir") : "";
  const Splits splits = open_splits(dataset, {.data_dir = folder, .log = nullptr});
  std::int64_t samples = 0, bad = check_shards(dataset, folder);
  for (const auto& source : {splits.train, splits.test}) {
    for (const auto& [index, message] : Check(*source).run(threads_of(options))) {
      fmt::print("{}\n", message);
      ++bad;
    }
    samples += source->size();
  }
  fmt::print("{} samples, {} of them bad\n", samples, bad);
  return bad == 0 ? ExitCode::ok : ExitCode::data;
}

struct DataCommand {
  std::string_view name, what;
  ExitCode (*run)(const Invocation& invocation);
};

constexpr DataCommand kCommands[] = {
    {"check", "read every sample once and report the bad ones", run_check},
    {"stats", "describe pictures: classes, sizes, means, duplicates", run_data_stats},
    {"pack", "write pictures into tar shards, which are read faster", run_data_pack},
    {"index", "write an index beside each tar shard, as wds2idx does", run_data_index},
};

}  // namespace

std::string required(const Options& options, const char* name) {
  if (options.has(name)) return options.text(name);
  throw UsageError(fmt::format("--{}: expected a value, got none", name));
}

int threads_of(const Options& options) {
  if (options.has("threads")) return static_cast<int>(options.integer("threads", 1, 1024));
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

ExitCode run_data(const Invocation& invocation) {
  const std::string what = invocation.arguments.empty() ? "--help" : invocation.arguments.front();
  if (what == "--help" || what == "-h") {
    fmt::print("usage: dtrain data COMMAND [options]\n\n");
    for (const DataCommand& command : kCommands) fmt::print("  {:<6}  {}\n", command.name, command.what);
    return ExitCode::ok;
  }
  const auto found = std::ranges::find(kCommands, what, &DataCommand::name);
  if (found == std::end(kCommands))
    throw UsageError(fmt::format("dtrain data: expected check, stats, pack or index, got '{}'", what));
  return found->run({{invocation.arguments.begin() + 1, invocation.arguments.end()}, invocation.environment});
}

}  // namespace dtrain
