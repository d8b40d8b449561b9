// What the launcher calls of {fmt}, compiled into it: loading {fmt}'s shared library, and with it the one of
// C++, takes a fifth of the processor time that a start needs. What another version of {fmt} calls beside
// this comes from its library.
#define FMT_HEADER_ONLY
#include <fmt/format.h>

namespace dtrain::launcher {

// Nobody calls it. It makes the compiler emit vformat and all that vformat calls, for each type of argument.
std::string all_of_formatting(fmt::string_view text, fmt::format_args arguments) {
  return fmt::vformat(text, arguments);
}

}  // namespace dtrain::launcher
