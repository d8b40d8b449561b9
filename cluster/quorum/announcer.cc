// Mostly nobody listens there.
#include "cluster/quorum/announcer.h"

#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

constexpr Duration kEvery = std::chrono::seconds(1);
constexpr Duration kOneAttempt = std::chrono::milliseconds(400);

}  // namespace

Announcer::Announcer(Endpoint where, StoreClientOptions options, LeaderAnnouncement announcement)
    : where_(std::move(where)),
      options_(std::move(options)),
      announcement_(std::move(announcement)),
      thread_([this] { run(); }) {}

Announcer::~Announcer() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Announcer::run() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    lock.unlock();
    try {
      const Deadline deadline = Deadline::after(kOneAttempt);
      StoreClient client(where_, options_, deadline);
      client.set(kAnnouncementKey, encode(announcement_), deadline);
    } catch (const Error&) {
      // Nobody is there, or somebody else.
    }
    lock.lock();
    ended_.wait_for(lock, kEvery, [this] { return over_; });
  }
}

}  // namespace dtrain::rendezvous
