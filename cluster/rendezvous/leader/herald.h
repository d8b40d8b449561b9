// Tells the place where newcomers look for the job that another launcher leads it now, again and again: a
// machine that takes a lost one's place begins there.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "cluster/rendezvous/succession.h"
#include "cluster/store/store_client.h"

namespace dtrain::rendezvous {

class Herald {
 public:
  /// Starts a thread that connects to `where` every second and says `claim`.
  Herald(Endpoint where, StoreClientOptions options, Claim claim);
  /// Within half a second.
  ~Herald();
  Herald(const Herald&) = delete;
  Herald& operator=(const Herald&) = delete;

 private:
  void run();

  const Endpoint where_;
  const StoreClientOptions options_;
  const Claim claim_;
  std::mutex mutex_;  // guards over_
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace dtrain::rendezvous
