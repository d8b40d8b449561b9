#include "collectives/threads/thread_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/p2p/call.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

class ThreadOobKv final : public p2p::OobKv {
 public:
  ThreadOobKv(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}
  void put_record(std::string_view record) noexcept override { group_->put_record(rank_, record); }
  std::optional<std::string> record_of(int rank) noexcept override { return group_->record_of(rank); }
  std::string put_failure(std::string_view reason) noexcept override { return group_->put_failure(reason); }
  std::optional<std::string> failure() noexcept override { return group_->failure(); }
  void drain() noexcept override {}

 private:
  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
};

/// Threads are not lost one by one: who gives up takes leave, which the others see as any other call.
class ThreadContext final : public p2p::Context {
 public:
  ThreadContext(std::shared_ptr<ThreadRendezvous> rendezvous, std::shared_ptr<ThreadGroup> group, int rank,
                const Locality& locality)
      : rendezvous_(std::move(rendezvous)), group_(std::move(group)), rank_(rank), locality_(locality) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return group_->size(); }
  const std::string& host_of(int rank) const noexcept override { return group_->host_of(rank); }
  std::vector<int> lost_peers() noexcept override { return {}; }
  std::string_view name() const noexcept override { return "threads"; }
  void close(bool) noexcept override {}
  p2p::Endpoints split(const std::vector<int>& members, const std::string& name,
                       const Deadline& deadline) override {
    const int rank = static_cast<int>(std::find(members.begin(), members.end(), rank_) - members.begin());
    auto part = rendezvous_->join(name, rank, static_cast<int>(members.size()), group_->host_of(rank_),
                                  locality_, deadline);
    return make_thread_endpoints(rendezvous_, std::move(part), rank, locality_);
  }

 private:
  const std::shared_ptr<ThreadRendezvous> rendezvous_;
  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
  const Locality locality_;
};

}  // namespace

ThreadGroup::ThreadGroup(int size, AllReduceAlgorithm all_reduce)
    : layout_(size),
      memory_(std::make_shared<const SharedMemory>(SharedMemory::within_process(layout_.total_bytes()))),
      all_reduce_(all_reduce),
      hosts_(static_cast<std::size_t>(size)),
      identities_(static_cast<std::size_t>(size)),
      records_(static_cast<std::size_t>(size)) {}

void ThreadGroup::put_record(int rank, std::string_view record) {
  const std::lock_guard lock(mutex_);
  records_[static_cast<std::size_t>(rank)] = std::string(record);
}

std::optional<std::string> ThreadGroup::record_of(int rank) const {
  const std::lock_guard lock(mutex_);
  return records_[static_cast<std::size_t>(rank)];
}

std::string ThreadGroup::put_failure(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::string(reason);
  return *failure_;
}

std::optional<std::string> ThreadGroup::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::shared_ptr<const p2p::CollectivePlan> ThreadGroup::plan() const {
  return std::make_shared<const p2p::CollectivePlan>(p2p::Topology(identities_), all_reduce_,
                                                     p2p::GroupCosts{}, layout_.slot_bytes());
}

std::shared_ptr<ThreadGroup> ThreadRendezvous::join(const std::string& name, int rank, int size,
                                                    const std::string& host, const Locality& locality,
                                                    const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  std::shared_ptr<ThreadGroup>& forming = forming_[name];
  if (!forming) forming = std::make_shared<ThreadGroup>(size, locality.all_reduce);
  const std::shared_ptr<ThreadGroup> group = forming;
  std::string& place = group->hosts_[static_cast<std::size_t>(rank < group->size() ? rank : 0)];
  if (group->size() != size || !place.empty()) {
    throw UsageError(
        fmt::format("backend threads, group '{}': expected {} different ranks, got {} as rank {} of {}", name,
                    group->size(), place.empty() ? "a thread" : "a second thread", rank, size));
  }
  if (group->all_reduce_ != locality.all_reduce) {
    throw UsageError(
        fmt::format("backend threads, group '{}': expected the all_reduce algorithm {}, got {} on "
                    "rank {}",
                    name, name_of(group->all_reduce_), name_of(locality.all_reduce), rank));
  }
  place = host;
  group->identities_[static_cast<std::size_t>(rank)] = p2p::group_fingerprint(locality.host_identity);
  if (++group->arrived_ == size) {
    forming_.erase(name);
    complete_.notify_all();
    return group;
  }
  const auto is_complete = [&] { return group->arrived_ == size; };
  while (!is_complete()) {
    if (deadline.is_never()) {
      complete_.wait(lock, is_complete);
    } else if (!complete_.wait_for(lock, deadline.remaining(), is_complete)) {
      PeerFailure failure;
      failure.operation = "connect";
      const auto missing = std::find(group->hosts_.begin(), group->hosts_.end(), "");
      failure.rank = static_cast<int>(missing - group->hosts_.begin());
      throw PeerError(
          fmt::format("backend threads, group '{}': rank {} did not join within the timeout ({} of "
                      "{} ranks are here)",
                      name, failure.rank, group->arrived_, size),
          std::move(failure));
    }
  }
  return group;
}

p2p::Endpoints make_thread_endpoints(std::shared_ptr<ThreadRendezvous> rendezvous,
                                     std::shared_ptr<ThreadGroup> group, int rank, const Locality& locality) {
  p2p::Endpoints endpoints;
  endpoints.plan = group->plan();
  endpoints.oob = std::make_unique<ThreadOobKv>(group, rank);
  const auto memory = group->memory();
  const ShmLayout layout = group->layout();
  endpoints.transport = std::make_unique<ShmTransport>(
      std::make_unique<ThreadContext>(std::move(rendezvous), std::move(group), rank, locality), memory,
      layout);
  return endpoints;
}

}  // namespace dtrain
