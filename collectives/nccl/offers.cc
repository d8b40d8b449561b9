#include "collectives/nccl/offers.h"

#include <fmt/format.h>

#include <thread>

namespace dtrain::nccl {
namespace {

constexpr std::chrono::milliseconds kLookEvery{1};
constexpr std::chrono::seconds kOfferWait{5};

}  // namespace

std::string Offers::queue_of(const p2p::Call& call, int to) const {
  return fmt::format("{}/offers/{}/{}/{}/{}", prefix_, to, name_of(call.dtype), call.count, call.label);
}

void Offers::announce(const p2p::Call& offer, const Watchdog& watchdog) {
  watchdog.check(offer);
  const std::string queue = queue_of(offer, offer.root);
  const std::int64_t number = store_.add(queue, 1, Deadline::after(timeout_));
  store_.set(fmt::format("{}/{}", queue, number), std::to_string(rank_), Deadline::after(timeout_));
}

int Offers::await(const p2p::Call& taker, Watchdog& watchdog) {
  const std::string queue = queue_of(taker, rank_);
  const std::string key = fmt::format("{}/{}", queue, taken_[queue] + 1);
  const Deadline deadline = Deadline::after(timeout_);
  while (true) {
    watchdog.check(taker);
    if (const auto from = store_.try_get(key, Deadline::after(kOfferWait))) {
      ++taken_[queue];
      return std::stoi(*from);
    }
    if (deadline.expired()) watchdog.give_up(taker);
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace dtrain::nccl
