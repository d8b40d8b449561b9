// How files with settings are named on the command line: "csv:houses.csv,target=price,split=0.9".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/data/sources/split.h"

namespace dtrain {

/// A name's parts behind the colon, separated by commas. A part is key=value, only the first may be a value
/// alone (a file). %XX is the character with that code, for what would mean something else (%2C a comma, %2B
/// a plus sign, %25 the percent sign itself). Settings are taken out one by one; what is left at the end
/// nobody knows.
class SourceSpec {
 public:
  /// `kind` is "csv", `text` what follows "csv:". Throws UsageError for an empty part, a key given twice or
  /// a % without two hexadecimal digits.
  SourceSpec(std::string kind, std::string_view text);

  /// The value without a key; empty when there is none.
  const std::string& file() const noexcept { return file_; }
  /// Whether `key` is there and was not taken yet.
  bool has(std::string_view key) const;
  /// The value of `key`, which then counts as known.
  std::optional<std::string> take(std::string_view key);
  /// The same for "a+b+c"; empty when it is not there.
  std::vector<std::string> take_list(std::string_view key);
  /// An integer in [least, most], or `fallback`. Throws UsageError.
  std::int64_t take_integer(std::string_view key, std::int64_t least, std::int64_t most,
                            std::int64_t fallback);
  /// All that was not taken, in the order given.
  std::vector<std::pair<std::string, std::string>> take_rest();
  /// Throws UsageError naming a setting that was not taken; `known` lists those there are.
  void finish(std::string_view known) const;
  /// "dataset csv:…: expected `expected`, got `got`".
  [[noreturn]] void refuse(std::string_view expected, std::string_view got) const;

 private:
  std::string kind_, text_, file_;
  std::vector<std::pair<std::string, std::string>> settings_;  // values not decoded yet
};

/// The share that is trained on where the data has no test part and none is asked for.
inline constexpr double kDefaultTrainShare = 0.9;

/// Tokens of a window of text.
inline constexpr std::int64_t kMostContext = 1 << 20;

/// What take_hold_out() takes, for SourceSpec::finish().
inline constexpr std::string_view kHoldOutSettings = "split=SHARE, fold=K/N, stratify=yes or split-seed=N";

/// Takes split=SHARE or fold=K/N, stratify=yes and split-seed=N. Throws UsageError for other values.
HoldOut take_hold_out(SourceSpec& spec);
/// Throws UsageError unless there is either a share, or a fold, or, as `tested` says, a file of its own to
/// test on.
void check_hold_out(const SourceSpec& spec, const HoldOut& how, bool tested);

}  // namespace dtrain
