// Why a group of ranks ended, as text for the out-of-band store: every rank throws the same first failure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.h"

namespace dtrain::p2p {

std::string encode(const PeerFailure& failure);
/// nullopt for text that is not an encoded failure.
std::optional<PeerFailure> decode(std::string_view text);

}  // namespace dtrain::p2p
