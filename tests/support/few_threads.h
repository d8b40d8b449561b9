// Runs something where few threads can be started: in a process of its own, whose user may have no other.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace dtrain::test {

/// What `body` threw where there is room for `threads` beside its own: "SystemError: …" with its message,
/// another exception's message alone, "nothing", or "signal 6" where it ended the process. Empty where this
/// process is not root, which it takes to become another user.
std::optional<std::string> said_with_few_threads(int threads, const std::function<void()>& body);

}  // namespace dtrain::test
