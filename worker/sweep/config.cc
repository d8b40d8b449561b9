#include "worker/sweep/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "runtime/checkpoint/json/strict_json.h"

namespace dtrain::sweep {
namespace {

using nlohmann::json;

constexpr int kDeepest = 8;
constexpr int kMostWorkers = 4096;
constexpr double kLargestWhole = 0x1p53;  // beyond, a double leaves some out

constexpr std::string_view kFields[] = {"program", "method",         "count", "seed",
                                        "options", "nproc_per_node", "metric"};
constexpr std::string_view kRangeFields[] = {"min", "max", "scale"};

/// One file's fields, with its name for what is wrong with them.
class Reader {
 public:
  Reader(const json& object, const std::string& file) : object_(object), file_(file) {}

  [[noreturn]] void refuse(std::string_view field, const std::string& what) const {
    throw UsageError(fmt::format("{}: {}: {}", file_, field, what));
  }

  void check_fields(const json& object, std::span<const std::string_view> known,
                    const std::string& prefix) const {
    for (const auto& [name, value] : object.items()) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      const auto close = closest_word(name, known);
      refuse(prefix + name,
             fmt::format("unknown field{}", close ? fmt::format("; did you mean \"{}\"?", *close) : ""));
    }
  }

  std::string text(const char* field) const {
    const auto found = object_.find(field);
    if (found == object_.end()) return {};
    if (!found->is_string() || found->get_ref<const std::string&>().empty())
      refuse(field, "expected a string, got " + found->dump());
    return found->get<std::string>();
  }

  std::optional<std::int64_t> integer(const char* field, std::int64_t least, std::int64_t most) const {
    const auto found = object_.find(field);
    if (found == object_.end()) return std::nullopt;
    const bool fits = found->is_number_integer() &&
                      (!found->is_number_unsigned() || found->get<std::uint64_t>() <= INT64_MAX);
    const std::int64_t value = fits ? found->get<std::int64_t>() : 0;
    if (!fits || value < least || value > most)
      refuse(field, fmt::format("expected a whole number from {} to {}, got {}", least, most, found->dump()));
    return value;
  }

  const json& object() const noexcept { return object_; }

 private:
  const json& object_;
  const std::string& file_;
};

bool is_scalar(const json& value) { return value.is_string() || value.is_number() || value.is_boolean(); }

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

bool is_whole(double value) { return std::floor(value) == value && std::abs(value) <= kLargestWhole; }

double bound(const Reader& read, const json& range, const std::string& field, const char* name) {
  const auto found = range.find(name);
  if (found == range.end()) read.refuse(field, fmt::format("expected \"{}\" in a range, got none", name));
  if (!found->is_number()) read.refuse(field + "." + name, "expected a number, got " + found->dump());
  return found->get<double>();
}

Range read_range(const Reader& read, const json& value, const std::string& field) {
  read.check_fields(value, kRangeFields, field + ".");
  Range range{bound(read, value, field, "min"), bound(read, value, field, "max"), Scale::linear};
  const std::string scale = value.contains("scale") ? text_of(value["scale"]) : "linear";
  if (scale == "log") {
    range.scale = Scale::log;
  } else if (scale == "int") {
    range.scale = Scale::integer;
  } else if (scale != "linear") {
    read.refuse(field + ".scale", "expected linear, log or int, got " + value["scale"].dump());
  }
  if (!(range.least < range.most))
    read.refuse(field, fmt::format("expected min below max, got {} and {}", range.least, range.most));
  if (range.scale == Scale::log && range.least <= 0)
    read.refuse(field + ".min", fmt::format("expected more than 0 on a log scale, got {}", range.least));
  if (range.scale == Scale::integer && !(is_whole(range.least) && is_whole(range.most)))
    read.refuse(field,
                fmt::format("expected whole numbers with scale int, got {} and {}", range.least, range.most));
  return range;
}

std::vector<std::string> read_list(const Reader& read, const json& list, const std::string& field) {
  if (list.empty()) read.refuse(field, "expected at least one value, got an empty list");
  std::vector<std::string> values;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", field, i);
    if (!is_scalar(list[i]))
      read.refuse(place, "expected a string, number or boolean, got " + list[i].dump());
    const std::string text = text_of(list[i]);
    if (std::find(values.begin(), values.end(), text) != values.end())
      read.refuse(place, fmt::format("expected each value once, got {} twice", list[i].dump()));
    values.push_back(text);
  }
  return values;
}

OptionChoice read_option(const Reader& read, const std::string& key, const json& value, Method method) {
  const std::string field = "options." + key;
  OptionChoice option{with_dashes(key), {}, std::nullopt, true};
  if (value.is_array()) {
    option.values = read_list(read, value, field);
  } else if (value.is_object()) {
    if (method == Method::grid)
      read.refuse(field,
                  "expected a value or a list of values, got a range, which only \"method\": \"random\" "
                  "draws from");
    option.range = read_range(read, value, field);
  } else if (is_scalar(value)) {
    option.values = {text_of(value)};
    option.swept = false;
  } else {
    read.refuse(field, "expected a value, a list of values or a range, got " + value.dump());
  }
  return option;
}

void read_options(const Reader& read, SweepConfig& config) {
  const auto found = read.object().find("options");
  if (found == read.object().end()) read.refuse("options", "expected an object of options, got none");
  if (!found->is_object()) read.refuse("options", "expected an object, got " + found->dump());
  for (const auto& [key, value] : found->items()) {
    OptionChoice option = read_option(read, key, value, config.method);
    const bool again = std::any_of(config.options.begin(), config.options.end(),
                                   [&](const OptionChoice& other) { return other.name == option.name; });
    if (again) read.refuse("options." + key, "expected each option once, got it in two spellings");
    config.options.push_back(std::move(option));
  }
  std::sort(config.options.begin(), config.options.end(),
            [](const OptionChoice& a, const OptionChoice& b) { return a.name < b.name; });
}

void read_method(const Reader& read, SweepConfig& config) {
  const std::string method = read.object().contains("method") ? read.text("method") : "grid";
  if (method != "grid" && method != "random")
    read.refuse("method", fmt::format("expected grid or random, got \"{}\"", method));
  config.method = method == "grid" ? Method::grid : Method::random;
  const auto count = read.integer("count", 1, kMostRuns);
  const auto seed = read.integer("seed", 0, INT64_MAX);
  if (config.method == Method::grid && (count || seed))
    read.refuse(count ? "count" : "seed", "expected only with \"method\": \"random\"; a grid has all runs");
  if (config.method == Method::random && !count)
    read.refuse("count", "expected the number of runs to draw, got none");
  config.count = count.value_or(0);
  config.seed = static_cast<std::uint64_t>(seed.value_or(0));
}

}  // namespace

SweepConfig parse_config(std::string_view text, const std::string& file) {
  const json object = parse_strict_json(text, file, 0, kDeepest);
  if (!object.is_object()) throw UsageError(fmt::format("{}: expected one JSON object", file));
  const Reader read(object, file);
  read.check_fields(object, kFields, "");
  SweepConfig config;
  config.file = file;
  config.program = read.text("program");
  config.metric = read.text("metric");
  config.workers = static_cast<int>(read.integer("nproc_per_node", 1, kMostWorkers).value_or(1));
  read_method(read, config);
  read_options(read, config);
  return config;
}

SweepConfig read_config(const std::filesystem::path& file) {
  std::error_code none;
  std::ifstream in(file, std::ios::binary);
  if (!in || std::filesystem::is_directory(file, none))
    throw UsageError(fmt::format("{}: cannot be opened; expected the JSON file of a sweep", file.string()));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return parse_config(text, file.string());
}

}  // namespace dtrain::sweep
