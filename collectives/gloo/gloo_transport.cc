#include "collectives/gloo/gloo_transport.h"

#include <fmt/format.h>
#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>

#include <algorithm>
#include <utility>

#include "collectives/p2p/store_oob_kv.h"
#include "collectives/shm/prefer_shared_memory.h"
#include "runtime/base/blocked_signals.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Gloo's own time-out of a wait would kill the context; ours is the watchdog.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
// No algorithm uses it: fingerprints have their low bits clear and phases are small.
constexpr std::uint64_t kStandingSlot = 7;

template <class Action>
void guard(int peer, Action action) {
  const PipeSignalBlocked no_pipe_signal;
  try {
    action();
  } catch (const std::exception& error) {
    throw p2p::LinkLost(error.what(), peer);
  }
}

class GlooBuffer final : public p2p::UnboundBuffer {
 public:
  GlooBuffer(gloo::transport::Context& context, WaitInterrupter& interrupter, void* data, std::size_t bytes)
      : context_(context), interrupter_(interrupter), buffer_(context.createUnboundBuffer(data, bytes)) {}

  void send(int peer, std::uint64_t tag, std::size_t offset, std::size_t bytes) override {
    guard(peer, [&] { buffer_->send(peer, tag, offset, bytes); });
    ++sends_;
  }

  void receive(int peer, std::uint64_t tag, std::size_t offset, std::size_t bytes) override {
    guard(peer, [&] { buffer_->recv(peer, tag, offset, bytes); });
    ++receives_;
  }

  void wait_sends(p2p::Watchdog& watchdog) override {
    wait(
        sends_, WaitInterrupter::Waits::to_send, [&] { return buffer_->waitSend(nullptr, kForever); },
        watchdog);
  }

  void wait_receives(p2p::Watchdog& watchdog) override {
    wait(
        receives_, WaitInterrupter::Waits::to_receive, [&] { return buffer_->waitRecv(nullptr, kForever); },
        watchdog);
  }

 private:
  template <class WaitOne>
  void wait(int& pending, WaitInterrupter::Waits waits, WaitOne wait_one, p2p::Watchdog& watchdog) {
    while (pending > 0) {
      bool finished = false;
      {
        const WaitInterrupter::Interrupted interrupted(interrupter_, *buffer_, waits);
        guard(-1, [&] { finished = wait_one(); });
      }
      if (finished) {
        --pending;
      } else {
        watchdog.tick();
      }
    }
  }

  gloo::transport::Context& context_;
  WaitInterrupter& interrupter_;
  std::unique_ptr<gloo::transport::UnboundBuffer> buffer_;
  int sends_ = 0, receives_ = 0;
};

std::chrono::milliseconds milliseconds_left(const Deadline& deadline) {
  if (deadline.is_never()) return std::chrono::hours(24);
  return std::max(std::chrono::milliseconds(1),
                  std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining()));
}

std::string address_key(const std::string& prefix, int rank) {
  return prefix + "/rank/" + std::to_string(rank);
}

PeerError not_connected(const std::string& prefix, int rank, const std::string& host,
                        const std::string& why) {
  PeerFailure failure;
  failure.rank = rank;
  failure.host = host;
  failure.operation = "connect";
  return PeerError(fmt::format("gloo group '{}': no connection to rank {}{}{}: {}", prefix, rank,
                               host.empty() ? "" : " on ", host, why),
                   std::move(failure));
}

}  // namespace

GlooTransport::GlooTransport(const GlooContext& shared, int rank, int size, std::string prefix,
                             const Deadline& deadline)
    : shared_(shared),
      rank_(rank),
      size_(size),
      hosts_(static_cast<std::size_t>(size)),
      context_(shared.device->createContext(rank, size)) {
  hosts_[static_cast<std::size_t>(rank)] = shared.host;
  // A pair waits five of its time-outs for its connection.
  context_->setTimeout(std::max(std::chrono::milliseconds(1), milliseconds_left(deadline) / 5));
  connect(prefix, deadline);
  stand_by();
}

GlooTransport::~GlooTransport() {
  close(false);
  standing_.clear();
}

// A rank's addresses in the store: its host, a newline, and the address at which it waits for each rank (its
// own left zero).
void GlooTransport::connect(const std::string& prefix, const Deadline& deadline) {
  const PipeSignalBlocked no_pipe_signal;
  std::string addresses;
  std::size_t address_bytes = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const std::vector<char> address = context_->createPair(peer)->address().bytes();
    address_bytes = address.size();
    addresses.append(address.data(), address.size());
  }
  addresses.insert(static_cast<std::size_t>(rank_) * address_bytes, address_bytes, '\0');
  shared_.store->set(address_key(prefix, rank_), shared_.host + '\n' + addresses, deadline);

  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    std::string published;
    try {
      published = shared_.store->get(address_key(prefix, peer), deadline);
    } catch (const PeerError& error) {
      throw not_connected(prefix, peer, "", std::string("it has not joined: ") + error.what());
    }
    const std::size_t begin = published.find('\n') + 1 + static_cast<std::size_t>(rank_) * address_bytes;
    if (published.size() < begin + address_bytes)
      throw not_connected(prefix, peer, "", "unreadable address in the store");
    std::string& host = hosts_[static_cast<std::size_t>(peer)];
    host = published.substr(0, published.find('\n'));
    try {
      context_->getPair(peer)->connect({published.data() + begin, published.data() + begin + address_bytes});
    } catch (const std::exception& error) {
      throw not_connected(prefix, peer, host, error.what());
    }
  }
}

void GlooTransport::stand_by() {
  const PipeSignalBlocked no_pipe_signal;
  standing_.resize(static_cast<std::size_t>(size_));
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    auto& buffer = standing_[static_cast<std::size_t>(peer)];
    buffer = context_->createUnboundBuffer(&nothing_, 1);
    try {
      buffer->recv(peer, kStandingSlot, 0, 1);
    } catch (const std::exception& error) {
      throw not_connected("set-up", peer, host_of(peer), error.what());
    }
  }
}

std::unique_ptr<p2p::UnboundBuffer> GlooTransport::make_buffer(void* data, std::size_t bytes) {
  return std::make_unique<GlooBuffer>(*context_, interrupter_, data, bytes);
}

int GlooTransport::take_any(std::uint64_t tag, p2p::Watchdog& watchdog) {
  std::vector<int> others;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_) others.push_back(peer);
  }
  std::byte announced{};
  const auto buffer = context_->createUnboundBuffer(&announced, 1);
  int from = -1;
  guard(-1, [&] { buffer->recv(others, tag, 0, 1); });
  for (bool finished = false; !finished;) {
    {
      const WaitInterrupter::Interrupted interrupted(interrupter_, *buffer,
                                                     WaitInterrupter::Waits::to_receive);
      guard(-1, [&] { finished = buffer->waitRecv(&from, kForever); });
    }
    if (!finished) watchdog.tick();
  }
  return from;
}

std::vector<int> GlooTransport::lost_peers() noexcept {
  std::vector<int> lost;
  for (int peer = 0; peer < size_ && !closed_; ++peer) {
    const auto& buffer = standing_[static_cast<std::size_t>(peer)];
    if (!buffer) continue;
    try {
      // With the abort already asked for, the wait returns at once; a broken connection throws instead.
      buffer->abortWaitRecv();
      buffer->waitRecv(nullptr, kForever);
    } catch (const std::exception&) {
      lost.push_back(peer);
    }
  }
  return lost;
}

void GlooTransport::close(bool) noexcept {
  if (std::exchange(closed_, true)) return;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    try {
      context_->getPair(peer)->close();
    } catch (const std::exception&) {
      // It is closed then.
    }
  }
}

p2p::Endpoints GlooTransport::split(const std::vector<int>& members, const std::string& name,
                                    const Deadline& deadline) {
  const auto self = std::find(members.begin(), members.end(), rank_);
  return make_gloo_endpoints(shared_, static_cast<int>(self - members.begin()),
                             static_cast<int>(members.size()), name, deadline);
}

p2p::Endpoints make_gloo_endpoints(const GlooContext& shared, int rank, int size, const std::string& name,
                                   const Deadline& deadline) {
  const std::string own_counter = fmt::format("gloo/{}/made/{}", name, rank);
  const std::string prefix = fmt::format("gloo/{}/{}", name, shared.store->add(own_counter, 1, deadline));
  p2p::Endpoints endpoints;
  endpoints.transport = std::make_unique<GlooTransport>(shared, rank, size, prefix, deadline);
  endpoints.oob = std::make_unique<StoreOobKv>(*shared.store, prefix, rank);
  return prefer_shared_memory(std::move(endpoints), prefix, shared.locality, deadline);
}

}  // namespace dtrain
