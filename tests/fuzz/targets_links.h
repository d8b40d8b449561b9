// What the fuzzers call of the connections between ranks (collectives/tcp). Each aborts when a promise is
// broken.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

/// A stream of sealed frames that the input says how to change on its way: what is opened are its first
/// frames, unchanged, up to where the change begins. The first byte is the protection, then come edits of
/// four bytes each. The input as a stream opens nothing that protection seals.
void link_frames(std::string_view input);

/// A rank that listens lets nobody in without the secret, answers once at most, and cut at every byte ends as
/// it does at once; a rank that connects believes nobody without it.
void link_introduction(std::string_view input);

}  // namespace dtrain::fuzz
