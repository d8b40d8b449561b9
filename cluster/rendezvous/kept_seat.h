// What a launcher keeps of its seat, and of its office where it leads, while the process that holds them may
// be killed and started again. See docs/decisions/042-links-start-again.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/kept/kept_memory.h"
#include "cluster/rendezvous/session.h"

namespace dtrain::rendezvous {

/// A session as it was when it was last about to be heard of, by the leader or by its own launcher.
struct KeptSeat {
  Endpoint server;  ///< of the leader
  KeptSession session;
  std::uint64_t news_before = 0;  ///< so many have been told before session.news
};

/// The session as if the launcher had taken the first `read` of all its news.
KeptSession without_read_news(const KeptSeat& seat, std::uint64_t read);

/// To be made by the launcher, before the process that uses it.
class SeatMemory {
 public:
  /// Throws SystemError.
  SeatMemory();

  /// By the member's thread. nullopt: there is no seat (any more).
  void keep(const std::optional<KeptSeat>& seat);
  std::optional<KeptSeat> seat() const;
  /// What has been put into a leader's office; by the thread of its store's server.
  Journal& office() noexcept { return office_; }
  const Journal& office() const noexcept { return office_; }

  struct Words {
    std::atomic<std::uint64_t> promised;     ///< the voter's: no leader of a lower epoch is followed
    std::atomic<std::uint64_t> news_read;    ///< by the launcher, of the session's news
    std::atomic<std::uint64_t> words_taken;  ///< of the launcher's, into what is kept here
    std::atomic<std::int64_t>
        begun;  ///< the link's: groups begun before the round that runs, + 1; 0: none does
  };
  Words& words() const noexcept { return *words_; }

 private:
  SharedPages pages_;
  Words* words_;
  Keepsake seat_;
  Journal office_;
};

}  // namespace dtrain::rendezvous
