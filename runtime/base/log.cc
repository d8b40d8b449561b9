#include "runtime/base/log.h"

#include <sys/uio.h>

namespace dtrain {
namespace {

std::string_view label(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return ": debug: ";
    case LogLevel::info:
      return ": ";
    case LogLevel::warning:
      return ": warning: ";
    case LogLevel::error:
      return ": error: ";
  }
  return ": ";
}

iovec piece(std::string_view text) { return {const_cast<char*>(text.data()), text.size()}; }

}  // namespace

void FdLog::write(LogLevel level, std::string_view message) noexcept {
  if (level < threshold_) return;
  const iovec parts[] = {piece(prefix_), piece(label(level)), piece(message), piece("\n")};
  // A log that cannot be written has nowhere to report it.
  [[maybe_unused]] const auto written = ::writev(fd_, parts, 4);
}

}  // namespace dtrain
