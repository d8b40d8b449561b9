// How messages between machines are kept from being read or changed on the way.
#pragma once

#include <string_view>

namespace dtrain {

/// What the tcp backend does for each message. In every case both ends of a connection have proved to each
/// other that they belong to the job before a byte of a message moves.
enum class Protection {
  none,          ///< nothing more: for networks into which only the job can send
  authenticate,  ///< what was changed, replayed, left out or reordered on the way is refused
  encrypt        ///< and no one else can read it
};

/// "none", "authenticate", "encrypt"
std::string_view name_of(Protection protection) noexcept;

/// The protection of that name. Throws UsageError naming `what` (the option or variable the text came from)
/// for any other text.
Protection protection_named(std::string_view name, std::string_view what);

}  // namespace dtrain
