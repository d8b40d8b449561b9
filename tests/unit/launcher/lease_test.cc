// A node's lease between processes: it runs out by the clock, is renewed, is revoked for good; a subreaper
// whose lease ends kills, however little the launcher does.
#include "launcher/subreaper/lease.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/error.h"
#include "tests/support/manual_clock.h"

namespace dtrain::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Readable within `wait`?
bool readable(int fd, milliseconds wait) {
  pollfd waited{fd, POLLIN, 0};
  return ::poll(&waited, 1, static_cast<int>(wait.count())) == 1;
}

TEST(Lease, LastsUntilItRunsOutAndMayBeRenewed) {
  test::ManualClock clock;
  Lease lease(clock);
  clock.advance(seconds(1'000'000));
  EXPECT_FALSE(lease.over()) << "nothing has limited it";
  lease.renew(clock.now() + seconds(4));
  clock.advance(milliseconds(3999));
  EXPECT_FALSE(lease.over());
  lease.renew(clock.now() + seconds(4));
  clock.advance(seconds(3));
  EXPECT_FALSE(lease.over());
  clock.advance(seconds(1));
  EXPECT_TRUE(lease.over());
}

// The machine sleeps: nobody looks at the clock, which has moved on when it wakes.
TEST(Lease, IsOverAtOnceAfterASleep) {
  test::ManualClock clock;
  Lease lease(clock);
  lease.renew(clock.now() + seconds(4));
  clock.advance(seconds(3600));
  EXPECT_TRUE(lease.over());
}

TEST(Lease, ARevokedOneIsNotRenewed) {
  test::ManualClock clock;
  clock.advance(seconds(10));
  Lease lease(clock);
  EXPECT_FALSE(readable(lease.revoked_fd(), milliseconds(0)));
  lease.revoke();
  lease.renew(clock.now() + seconds(4));
  EXPECT_TRUE(lease.over());
  EXPECT_TRUE(readable(lease.revoked_fd(), milliseconds(0)));
}

// What a worker sees of it, by the descriptor that it is started with.
TEST(Lease, IsTheWorkersPermitToWrite) {
  EXPECT_TRUE(WritePermit::from({}).holds()) << "nobody said anything";
  Lease lease;
  const WritePermit permit = WritePermit::from({{kLeaseVariable, std::to_string(lease.readable_fd())}});
  EXPECT_TRUE(permit.holds()) << "unlimited so far";
  lease.renew(rendezvous::boot_clock().now() + seconds(1000));
  EXPECT_TRUE(permit.holds());
  lease.renew(rendezvous::boot_clock().now());
  EXPECT_FALSE(permit.holds());
  lease.renew(rendezvous::boot_clock().now() + seconds(1000));
  EXPECT_NO_THROW(permit.check("a test"));
  lease.revoke();
  EXPECT_THROW(permit.check("a test"), PeerError);
  EXPECT_THROW(WritePermit::from({{kLeaseVariable, "mine"}}), UsageError);
  const void* page = ::mmap(nullptr, 8, PROT_READ | PROT_WRITE, MAP_SHARED, lease.readable_fd(), 0);
  EXPECT_EQ(page, MAP_FAILED) << "a worker could prolong its own lease";
}

TEST(Lease, IsNotOpenedAgainForWriting) {
  Lease lease;
  const std::string name = "/proc/self/fd/" + std::to_string(lease.readable_fd());
  const UniqueFd again(::open(name.c_str(), O_RDWR | O_CLOEXEC));
  if (!again) return;
  constexpr std::int64_t kLong = 1'000'000;
  EXPECT_EQ(::pwrite(again.get(), &kLong, sizeof kLong, 0), -1) << "a worker could prolong its own lease";
  EXPECT_EQ(::mmap(nullptr, sizeof kLong, PROT_READ | PROT_WRITE, MAP_SHARED, again.get(), 0), MAP_FAILED);
  EXPECT_EQ(::ftruncate(again.get(), 0), -1) << "the launcher would die of it";
  lease.renew(rendezvous::boot_clock().now() + seconds(1000));
  EXPECT_FALSE(lease.over()) << "those who share it can";
}

TEST(Lease, IsSharedWithForkedProcesses) {
  Lease lease;
  const pid_t child = ::fork();
  if (child == 0) {
    lease.begin_work();
    lease.revoke();
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(lease.over());
  EXPECT_FALSE(lease.idle());
  lease.end_work();
  EXPECT_TRUE(lease.idle());
}

TEST(LeaseWatch, WakesWhenTheLeaseRunsOut) {
  const Clock& clock = rendezvous::boot_clock();
  Lease lease;
  LeaseWatch watch(&lease);
  EXPECT_FALSE(watch.over());
  lease.renew(clock.now() + milliseconds(100));
  EXPECT_TRUE(readable(watch.timer_fd(), seconds(20))) << "an unlimited lease is looked at again";
  while (!watch.over()) ASSERT_TRUE(readable(watch.timer_fd(), seconds(20)));
}

TEST(LeaseWatch, WithoutALeaseThereIsNothingToWatch) {
  LeaseWatch watch(nullptr);
  EXPECT_EQ(watch.timer_fd(), -1);
  EXPECT_EQ(watch.revoked_fd(), -1);
  EXPECT_FALSE(watch.over());
}

}  // namespace
}  // namespace dtrain::launcher
