// An epoll loop a thread. Connecting is done in between, one launcher after another.
#include "tests/bench/rendezvous/crowd.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <mutex>

#include "cluster/rendezvous/messages.h"
#include "cluster/rendezvous/session.h"
#include "cluster/store/store_connection.h"
#include "runtime/base/check.h"

namespace dtrain::bench {
namespace {

using rendezvous::LeaderEvent;
using std::chrono::milliseconds;

constexpr int kServeEvery = 32;  // connections
// Connections to one address of the server: the kernel has some 28,000 ports for those, counting what closed
// in the last minute, and searches long when few are left.
constexpr int kAnAddress = 2'000;
constexpr Duration kTickEvery = milliseconds(100);

}  // namespace

rendezvous::NodeOffer offer_of(int node_rank) {
  rendezvous::NodeOffer offer;
  offer.node_rank = node_rank;
  offer.host = fmt::format("node{:05}", node_rank);
  offer.address = fmt::format("10.0.{}.{} (eth0)", node_rank / 256, node_rank % 256);
  offer.nproc = 8;
  offer.must_match = {
      {"nnodes", "all"}, {"nproc", "8"}, {"program", "dtrain train"}, {"config", "0123456789abcdef"}};
  return offer;
}

struct Crowd::Trouble {
  std::mutex mutex;
  std::string last;
};

struct Crowd::Slot {
  Slot(StoreConnection connected, const rendezvous::NodeOffer& offer, rendezvous::SessionTimes times)
      : connection(std::move(connected)), session(offer, times, steady_clock().now()) {}
  StoreConnection connection;
  rendezvous::Session session;
};

class Crowd::Loop {
 public:
  Loop(Crowd& crowd, const rendezvous::MemberOptions& options)
      : crowd_(crowd),
        options_(options),
        epoll_(static_cast<int>(check(Sys{::epoll_create1(EPOLL_CLOEXEC)}, "epoll_create1"))),
        next_tick_(steady_clock().now()) {}

  void run(int first, int step, int end) {
    int joined = 0;
    for (int rank = first; rank < end && !crowd_.leaving_; rank += step) {
      join(rank);
      if (++joined % kServeEvery == 0) serve(0);
    }
    while (!crowd_.leaving_) serve(20);
  }

 private:
  void join(int rank) {
    StoreClientOptions store;
    store.token = options_.token;
    store.job = options_.job;
    store.role = "launcher";
    store.rank = rank;
    const Endpoint server{fmt::format("127.0.0.{}", 1 + rank / kAnAddress), options_.server.port};
    slots_.push_back(
        std::make_unique<Slot>(connect_to_store(server, store, Deadline::after(std::chrono::seconds(60))),
                               offer_of(rank), rendezvous::SessionTimes{options_.beat, options_.lease}));
    Slot& slot = *slots_.back();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = &slot;
    check(Sys{::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, slot.connection.fd(), &event)}, "epoll_ctl");
    flush(slot);
    ++crowd_.connected_;
  }

  void serve(int wait_ms) {
    epoll_event events[256];
    const int ready = ::epoll_wait(epoll_.get(), events, 256, wait_ms);
    for (int i = 0; i < ready; ++i) receive(*static_cast<Slot*>(events[i].data.ptr));
    const TimePoint now = steady_clock().now();
    if (now < next_tick_) return;
    next_tick_ = now + kTickEvery;
    for (const auto& slot : slots_) {
      slot->session.tick(now);
      attend(*slot);
    }
  }

  void receive(Slot& slot) {
    slot.connection.receive();
    while (const auto message = slot.connection.next()) slot.session.receive(*message, steady_clock().now());
    if (slot.connection.over()) slot.session.lose(slot.connection.why());
    attend(slot);
  }

  void attend(Slot& slot) {
    while (const auto event = slot.session.take()) react(slot, *event);
    flush(slot);
    if (slot.session.ended()) slot.connection.close();
  }

  // Nodes are not decoded: on a real node that is one launcher's work, not ten thousand launchers'.
  void react(Slot& slot, const std::string& event) {
    const TimePoint now = steady_clock().now();
    if (const auto round = rendezvous::round_of(event)) {
      if (rendezvous::is_forming(event)) {
        slot.session.say(rendezvous::Ready{*round, 4711}, now);
      } else if (rendezvous::is_start(event)) {
        ++crowd_.started_;
      } else {
        ++crowd_.stopped_;
        slot.session.say(rendezvous::Ended{*round, 143}, now);
      }
    } else if (rendezvous::is_over(event)) {
      ++crowd_.over_;
    } else if (slot.session.ended()) {
      const auto decoded = rendezvous::decode_leader_event(event);
      if (const auto* lost = std::get_if<rendezvous::LeaseLost>(&*decoded)) crowd_.count_broken(lost->why);
      if (const auto* refused = std::get_if<rendezvous::Refused>(&*decoded))
        crowd_.count_broken(refused->why);
    }
  }

  void flush(Slot& slot) {
    if (crowd_.fail_one_.exchange(false)) {
      rendezvous::Failed failed;
      failed.failure.exit_code = 7;
      failed.failure.lines.assign(20, "rank 7 failed first: exit code 7");
      slot.session.say(failed, steady_clock().now());
    }
    if (!slot.connection.is_open()) return;
    for (const std::string& message : slot.session.out()) slot.connection.append(message);
    slot.session.out().clear();
    slot.connection.flush();
  }

  Crowd& crowd_;
  const rendezvous::MemberOptions options_;
  UniqueFd epoll_;
  TimePoint next_tick_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

Crowd::Crowd(const rendezvous::MemberOptions& options, int first, int count, int threads)
    : trouble_(std::make_unique<Trouble>()) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, options, first, count, threads, i] {
      try {
        Loop(*this, options).run(first + i, threads, first + count);
      } catch (const std::exception& error) {
        count_broken(error.what());
      }
    });
  }
}

Crowd::~Crowd() {
  leaving_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Crowd::count_broken(const std::string& why) {
  const std::lock_guard lock(trouble_->mutex);
  trouble_->last = why;
  ++broken_;
}

std::string Crowd::trouble() const {
  const std::lock_guard lock(trouble_->mutex);
  return trouble_->last;
}

}  // namespace dtrain::bench
