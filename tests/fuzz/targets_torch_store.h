// What the fuzzers call for the store that dtrain-launch serves to PyTorch; see targets.h.
#pragma once

#include <string_view>

namespace dtrain::fuzz {

/// What a client sends to the agent's store is answered alike at once and cut at every byte, or the client is
/// cut off in both; what all clients have left is counted to the byte.
void torch_store(std::string_view input);

}  // namespace dtrain::fuzz
