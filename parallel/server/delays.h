// How old the weights were that gradients were computed from: counted by a server, shown in a run's records.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace dtrain {

/// How late a push was, where updates are asynchronous.
struct PushDelay {
  std::int64_t behind = 0;  ///< updates of the key by others since this worker's pull
  std::int64_t ahead = 0;   ///< updates that this worker had made beyond the slowest one
};

/// Of all pushes so far.
struct UpdateDelays {
  /// By how many updates came from other workers between a worker's pull and its push → how often.
  std::map<std::int64_t, std::int64_t> behind;
  /// By how many updates a worker was ahead of the slowest when it took up its batch → how often.
  std::map<std::int64_t, std::int64_t> ahead;
  std::map<int, std::int64_t> pushes;  ///< by worker

  bool operator==(const UpdateDelays&) const = default;
  std::string text() const;
  /// Nothing for a text that is none.
  static std::optional<UpdateDelays> parse(const std::string& text);
};

}  // namespace dtrain
