// The rendezvous store over TCP. No thread of its own: of the threads that wait for an answer one reads for
// all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cluster/net/endpoint.h"
#include "cluster/net/token.h"
#include "cluster/store/store.h"

namespace dtrain {

struct StoreClientOptions {
  std::optional<Token> token;   ///< the server's; none is allowed towards loopback only
  bool insecure = false;        ///< allow none elsewhere too
  std::string job;              ///< must be the server's; at most 128 bytes
  std::string role = "worker";  ///< for messages; at most 32 bytes
  int rank = -1;                ///< for messages
};

class StoreClient final : public Store {
 public:
  /// Connects and authenticates; peers may start before the server, so it tries again until `deadline`, first
  /// after milliseconds, then every 100 ms. Throws PeerError naming the address and the last failure when
  /// `deadline` passes, when the server does not hold the token or serves another job, or when what answers
  /// is no store; UsageError when a token is needed and missing.
  StoreClient(const Endpoint& server, StoreClientOptions options, const Deadline& deadline);
  ~StoreClient() override;

  void set(std::string_view key, std::string_view value, const Deadline& deadline) override;
  std::string get(std::string_view key, const Deadline& deadline) override;
  std::optional<std::string> try_get(std::string_view key, const Deadline& deadline) override;
  /// When the deadline passes, the error lists the keys still missing; asking for them may take 300 ms more.
  void wait(const std::vector<std::string>& keys, const Deadline& deadline) override;
  std::int64_t add(std::string_view key, std::int64_t delta, const Deadline& deadline) override;
  std::string compare_set(std::string_view key, std::optional<std::string_view> expected,
                          std::string_view desired, const Deadline& deadline) override;
  bool remove(std::string_view key, const Deadline& deadline) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dtrain
