// Starts a thread with a name. The one thing to know: where a limit leaves no room for one, the error is a
// SystemError that names the thread and the limits, not the "Resource temporarily unavailable" of
// std::thread.
#pragma once

#include <pthread.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/error.h"

namespace dtrain {

/// `name` is what the kernel, debuggers and hang reports call the thread: at most 15 characters. Throws
/// SystemError where it cannot be started.
template <class Body>
std::thread start_thread(const std::string& name, Body&& body) {
  try {
    return std::thread([name, body = std::forward<Body>(body)]() mutable {
      ::pthread_setname_np(::pthread_self(), name.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    throw SystemError("start the thread " + name + " (its limits: ulimit -u, pids.max of the cgroup)",
                      error.code().value());
  }
}

}  // namespace dtrain
