#include "runtime/base/files/write_permit.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <ctime>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {

WritePermit WritePermit::from(const Environment& environment) {
  const std::string* text = find_variable(environment, kLeaseVariable);
  if (text == nullptr) return {};
  const auto fd = parse_integer(*text);
  if (!fd || *fd < 0) {
    throw UsageError(fmt::format(
        "{}: expected the number of a descriptor, got \"{}\"; dtrain-launch sets it, leave it alone",
        kLeaseVariable, *text));
  }
  const void* page = ::mmap(nullptr, sizeof(LeaseWord), PROT_READ, MAP_SHARED, static_cast<int>(*fd), 0);
  if (page == MAP_FAILED) throw SystemError(fmt::format("mmap of {} {}", kLeaseVariable, *fd), errno);
  return WritePermit(*static_cast<const LeaseWord*>(page));
}

bool WritePermit::holds() const noexcept {
  if (word_ == nullptr) return true;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec < word_->load();
}

void WritePermit::check(std::string_view what) const {
  if (holds()) return;
  throw PeerError(
      fmt::format("{}: not done, since this node's lease has run out: the other nodes were not heard for so "
                  "long that they may go on without this one; look at the network and at the "
                  "launcher of this node",
                  what),
      {.rank = -1, .host = {}, .operation = "lease", .tensor = {}});
}

}  // namespace dtrain
