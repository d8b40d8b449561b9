// The layers of a program's options: command line, environment, file, defaults.
#include "runtime/base/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::string with_dashes(std::string_view name) {
  std::string result(name);
  std::replace(result.begin(), result.end(), '_', '-');
  return result;
}

std::string variable_of(std::string_view prefix, std::string_view name) {
  std::string result(prefix);
  for (const char c : name)
    result += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return result;
}

// The option called `name` in any spelling, or nullptr.
const OptionSpec* find_spec(std::span<const OptionSpec> specs, std::string_view name) {
  const std::string dashed = with_dashes(name);
  const auto found = std::find_if(specs.begin(), specs.end(), [&](const OptionSpec& spec) {
    return spec.name == dashed || (!spec.alias.empty() && spec.alias == dashed);
  });
  return found == specs.end() ? nullptr : &*found;
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

/// Whether `typed` ("-np4", "--learning_rate") is `foreign` ("-np", "--learning-rate").
bool is_called(std::string_view typed, std::string_view foreign) {
  if (foreign.starts_with("--")) return with_dashes(typed) == foreign;
  return typed.starts_with(foreign) &&
         typed.find_first_not_of("0123456789", foreign.size()) == std::string_view::npos;
}

// Reads our own part of a command line; the rest is not ours to look at. A value that comes twice: the last.
class Parser {
 public:
  Parser(std::string_view program, std::span<const OptionSpec> specs,
         const std::vector<std::string>& arguments, std::span<const ForeignOption> foreign)
      : program_(program), specs_(specs), arguments_(arguments), foreign_(foreign) {}

  std::map<std::string, OptionValue> parse() {
    while (next_ < arguments_.size()) {
      const std::string& word = arguments_[next_];
      if (word == "--") {
        ++next_;
        break;
      }
      if (word.size() < 2 || word[0] != '-') break;
      ++next_;
      if (word[1] == '-') {
        read_long(word);
      } else {
        read_short(word);
      }
    }
    return std::move(values_);
  }
  std::vector<std::string> rest() const {
    return {arguments_.begin() + static_cast<std::ptrdiff_t>(next_), arguments_.end()};
  }

 private:
  void read_long(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string_view name = std::string_view(word).substr(2, equals == word.npos ? equals : equals - 2);
    const OptionSpec* spec = find_spec(specs_, name);
    if (spec == nullptr) refuse_unknown(word.substr(0, equals), name);
    if (equals != word.npos) return set(*spec, word.substr(equals + 1));
    set(*spec, spec->value_name.empty() ? "true" : value_after(word, *spec));
  }

  void read_short(const std::string& word) {
    const auto spec = std::find_if(specs_.begin(), specs_.end(), [&](const OptionSpec& candidate) {
      return candidate.letter != 0 && candidate.letter == word[1];
    });
    const bool is_switch = spec != specs_.end() && spec->value_name.empty();
    const OptionSpec* const help = find_spec(specs_, "help");
    if (spec == specs_.end() && word == "-h" && help != nullptr) return set(*help, "true");
    // A single dash before a long name is a common slip.
    if (spec == specs_.end() || (is_switch && word.size() > 2))
      refuse_unknown(word, std::string_view(word).substr(1));
    if (is_switch) return set(*spec, "true");
    if (word.size() > 2) return set(*spec, word.substr(word[2] == '=' ? 3 : 2));
    set(*spec, value_after(word, *spec));
  }

  const std::string& value_after(const std::string& word, const OptionSpec& spec) {
    if (next_ < arguments_.size()) return arguments_[next_++];
    throw UsageError(fmt::format("{}: {}: expected a value ({}), got the end of the command line", program_,
                                 word, spec.value_name));
  }

  void set(const OptionSpec& spec, std::string text) {
    values_[std::string(spec.name)] = {std::move(text), "command line", spec.agreement};
  }

  [[noreturn]] void refuse_unknown(const std::string& shown, std::string_view name) const {
    const auto names = names_of(specs_);
    const std::string_view help = find_spec(specs_, "help-all") != nullptr ? "--help-all" : "--help";
    const std::string_view answer = answer_to(shown);
    throw UsageError(fmt::format(
        "{}: unknown option {}{} ({} lists all)", program_, shown,
        answer.empty() ? suggestion(with_dashes(name), names, "--") : fmt::format(": {}", answer), help));
  }

  /// Empty: nobody's option that we know.
  std::string_view answer_to(std::string_view shown) const {
    for (const auto& [names, answer] : foreign_) {
      for (const std::string_view name : split_words(names)) {
        if (is_called(shown, name)) return answer;
      }
    }
    return {};
  }

  std::string_view program_;
  std::span<const OptionSpec> specs_;
  const std::vector<std::string>& arguments_;
  std::span<const ForeignOption> foreign_;
  std::size_t next_ = 0;
  std::map<std::string, OptionValue> values_;
};

std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The object in the configuration file, or what is wrong with it and in which line.
nlohmann::json read_object(const std::string& path) {
  std::ifstream in(path);
  if (!in || std::filesystem::is_directory(path))
    throw UsageError(fmt::format("--config {}: cannot be opened; expected a JSON file", path));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const auto at = static_cast<std::ptrdiff_t>(std::min<std::size_t>(error.byte, text.size()));
    throw UsageError(fmt::format("--config {}: expected one JSON object, got something else in line {}", path,
                                 1 + std::count(text.begin(), text.begin() + at, '\n')));
  } catch (const nlohmann::json::exception& error) {  // a number too large for a double
    throw UsageError(fmt::format("--config {}: expected one JSON object: {}", path, error.what()));
  }
  if (!object.is_object())
    throw UsageError(fmt::format("--config {}: expected one JSON object, got {}", path, object.type_name()));
  return object;
}

void fill_from_file(const std::string& path, std::span<const OptionSpec> specs,
                    std::map<std::string, OptionValue>& values) {
  const nlohmann::json object = read_object(path);
  for (const auto& [key, value] : object.items()) {
    const OptionSpec* spec = find_spec(specs, key);
    if (spec == nullptr) {
      throw UsageError(fmt::format("--config {}: unknown key \"{}\"{}", path, key,
                                   suggestion(with_dashes(key), names_of(specs), "")));
    }
    if (value.is_structured() || value.is_null()) {
      throw UsageError(fmt::format("--config {}: key \"{}\": expected a string, number or boolean, got {}",
                                   path, key, value.dump()));
    }
    values.try_emplace(std::string(spec->name), OptionValue{text_of(value), path, spec->agreement});
  }
}

void fill_from_environment(const Environment& environment, std::string_view prefix,
                           std::span<const OptionSpec> specs, std::map<std::string, OptionValue>& values) {
  for (const OptionSpec& spec : specs) {
    // Nobody asks for help through the environment; DTRAIN_VERSION may well mean something else.
    if (spec.name.starts_with("help") || spec.name == "version") continue;
    const std::string variable =
        spec.variable.empty() ? variable_of(prefix, spec.name) : std::string(spec.variable);
    if (const std::string* text = find_variable(environment, variable))
      values.try_emplace(std::string(spec.name), OptionValue{*text, variable, spec.agreement});
  }
}

std::vector<std::string> notes_on(const std::map<std::string, OptionValue>& values,
                                  std::span<const OptionSpec> specs) {
  std::vector<std::string> notes;
  for (const OptionSpec& spec : specs) {
    if (!spec.no_effect.empty() && values.contains(std::string(spec.name)))
      notes.push_back(fmt::format("--{} has no effect: {}", spec.name, spec.no_effect));
  }
  return notes;
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

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    const std::size_t comma = text.find(", ");
    words.push_back(text.substr(0, comma));
    if (comma == text.npos) return words;
    text.remove_prefix(comma + 2);
  }
}

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

void Options::refuse(const std::string& name, const std::string& expected) const {
  throw UsageError(refusal(name, at(name), expected));
}

std::int64_t Options::integer(const std::string& name, std::int64_t least, std::int64_t most) const {
  const OptionValue& value = at(name);
  const auto number = parse_integer(value.text);
  if (!number || *number < least || *number > most) {
    const std::string expected = least == INT64_MIN ? "a whole number"
                                 : most == INT64_MAX
                                     ? fmt::format("a whole number of at least {}", least)
                                     : fmt::format("a whole number from {} to {}", least, most);
    throw UsageError(refusal(name, value, expected));
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

std::vector<double> Options::ascending(const std::string& name) const {
  const std::string_view all = text(name);
  std::vector<double> numbers;
  for (std::size_t begin = 0; begin <= all.size();) {
    const std::size_t end = std::min(all.find(',', begin), all.size());
    const auto number = parse_real(all.substr(begin, end - begin));
    const double before = numbers.empty() ? 0 : numbers.back();
    if (!number || !(*number > before) || !std::isfinite(*number))
      refuse(name, "numbers above 0 in ascending order, as in 30,60,80");
    numbers.push_back(*number);
    begin = end + 1;
  }
  return numbers;
}

const std::string& Options::choice(const std::string& name, std::span<const std::string_view> choices) const {
  const OptionValue& value = at(name);
  if (std::find(choices.begin(), choices.end(), value.text) != choices.end()) return value.text;
  throw UsageError(refusal(name, value, fmt::format("one of {}", fmt::join(choices, ", "))) +
                   suggestion(value.text, choices, ""));
}

void Options::check(std::span<const OptionSpec> specs) const {
  for (const OptionSpec& spec : specs) {
    const std::string name(spec.name);
    if (!has(name) || !spec.no_effect.empty()) continue;
    if (const auto* whole = std::get_if<WholeNumber>(&spec.values)) integer(name, whole->least, whole->most);
    if (const auto* number = std::get_if<RealNumber>(&spec.values)) real(name, number->least, number->most);
    if (std::holds_alternative<AscendingNumbers>(spec.values)) ascending(name);
    if (const auto* one = std::get_if<OneOf>(&spec.values)) choice(name, split_words(one->words));
    if (spec.value_name.empty() && name != "help") enabled(name);
  }
}

void fill_from_defaults(std::span<const OptionSpec> specs, std::map<std::string, OptionValue>& values) {
  for (const OptionSpec& spec : specs) {
    if (spec.default_text.empty()) continue;
    values.try_emplace(std::string(spec.name),
                       OptionValue{std::string(spec.default_text), "default", spec.agreement});
  }
}

ParsedCommand resolve_command(std::string_view program, std::span<const OptionSpec> specs,
                              const std::vector<std::string>& arguments, const Environment& environment,
                              std::string_view second_prefix, std::span<const ForeignOption> foreign) {
  Parser parser(program, specs, arguments, foreign);
  auto values = parser.parse();
  fill_from_environment(environment, "DTRAIN_", specs, values);
  if (!second_prefix.empty()) fill_from_environment(environment, second_prefix, specs, values);
  if (const auto config = values.find("config"); config != values.end())
    fill_from_file(config->second.text, specs, values);
  std::vector<std::string> notes = notes_on(values, specs);
  fill_from_defaults(specs, values);
  return {Options(std::move(values)), parser.rest(), std::move(notes)};
}

Options resolve_options(std::string_view program, std::span<const OptionSpec> specs,
                        const std::vector<std::string>& arguments, const Environment& environment,
                        std::span<const ForeignOption> foreign) {
  ParsedCommand command = resolve_command(program, specs, arguments, environment, {}, foreign);
  if (!command.rest.empty()) {
    throw UsageError(
        fmt::format("{}: expected options only, got the argument '{}'", program, command.rest.front()));
  }
  return std::move(command.options);
}

std::optional<std::string> closest_word(std::string_view word, std::span<const std::string_view> candidates) {
  std::optional<std::string> best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string_view candidate : candidates) {
    const bool abbreviated = word.size() >= 4 && candidate.starts_with(word);
    const std::size_t distance = abbreviated ? 1 : edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = std::string(candidate);
    }
  }
  return best;
}

}  // namespace dtrain
