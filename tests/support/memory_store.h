// A Store inside one process: for tests of what sits on top of the store. Any number of threads share one.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "cluster/store/store.h"

namespace dtrain::test {

/// Behaves as the TCP store does, limits included; the "address" in errors is "memory".
class MemoryStore final : public Store {
 public:
  void set(std::string_view key, std::string_view value, const Deadline& deadline) override;
  std::string get(std::string_view key, const Deadline& deadline) override;
  std::optional<std::string> try_get(std::string_view key, const Deadline& deadline) override;
  void wait(const std::vector<std::string>& keys, const Deadline& deadline) override;
  std::int64_t add(std::string_view key, std::int64_t delta, const Deadline& deadline) override;
  std::string compare_set(std::string_view key, std::optional<std::string_view> expected,
                          std::string_view desired, const Deadline& deadline) override;
  bool remove(std::string_view key, const Deadline& deadline) override;

  /// From now on every call, those waiting included, fails as if the server had died.
  void kill();

 private:
  using Lock = std::unique_lock<std::mutex>;
  Lock enter(std::string_view operation, std::string_view key);
  void wait_for(Lock& lock, std::string_view operation, const std::string& key, const Deadline& deadline);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
  bool dead_ = false;
};

}  // namespace dtrain::test
