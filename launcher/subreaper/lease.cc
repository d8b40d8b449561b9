// A page of a memory file, an eventfd for the end, timers that run on while the machine sleeps.
#include "launcher/subreaper/lease.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <limits>
#include <new>

#include "runtime/base/check.h"

namespace dtrain::launcher {
namespace {

constexpr std::int64_t kRevoked = 0;
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

}  // namespace

Lease::Lease(const Clock& clock)
    : clock_(clock),
      revoked_(
          static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, "eventfd of the lease"))) {
  const UniqueFd memory(static_cast<int>(check(
      Sys{::memfd_create("dtrain-lease", MFD_CLOEXEC | MFD_ALLOW_SEALING)}, "memfd_create for the lease")));
  check(Sys{::ftruncate(memory.get(), sizeof(Page))}, "ftruncate of the lease");
  void* page = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (page == MAP_FAILED) throw SystemError("mmap of the lease", errno);
  // A process that opens the read-only descriptor again, for writing (/proc/self/fd/…), can write nothing:
  // only mappings made before now can. Kernels before 5.1 do not know the first seal.
  constexpr int kSize = F_SEAL_SHRINK | F_SEAL_GROW;
  if (::fcntl(memory.get(), F_ADD_SEALS, kSize | F_SEAL_FUTURE_WRITE) != 0)
    ::fcntl(memory.get(), F_ADD_SEALS, kSize);
  const std::string name = "/proc/self/fd/" + std::to_string(memory.get());
  // Without /proc the seal alone keeps others from writing.
  readable_.reset(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!readable_)
    readable_.reset(
        static_cast<int>(check(Sys{::fcntl(memory.get(), F_DUPFD_CLOEXEC, 0)}, "dup of the lease")));
  page_ = ::new (page) Page{kUnlimited, 0, 0};
}

Lease::~Lease() { ::munmap(page_, sizeof(Page)); }

void Lease::renew(TimePoint until) noexcept {
  std::int64_t ends = page_->ends.load();
  while (ends != kRevoked && !page_->ends.compare_exchange_weak(ends, until.time_since_epoch().count())) {
  }
}

void Lease::revoke() noexcept {
  page_->ends.store(kRevoked);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(revoked_.get(), &one, sizeof one);
}

TimePoint Lease::ends() const noexcept { return TimePoint(Duration(page_->ends.load())); }
bool Lease::revoked() const noexcept { return page_->ends.load() == kRevoked; }
bool Lease::over() const noexcept { return clock_.now() >= ends(); }

void Lease::begin_work() noexcept {
  page_->groups.fetch_add(1);
  page_->begun.fetch_add(1);
}
int Lease::groups_begun() const noexcept { return page_->begun.load(); }
void Lease::end_work() noexcept { page_->groups.fetch_sub(1); }
bool Lease::idle() const noexcept { return page_->groups.load() == 0; }

LeaseWatch::LeaseWatch(const Lease* lease) : lease_(lease) {
  if (lease == nullptr) return;
  timer_.reset(static_cast<int>(check(Sys{::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK)},
                                      "timerfd_create for the lease")));
}

bool LeaseWatch::over() {
  if (lease_ == nullptr) return false;
  if (lease_->over()) return true;
  const Duration ends = lease_->ends().time_since_epoch();
  itimerspec when{};
  when.it_value.tv_sec = static_cast<time_t>(ends / std::chrono::seconds(1));
  when.it_value.tv_nsec = static_cast<long>((ends % std::chrono::seconds(1)).count());
  // One that has not begun to run out is looked at again in a second.
  if (lease_->ends() == TimePoint::max()) when = {{}, {1, 0}};
  const int flags = lease_->ends() == TimePoint::max() ? 0 : TFD_TIMER_ABSTIME;
  check(Sys{::timerfd_settime(timer_.get(), flags, &when, nullptr)}, "timerfd_settime for the lease");
  return false;
}

}  // namespace dtrain::launcher
