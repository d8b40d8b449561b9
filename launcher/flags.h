// The table of every option dtrain-launch knows: one row each, from which parsing, help, environment names,
// config keys and suggestions are all made.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dtrain::launcher {

struct Flag {
  std::string_view name;           ///< canonical spelling, with dashes
  char letter;                     ///< short form, 0 when there is none
  bool takes_value;                ///< false: a switch, true when present
  std::string_view default_value;  ///< as text; empty means "not given"
  std::string_view argument;       ///< name of the value in the help
  std::string_view group;          ///< heading in the help
  std::string_view help;
  std::string_view no_meaning{};  ///< why the option does nothing here; empty when it does something
};

/// Every flag, in the order of the help.
std::span<const Flag> all_flags() noexcept;

/// `name` with underscores turned into dashes and the older spellings replaced by today's.
std::string canonical_name(std::string_view name);

/// The flag called `name` in any spelling, or nullptr.
const Flag* find_flag(std::string_view name);

/// The flag with this short letter, or nullptr.
const Flag* find_flag(char letter) noexcept;

/// The known name nearest to `name` when it is near enough to be a slip of the fingers; otherwise empty.
std::string closest_flag(std::string_view name);

/// The environment variable that sets a flag: `nproc-per-node` → `DTRAIN_NPROC_PER_NODE`.
std::string variable_of(const Flag& flag);

}  // namespace dtrain::launcher
