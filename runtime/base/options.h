// Command-line options in layers: flag > DTRAIN_<NAME> variable > JSON configuration file > default. Every
// program declares a table; this resolves it, remembers where each value came from and checks values as they
// are read.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "runtime/base/environment.h"

namespace dtrain {

/// What the values of an option are; Options::check() refuses others.
struct AnyText {};
struct WholeNumber {
  std::int64_t least = INT64_MIN, most = INT64_MAX;
};
struct RealNumber {
  double least = 0, most = 0;
};
struct OneOf {
  std::string_view words;  ///< "auto, on, off"
};
struct AscendingNumbers {};  ///< "30,60,80": each above 0 and above the one before
using OptionValues = std::variant<AnyText, WholeNumber, RealNumber, OneOf, AscendingNumbers>;

/// Which processes must agree on the value of an option.
enum class Agreement {
  own,       ///< none: each worker has its own value
  job,       ///< all workers of a job
  noted,     ///< and a start of a run that changes it says so
  identity,  ///< and all starts of a run: a checkpoint is resumed only with the same
};

/// One option. Names are written with dashes; users may write underscores instead. Options called help and
/// version come from the command line only.
struct OptionSpec {
  std::string_view name;          ///< "global-batch-size"
  std::string_view group;         ///< heading in the help text
  std::string_view value_name;    ///< "N"; empty for a switch (no value, or =true / =false)
  std::string_view default_text;  ///< empty: unset
  std::string_view help;
  char letter = 0;               ///< short form: 'r' for -r VALUE, -rVALUE; 0: none
  std::string_view alias{};      ///< another spelling that is understood
  std::string_view variable{};   ///< where it is read from the environment; empty: DTRAIN_<NAME>
  std::string_view no_effect{};  ///< accepted for compatibility; why it does nothing here
  OptionValues values{};
  Agreement agreement = Agreement::job;
};

/// Options of other programs that people type here, and what to type instead.
struct ForeignOption {
  std::string_view names;   ///< "--learning-rate, -np": with their dashes; a number may follow a single one
  std::string_view answer;  ///< "the learning rate is --lr X"
};

/// What rows of a table are made of.
namespace option_rows {
inline constexpr AnyText any{};
constexpr WholeNumber whole(std::int64_t least, std::int64_t most = INT64_MAX) { return {least, most}; }
constexpr RealNumber real(double least, double most) { return {least, most}; }
constexpr OneOf one_of(std::string_view words) { return {words}; }
inline constexpr AscendingNumbers ascending{};
constexpr OptionSpec row(OptionValues values, Agreement agreement, OptionSpec spec) {
  spec.values = values;
  spec.agreement = agreement;
  return spec;
}
}  // namespace option_rows

/// A value and where it came from: "command line", "DTRAIN_LR", "config.json" or "default".
struct OptionValue {
  std::string text;
  std::string source;
  Agreement agreement = Agreement::job;  ///< OptionSpec::agreement
};

/// Resolved options. Getters throw UsageError naming option, source, what was expected and what came.
class Options {
 public:
  explicit Options(std::map<std::string, OptionValue> values) : values_(std::move(values)) {}

  /// False when unset (no value and no default).
  bool has(const std::string& name) const;
  const OptionValue& at(const std::string& name) const;
  const std::string& text(const std::string& name) const { return at(name).text; }
  bool enabled(const std::string& name) const;
  std::int64_t integer(const std::string& name, std::int64_t least, std::int64_t most) const;
  double real(const std::string& name, double least, double most) const;
  std::vector<double> ascending(const std::string& name) const;
  /// Throws UsageError for a value that `specs` do not allow. What has none is left alone.
  void check(std::span<const OptionSpec> specs) const;
  /// Sets `field`, in its own type, to the value of option `name`, where it has one: numbers and lists of
  /// them, text, switches, seconds, what is unset otherwise, and types with an overload of
  /// parse_value(text, field) beside them.
  template <class T>
  void read(const std::string& name, T& field) const;
  /// Throws UsageError for a value that is not what was `expected`.
  [[noreturn]] void refuse(const std::string& name, const std::string& expected) const;
  /// One of `choices`, with a "did you mean" when it is close to one.
  const std::string& choice(const std::string& name, std::initializer_list<std::string_view> choices) const {
    return choice(name, std::span(choices.begin(), choices.size()));
  }
  const std::string& choice(const std::string& name, std::span<const std::string_view> choices) const;

  /// Every option with a value, by name; for config.json and --print-config.
  const std::map<std::string, OptionValue>& all() const noexcept { return values_; }

 private:
  std::map<std::string, OptionValue> values_;
};

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <class T>
inline constexpr bool kIsDuration = false;
template <class Rep, class Period>
inline constexpr bool kIsDuration<std::chrono::duration<Rep, Period>> = true;

template <class T>
void Options::read(const std::string& name, T& field) const {
  if (!has(name)) return;
  if constexpr (requires { parse_value(text(name), field); }) {
    parse_value(text(name), field);
  } else if constexpr (kIsOptional<T>) {
    read(name, field.emplace());
  } else if constexpr (std::is_same_v<T, bool>) {
    field = enabled(name);
  } else if constexpr (std::is_integral_v<T>) {
    field = static_cast<T>(integer(name, INT64_MIN, INT64_MAX));
  } else if constexpr (std::is_floating_point_v<T>) {
    field = static_cast<T>(real(name, -HUGE_VAL, HUGE_VAL));
  } else if constexpr (std::is_same_v<T, std::vector<double>>) {
    field = ascending(name);
  } else if constexpr (kIsDuration<T>) {
    using Period = typename T::period;
    field = T(std::llround(real(name, -HUGE_VAL, HUGE_VAL) * Period::den / Period::num));
  } else {
    field = text(name);
  }
}

/// Parses `arguments` (without the program's name) against `specs`, then fills what is missing from
/// `environment` and, when the option "config" is declared and set, from that JSON object file. `program`
/// names the command in errors ("dtrain train"). Throws UsageError for unknown options and keys (with the
/// closest known one, or the answer in `foreign`), positional arguments, missing values. -h is --help.
Options resolve_options(std::string_view program, std::span<const OptionSpec> specs,
                        const std::vector<std::string>& arguments, const Environment& environment,
                        std::span<const ForeignOption> foreign = {});

/// A command line of ours that may end in another program's.
struct ParsedCommand {
  Options options;
  std::vector<std::string> rest;   ///< the first positional argument and all that follows; "--" left out
  std::vector<std::string> notes;  ///< a line for each option that was given and has no effect
};

/// As resolve_options, but our options end at the first positional argument or at "--". Where DTRAIN_<NAME>
/// is unset, `second_prefix` is tried, such as "PET_".
ParsedCommand resolve_command(std::string_view program, std::span<const OptionSpec> specs,
                              const std::vector<std::string>& arguments, const Environment& environment,
                              std::string_view second_prefix = {},
                              std::span<const ForeignOption> foreign = {});

/// Gives each option of `specs` that `values` have none of its default, where it has one.
void fill_from_defaults(std::span<const OptionSpec> specs, std::map<std::string, OptionValue>& values);

/// Help text: usage line, then options by group in declaration order, at most 80 columns.
std::string options_help(std::string_view usage, std::span<const OptionSpec> specs);

/// A line of a help text, or several: `left` in the first column, `right` in the second.
std::string help_line(const std::string& left, std::string_view right);

/// The same options as the rows of one Markdown table, groups as headings in bold; for the documentation.
std::string options_markdown(std::span<const OptionSpec> specs);

/// What the option "help" of a command asks for: options_help() for --help, options_markdown() for
/// --help=markdown, nothing when it is not given. A command with an option "help-all" prints all rows for
/// that, and for --help only those named in `common`: "model, epochs, lr".
std::optional<std::string> asked_help(const Options& options, std::string_view usage,
                                      std::span<const OptionSpec> specs, std::string_view common = {});

/// "auto, on, off" taken apart.
std::vector<std::string_view> split_words(std::string_view text);

/// One aligned line an option: name, value, source.
std::string options_table(const Options& options);

/// The candidate closest to `word` by edit distance, if close enough to be a likely slip; a candidate that
/// begins with `word` counts as close.
std::optional<std::string> closest_word(std::string_view word, std::span<const std::string_view> candidates);

/// Parses all of `text` as a number; nullopt when it is not one (or does not fit).
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_real(std::string_view text);

}  // namespace dtrain
