// `dtrain data check`: reads every sample of a data set once, before a run finds the bad ones.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/base/blocked_signals.h"
#include "runtime/data/batch_layout.h"
#include "runtime/data/sources/open_source.h"
#include "worker/commands.h"

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

ExitCode run_check(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain data check", kOptions, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options, "usage: dtrain data check --dataset NAME [options]", kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  if (!options.has("dataset")) throw UsageError("--dataset: expected a data set, got none");
  std::int64_t threads = std::max(1U, std::thread::hardware_concurrency());
  if (options.has("threads")) threads = options.integer("threads", 1, 1024);
  const Splits splits =
      open_splits(options.text("dataset"),
                  {.data_dir = options.has("data-dir") ? options.text("data-dir") : "", .log = nullptr});
  std::int64_t samples = 0, bad = 0;
  for (const auto& source : {splits.train, splits.test}) {
    for (const auto& [index, message] : Check(*source).run(static_cast<int>(threads))) {
      fmt::print("{}\n", message);
      ++bad;
    }
    samples += source->size();
  }
  fmt::print("{} samples, {} of them bad\n", samples, bad);
  return bad == 0 ? ExitCode::ok : ExitCode::data;
}

}  // namespace

ExitCode run_data(const Invocation& invocation) {
  const std::string what = invocation.arguments.empty() ? "--help" : invocation.arguments.front();
  if (what == "--help" || what == "-h") {
    fmt::print(
        "usage: dtrain data check --dataset NAME [options]\n\n"
        "  check   read every sample once and report the bad ones\n");
    return ExitCode::ok;
  }
  if (what != "check") throw UsageError(fmt::format("dtrain data: expected check, got '{}'", what));
  return run_check({{invocation.arguments.begin() + 1, invocation.arguments.end()}, invocation.environment});
}

}  // namespace dtrain
