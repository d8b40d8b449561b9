// Text that comes from files, made fit for messages and for JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// `text` with control characters and what is no UTF-8 written as \xNN, so that what a file holds can neither
/// move a terminal's cursor nor hide part of a message. Line ends and tabs stay where `lines` is true.
std::string printable(std::string_view text, bool lines = false);

/// `text` where it is UTF-8, else each of its bytes as the ISO 8859-1 character it is, in UTF-8.
std::string to_utf8(std::string_view text);

/// Each of `names`, which differ, as to_utf8() has it; where that is another one's name, '?' follows until it
/// is none.
std::vector<std::string> distinct_utf8(std::vector<std::string> names);

/// Bytes at the front of `text` that are UTF-8 (RFC 3629): all of them, or the offset of the first one that
/// is not.
std::size_t valid_utf8(std::string_view text) noexcept;

}  // namespace dtrain
