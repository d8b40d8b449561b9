#include "launcher/process/descriptors.h"

#include <unistd.h>

#include <algorithm>

namespace dtrain::launcher {
namespace {

void close_between(unsigned first, unsigned last) {
  if (first > last || ::close_range(first, last, 0) == 0) return;
  // Kernels before 5.9.
  const auto limit = static_cast<unsigned>(std::max(::sysconf(_SC_OPEN_MAX), 1024L));
  for (unsigned fd = first; fd <= last && fd < limit; ++fd) ::close(static_cast<int>(fd));
}

}  // namespace

void close_all_but(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  unsigned first = 3;
  for (const int fd : kept) {
    if (fd < 3) continue;
    close_between(first, static_cast<unsigned>(fd) - 1);
    first = static_cast<unsigned>(fd) + 1;
  }
  close_between(first, ~0U);
}

}  // namespace dtrain::launcher
