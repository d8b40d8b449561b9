// Tells the place where newcomers look for the job that another launcher leads it now, again and again: a
// machine that takes a lost one's place begins there.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "cluster/quorum/voters.h"
#include "cluster/store/store_client.h"

namespace dtrain::rendezvous {

class Announcer {
 public:
  /// Starts a thread that connects to `where` every second and says `announcement`.
  Announcer(Endpoint where, StoreClientOptions options, LeaderAnnouncement announcement);
  /// Within half a second.
  ~Announcer();
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

 private:
  void run();

  const Endpoint where_;
  const StoreClientOptions options_;
  const LeaderAnnouncement announcement_;
  std::mutex mutex_;  // guards over_
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace dtrain::rendezvous
