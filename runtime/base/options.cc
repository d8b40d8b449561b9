// Parsing is cxxopts'; the layers, the sources and the wording of errors are ours.
#include "runtime/base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cxxopts.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::string_view kHelpColumn = "                              ";

std::string with_dashes(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

std::string variable_of(std::string_view name) {
  std::string result = "DTRAIN_";
  for (const char c : name)
    result += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

// "--global_batch_size=8" and "--global-batch-size=8" are one option.
std::string canonical(const std::string& argument) {
  if (!argument.starts_with("--")) return argument;
  const auto end = std::min(argument.find('='), argument.size());
  return with_dashes(argument.substr(0, end)) + argument.substr(end);
}

std::vector<std::string_view> names_of(std::span<const OptionSpec> specs) {
  std::vector<std::string_view> names;
  for (const OptionSpec& spec : specs) names.push_back(spec.name);
  return names;
}

std::string suggestion(std::string_view word, std::span<const std::string_view> candidates,
                       std::string_view prefix) {
  const auto close = closest_word(word, candidates);
  return close ? fmt::format("; did you mean {}{}?", prefix, *close) : std::string();
}

[[noreturn]] void refuse_unknown(std::string_view program, const std::string& argument,
                                 std::span<const OptionSpec> specs) {
  if (!argument.starts_with("-")) {
    throw UsageError(fmt::format("{}: expected options only, got the argument '{}'", program, argument));
  }
  const std::string name = argument.substr(std::min(argument.find_first_not_of('-'), argument.size()));
  const std::string bare = name.substr(0, name.find('='));
  const auto names = names_of(specs);
  throw UsageError(fmt::format("{}: unknown option {}{} (--help lists all)", program,
                               argument.substr(0, argument.find('=')), suggestion(bare, names, "--")));
}

std::map<std::string, OptionValue> parse_arguments(std::string_view program,
                                                   std::span<const OptionSpec> specs,
                                                   const std::vector<std::string>& arguments) {
  cxxopts::Options parser{std::string(program)};
  parser.allow_unrecognised_options();
  for (const OptionSpec& spec : specs) {
    auto value = cxxopts::value<std::string>();
    if (spec.value_name.empty()) value->implicit_value("true");
    parser.add_options()(std::string(spec.name), std::string(spec.help), value);
  }
  std::vector<std::string> words;
  for (const std::string& argument : arguments) words.push_back(canonical(argument));
  std::vector<const char*> argv = {program.data()};
  for (const std::string& word : words) argv.push_back(word.c_str());

  std::map<std::string, OptionValue> values;
  try {
    const auto parsed = parser.parse(static_cast<int>(argv.size()), argv.data());
    if (!parsed.unmatched().empty()) refuse_unknown(program, parsed.unmatched().front(), specs);
    for (const auto& item : parsed.arguments()) values[item.key()] = {item.value(), "command line"};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {  // cxxopts' own; their names differ between 3.0 and 3.1
    throw UsageError(fmt::format("{}: {} (--help lists all options)", program, error.what()));
  }
  return values;
}

std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void fill_from_file(const std::string& path, std::span<const OptionSpec> specs,
                    std::map<std::string, OptionValue>& values) {
  std::ifstream in(path);
  if (!in) throw UsageError(fmt::format("--config {}: cannot be opened; expected a JSON file", path));
  const auto object = nlohmann::json::parse(in, nullptr, false);
  if (!object.is_object())
    throw UsageError(fmt::format("--config {}: expected one JSON object, got something else", path));
  const auto names = names_of(specs);
  for (const auto& [key, value] : object.items()) {
    const std::string name = with_dashes(key);
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw UsageError(
          fmt::format("--config {}: unknown key \"{}\"{}", path, key, suggestion(name, names, "")));
    }
    if (value.is_structured() || value.is_null()) {
      throw UsageError(fmt::format("--config {}: key \"{}\": expected a string, number or boolean, got {}",
                                   path, key, value.dump()));
    }
    values.try_emplace(name, OptionValue{text_of(value), path});
  }
}

// Levenshtein distance, two rows at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> previous(b.size() + 1), current(b.size() + 1);
  std::iota(previous.begin(), previous.end(), 0U);
  for (std::size_t i = 0; i < a.size(); ++i) {
    current[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = previous[j] + (a[i] == b[j] ? 0U : 1U);
      current[j + 1] = std::min({change, previous[j + 1] + 1, current[j] + 1});
    }
    std::swap(previous, current);
  }
  return previous.back();
}

std::string refusal(const std::string& name, const OptionValue& value, const std::string& expected) {
  return fmt::format("--{} (from {}): expected {}, got '{}'", name, value.source, expected, value.text);
}

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) { return parse_number<std::int64_t>(text); }
std::optional<double> parse_real(std::string_view text) { return parse_number<double>(text); }

bool Options::has(const std::string& name) const { return values_.contains(name); }

const OptionValue& Options::at(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw UsageError(fmt::format("--{}: expected a value, got none", name));
  return found->second;
}

bool Options::enabled(const std::string& name) const {
  if (!has(name)) return false;
  const OptionValue& value = at(name);
  if (value.text == "true" || value.text == "1") return true;
  if (value.text == "false" || value.text == "0") return false;
  throw UsageError(refusal(name, value, "true or false"));
}

std::int64_t Options::integer(const std::string& name, std::int64_t least, std::int64_t most) const {
  const OptionValue& value = at(name);
  const auto number = parse_integer(value.text);
  if (!number || *number < least || *number > most) {
    const std::string bound = most == INT64_MAX ? fmt::format("a whole number of at least {}", least)
                                                : fmt::format("a whole number from {} to {}", least, most);
    throw UsageError(refusal(name, value, bound));
  }
  return *number;
}

double Options::real(const std::string& name, double least, double most) const {
  const OptionValue& value = at(name);
  const auto number = parse_real(value.text);
  if (!number || !(*number >= least && *number <= most)) {
    throw UsageError(refusal(name, value, fmt::format("a number from {} to {}", least, most)));
  }
  return *number;
}

const std::string& Options::choice(const std::string& name,
                                   std::initializer_list<std::string_view> choices) const {
  const OptionValue& value = at(name);
  if (std::find(choices.begin(), choices.end(), value.text) != choices.end()) return value.text;
  const std::vector<std::string_view> words(choices);
  throw UsageError(refusal(name, value, fmt::format("one of {}", fmt::join(words, ", "))) +
                   suggestion(value.text, words, ""));
}

Options resolve_options(std::string_view program, std::span<const OptionSpec> specs,
                        const std::vector<std::string>& arguments, const Environment& environment) {
  auto values = parse_arguments(program, specs, arguments);
  for (const OptionSpec& spec : specs) {
    const std::string variable = variable_of(spec.name);
    const auto found = environment.find(variable);
    if (found != environment.end())
      values.try_emplace(std::string(spec.name), OptionValue{found->second, variable});
  }
  if (const auto config = values.find("config"); config != values.end())
    fill_from_file(config->second.text, specs, values);
  for (const OptionSpec& spec : specs) {
    if (!spec.default_text.empty()) {
      values.try_emplace(std::string(spec.name), OptionValue{std::string(spec.default_text), "default"});
    }
  }
  return Options(std::move(values));
}

std::string options_help(std::string_view usage, std::span<const OptionSpec> specs) {
  std::string text = fmt::format("{}\n", usage);
  std::string_view group;
  for (const OptionSpec& spec : specs) {
    if (spec.group != group) text += fmt::format("\n{}\n", group = spec.group);
    std::string left =
        fmt::format("  --{}{}{}", spec.name, spec.value_name.empty() ? "" : " ", spec.value_name);
    left += left.size() < kHelpColumn.size() ? std::string(kHelpColumn.size() - left.size(), ' ')
                                             : "\n" + std::string(kHelpColumn);
    const bool show_default = !spec.default_text.empty() && !spec.value_name.empty();
    text += fmt::format("{} {}{}\n", left, spec.help,
                        show_default ? fmt::format(" [{}]", spec.default_text) : "");
  }
  return text;
}

std::string options_table(const Options& options) {
  std::string text;
  for (const auto& [name, value] : options.all())
    text += fmt::format("{:<24} {:<28} {}\n", name, value.text, value.source);
  return text;
}

std::optional<std::string> closest_word(std::string_view word, std::span<const std::string_view> candidates) {
  std::optional<std::string> best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = std::string(candidate);
    }
  }
  return best;
}

}  // namespace dtrain
