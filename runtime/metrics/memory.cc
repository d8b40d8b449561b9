#include "runtime/metrics/memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "runtime/base/fd.h"

namespace dtrain {

std::int64_t parse_resident_bytes(std::string_view statm, std::int64_t page_bytes) noexcept {
  const std::size_t space = statm.find(' ');
  if (space == std::string_view::npos) return 0;
  std::int64_t pages = 0;
  const auto result = std::from_chars(statm.data() + space + 1, statm.data() + statm.size(), pages);
  return result.ec == std::errc() ? pages * page_bytes : 0;
}

std::int64_t resident_bytes() noexcept {
  const UniqueFd fd(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  if (!fd) return 0;
  char text[256];
  const ssize_t got = ::read(fd.get(), text, sizeof text);
  if (got <= 0) return 0;
  return parse_resident_bytes({text, static_cast<std::size_t>(got)}, ::sysconf(_SC_PAGESIZE));
}

std::int64_t peak_resident_bytes() noexcept {
  rusage usage{};
  const std::int64_t most = ::getrusage(RUSAGE_SELF, &usage) == 0 ? std::int64_t{usage.ru_maxrss} * 1024 : 0;
  return std::max(most, resident_bytes());  // the kernel brings its maximum up to date only now and then
}

}  // namespace dtrain
