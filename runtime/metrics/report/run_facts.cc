#include "runtime/metrics/report/run_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/metrics/report/words.h"

namespace dtrain {
namespace {

using nlohmann::ordered_json;

ordered_json parse_object(const std::string& text, const std::string& path) {
  ordered_json json;
  try {
    json = ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const auto at = std::min<std::size_t>(error.byte, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    throw DataError(path, static_cast<std::int64_t>(at), "JSON",
                    fmt::format("something else in line {}", line));
  } catch (const nlohmann::json::exception& error) {  // a number too large for a double
    throw DataError(path, -1, "JSON", error.what());
  }
  if (!json.is_object()) throw DataError(path, 0, "a JSON object", json.type_name());
  return json;
}

std::string text_of(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return number_text(value.get<double>());
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::optional<double> number(const ordered_json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

void add_options(const ordered_json& config, RunConfig& facts) {
  const auto options = config.find("options");
  if (options == config.end() || !options->is_object()) return;
  for (const auto& [name, option] : options->items()) {
    if (option.is_object() && option.contains("value") && option.contains("source"))
      facts.options.push_back({name, text_of(option["value"]), text_of(option["source"])});
  }
}

struct Named {
  const char* key;
  const char* name;
};

/// A fact for each of `names` that `object` has.
void add_named(const ordered_json& object, std::initializer_list<Named> names, std::vector<Fact>& facts) {
  for (const auto& [key, name] : names) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null() || found->is_structured()) continue;
    const bool integer = found->is_number_integer();
    facts.push_back({key, name,
                     std::string_view(key).ends_with("_bytes") && integer ? bytes_text(found->get<double>())
                     : integer ? count_text(found->get<std::int64_t>())
                               : text_of(*found)});
  }
}

/// What is made of a number of the summary.
struct Known {
  const char* key;
  const char* name;
  std::string (*text)(double);
  int better;
};

std::string whole_text(double value) {
  return std::abs(value) < 1e15 ? count_text(std::llround(value)) : number_text(value);
}

constexpr Known kKnown[] = {
    {"loss", "Last training loss", number_text, -1},
    {"seconds", "Duration", seconds_text, -1},
    {"seconds_to_first_step", "Time to first step", seconds_text, -1},
    {"steps", "Steps", whole_text, 0},
    {"epochs", "Epochs", whole_text, 0},
    {"world_size", "Workers", whole_text, 0},
    {"resumed_from_step", "Resumed from step", whole_text, 0},
    {"peak_allocated_bytes", "Peak memory of tensors", bytes_text, -1},
    {"peak_resident_bytes", "Peak memory of the process", bytes_text, -1},
    {"allocated_bytes", "Memory of tensors at the end", bytes_text, 0},
    {"resident_bytes", "Memory of the process at the end", bytes_text, 0},
};

Fact test_fact(const std::string& key, double value) {
  if (key == "accuracy") return {"test.accuracy", "Test accuracy", percent_text(value), value, 1};
  if (key == "loss") return {"test.loss", "Test loss", number_text(value), value, -1};
  if (key == "samples") return {"test.samples", "Test samples", whole_text(value), value, 0};
  std::string words = name_in_words(key);
  if (!words.empty()) words[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(words[0])));
  return {"test." + key, "Test " + words, value_in_words(key, value), value, 0};
}

void add_tests(const ordered_json& summary, std::vector<Fact>& results) {
  const auto test = summary.find("test");
  if (test == summary.end() || !test->is_object()) return;
  for (const char* key : {"accuracy", "loss"}) {
    if (const auto value = number(*test, key)) results.push_back(test_fact(key, *value));
  }
  for (const auto& [key, value] : test->items()) {
    if (key == "accuracy" || key == "loss") continue;
    if (const auto found = number(*test, key.c_str())) results.push_back(test_fact(key, *found));
  }
}

PhaseTimes phases_of(const ordered_json& summary) {
  PhaseTimes phases;
  const auto found = summary.find("phase_milliseconds_per_step");
  if (found == summary.end() || !found->is_object() || found->empty()) return {};
  phases.milliseconds.resize(1);
  for (const auto& [part, value] : found->items()) {
    phases.parts.push_back(part);
    phases.milliseconds[0].push_back(std::max(number(*found, part.c_str()).value_or(0), 0.0));
  }
  phases.ranks = {0};
  phases.measured = "mean of all steps of the last start";
  return phases;
}

/// What nobody here knows the name of.
void add_others(const ordered_json& summary, std::vector<Fact>& results) {
  const auto known = [](const std::string& key) {
    for (const char* name : {"status", "device", "emulated", "samples_per_second", "test",
                             "phase_milliseconds_per_step", "start"}) {
      if (key == name) return true;
    }
    return std::ranges::any_of(kKnown, [&](const Known& one) { return key == one.key; });
  };
  for (const auto& [key, value] : summary.items()) {
    if (known(key) || value.is_structured() || value.is_null()) continue;
    const auto found = number(summary, key.c_str());
    results.push_back(
        {key, name_in_words(key), found ? value_in_words(key, *found) : text_of(value), found, 0});
  }
}

}  // namespace

std::string RunConfig::option(std::string_view name) const {
  const auto found = std::ranges::find(options, name, &RunOption::name);
  return found == options.end() ? std::string() : found->value;
}

std::string samples_word(const RunConfig& config) {
  const std::string dataset = config.option("dataset");
  if (dataset == "fashion-mnist" || dataset == "cifar10" || dataset.starts_with("synthetic:"))
    return "Images";
  if (dataset.starts_with("text:")) return "Sequences";
  return "Samples";
}

RunConfig config_facts(const std::string& json_text, const std::string& path) {
  const ordered_json config = parse_object(json_text, path);
  RunConfig facts;
  add_options(config, facts);
  add_named(config,
            {{"global_batch_size", "Batch of all workers"},
             {"batch_size_per_worker", "Batch of one worker"},
             {"accumulate", "Passes per step"},
             {"lr", "Learning rate"}},
            facts.settings);
  add_named(config, {{"device", "Device"}}, facts.machine);
  if (config.value("emulated", ordered_json()) == true)
    facts.machine.push_back({"emulated", "Emulated", "yes: times say nothing about a GPU"});
  const auto machine = config.find("machine");
  if (machine != config.end() && machine->is_object()) {
    add_named(*machine,
              {{"host", "Host of rank 0"},
               {"processor", "Processor"},
               {"cores", "Cores"},
               {"memory_bytes", "Memory"},
               {"system", "System"}},
              facts.machine);
  }
  return facts;
}

RunSummaryFacts summary_facts(const std::string& json_text, const std::string& path,
                              const std::string& samples) {
  const ordered_json summary = parse_object(json_text, path);
  RunSummaryFacts facts;
  const auto status = summary.find("status");
  facts.status = status != summary.end() && status->is_string() ? status->get<std::string>() : "finished";
  facts.steps = number(summary, "steps").value_or(-1);
  add_tests(summary, facts.results);
  if (const auto rate = number(summary, "samples_per_second"))
    facts.results.push_back({"samples_per_second", samples + " per second", number_text(*rate), rate, 1});
  for (const Known& known : kKnown) {
    const auto value = number(summary, known.key);
    if (!value || (std::string_view(known.key) == "resumed_from_step" && *value == 0)) continue;
    const bool part =
        std::string_view(known.key) == "seconds" && number(summary, "resumed_from_step").value_or(0) > 0;
    facts.results.push_back({known.key, part ? "Duration since the resume" : known.name, known.text(*value),
                             value, known.better});
  }
  add_others(summary, facts.results);
  facts.phases = phases_of(summary);
  return facts;
}

LogFacts log_facts(std::string_view log, std::size_t most) {
  LogFacts facts;
  while (!log.empty()) {
    std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    if (line.find(": warning: ") != std::string_view::npos ||
        line.find(": error: ") != std::string_view::npos) {
      if (line.starts_with("dtrain: ")) line.remove_prefix(std::string_view("dtrain: ").size());
      facts.troubles.emplace_back(line.substr(0, 500));
      if (facts.troubles.size() > most) facts.troubles.erase(facts.troubles.begin());
      continue;
    }
    // "dtrain: rank 0: rank 0 of 2, pid 4711, cpu (…), backend tcp"
    constexpr std::string_view kStart = "rank 0 of ";
    const std::size_t at = line.find(kStart), pid = line.find(", pid ");
    if (at == std::string_view::npos || pid == std::string_view::npos || pid < at) continue;
    const std::string workers(line.substr(at + kStart.size(), pid - at - kStart.size()));
    const std::size_t rest = line.find(", ", pid + 2);
    facts.starts.push_back(fmt::format("{} worker{}{}", workers, workers == "1" ? "" : "s",
                                       rest == std::string_view::npos ? "" : line.substr(rest)));
  }
  return facts;
}

}  // namespace dtrain
