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
        "{}: expected the number of a descriptor, got \"{}\"; dtrain-launch sets it, do not change it",
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
      fmt::format(
          "{}: not done, because this node's lease has expired: it has not heard from the other nodes for so "
          "long that they may continue without it; check the network and this node's launcher",
          what),
      {.rank = -1, .host = {}, .operation = "lease", .tensor = {}});
}

}  // namespace dtrain
