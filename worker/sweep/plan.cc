#include "worker/sweep/plan.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <set>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/keyed_random.h"

namespace dtrain::sweep {
namespace {

constexpr std::size_t kLongestName = 120, kShortenedName = 100;
constexpr std::int64_t kDrawsPerRun = 100;  // until all runs that there are were surely drawn

// FNV-1a, 64 bits: the same on every machine, which std::hash need not be.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// What needs no quotes in a shell and is no path.
bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._+-:").find(c) != std::string_view::npos;
}

std::string name_of(const std::vector<std::pair<std::string, std::string>>& swept) {
  std::string whole, name;
  bool changed = false;
  for (const auto& [option, value] : swept) {
    if (!name.empty()) name += ',';
    name += option + "=";
    for (const char c : value) {
      name += is_plain(c) ? c : '-';
      changed = changed || !is_plain(c);
    }
    whole += option + "=" + value + "\n";
  }
  if (name.empty()) return "run";
  if (!changed && name.size() <= kLongestName) return name;
  return fmt::format("{}-{:08x}", name.substr(0, kShortenedName), hash_of(whole) & 0xffffffff);
}

Run make_run(const SweepConfig& config, const std::vector<std::string>& values) {
  Run run;
  for (std::size_t i = 0; i < values.size(); ++i) {
    run.options.emplace_back(config.options[i].name, values[i]);
    if (config.options[i].swept) run.swept.push_back(run.options.back());
  }
  run.name = name_of(run.swept);
  return run;
}

std::vector<Run> make_grid(const SweepConfig& config) {
  std::size_t total = 1;
  for (const OptionChoice& option : config.options) {
    total *= option.values.size();
    if (total > static_cast<std::size_t>(kMostRuns))
      throw UsageError(
          fmt::format("{}: options: expected at most {} runs, got more", config.file, kMostRuns));
  }
  std::vector<Run> runs;
  for (std::size_t number = 0; number < total; ++number) {
    std::vector<std::string> values(config.options.size());
    std::size_t rest = number;
    for (std::size_t i = values.size(); i-- > 0;) {
      const auto& choices = config.options[i].values;
      values[i] = choices[rest % choices.size()];
      rest /= choices.size();
    }
    runs.push_back(make_run(config, values));
  }
  return runs;
}

double uniform(KeyedGenerator& generator) { return static_cast<double>(generator.next64() >> 11) * 0x1p-53; }

std::string draw(const OptionChoice& option, std::uint64_t seed, std::uint64_t number) {
  KeyedGenerator generator(seed, hash_of(option.name), number);
  if (!option.range) return option.values[generator.below(option.values.size())];
  const auto [least, most, scale] = *option.range;
  if (scale == Scale::integer) {
    const auto span = static_cast<std::uint64_t>(most - least) + 1;
    return fmt::format("{}",
                       static_cast<std::int64_t>(least) + static_cast<std::int64_t>(generator.below(span)));
  }
  const double at = uniform(generator);
  // Six digits: what a run's name says is what it gets.
  if (scale == Scale::log)
    return fmt::format("{:.6g}", std::exp(std::log(least) + (std::log(most) - std::log(least)) * at));
  return fmt::format("{:.6g}", least + (most - least) * at);
}

std::vector<Run> make_random(const SweepConfig& config) {
  std::vector<Run> runs;
  std::set<std::string> names;
  for (std::int64_t number = 0; number < config.count * kDrawsPerRun; ++number) {
    std::vector<std::string> values;
    for (const OptionChoice& option : config.options)
      values.push_back(draw(option, config.seed, static_cast<std::uint64_t>(number)));
    Run run = make_run(config, values);
    if (names.insert(run.name).second) runs.push_back(std::move(run));
    if (static_cast<std::int64_t>(runs.size()) == config.count) return runs;
  }
  throw UsageError(
      fmt::format("{}: count: expected no more runs than there are different ones, got {}; {} were found",
                  config.file, config.count, runs.size()));
}

}  // namespace

std::vector<Run> make_runs(const SweepConfig& config) {
  return config.method == Method::grid ? make_grid(config) : make_random(config);
}

std::vector<std::string> arguments_of(const Run& run) {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : run.options) arguments.push_back(fmt::format("--{}={}", name, value));
  return arguments;
}

}  // namespace dtrain::sweep
