// Why a group died, in a form that fits on the board: every rank throws the same first cause.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace dtrain::p2p {

/// The first cause: the fault of the call it was seen in and what happened, in words.
struct Ending {
  PeerFault fault;
  std::string what;
};

std::string encode(const Ending& ending);
/// nullopt for text that is not an encoded ending.
std::optional<Ending> decode(std::string_view text);

}  // namespace dtrain::p2p
