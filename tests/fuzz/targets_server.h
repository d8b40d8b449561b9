// What the fuzzers call of parameter servers (parallel/server). Each aborts when a promise is broken.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

/// An envelope decodes or does not; what decodes has one encoding, and so have keys and text behind it. Texts
/// that describe tensors decode or do not, and say the same when they are written again.
void server_messages(std::string_view input);

/// A server under any sequence of comings, goings and requests of workers who hold the secret: each request
/// is answered once at most and in its worker's order, updates of a worker never run ahead of the bound, and
/// nothing is answered to who is gone.
void server_table(std::string_view input);

}  // namespace dtrain::fuzz
