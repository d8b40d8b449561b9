// The right to write where another process may have taken over: until when it lasts stands in a word of
// memory that the grantor shares with those who write. It ends without anyone's help.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "runtime/base/environment.h"

namespace dtrain {

/// Nanoseconds of CLOCK_BOOTTIME at which the right ends; 0: it has been taken away.
using LeaseWord = std::atomic<std::int64_t>;
static_assert(LeaseWord::is_always_lock_free, "it is shared between processes");

/// The variable that has the number of a descriptor, open for reading: a memory file that begins with the
/// word.
inline constexpr const char* kLeaseVariable = "DTRAIN_LEASE_FD";

/// A copy is the same right. Thread-safe.
class WritePermit {
 public:
  /// Unlimited: no other process can be writing.
  WritePermit() = default;
  /// That of `word`, which outlives all copies.
  explicit WritePermit(const LeaseWord& word) : word_(&word) {}
  /// What the launcher granted; unlimited if it set nothing. The word stays mapped until the process ends.
  /// Throws UsageError when the variable is no descriptor, SystemError when that cannot be mapped.
  static WritePermit from(const Environment& environment);

  /// Costs a look at the clock.
  bool holds() const noexcept;
  /// To be called right before each write; `what` is about to be done. Throws PeerError when the right has
  /// ended.
  void check(std::string_view what) const;

 private:
  const LeaseWord* word_ = nullptr;
};

}  // namespace dtrain
