// A thread for each, since any of them may be silent.
#include "cluster/quorum/ask.h"

#include <poll.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "cluster/store/store_connection.h"
#include "cluster/store/store_wire.h"
#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

// Nothing when the connection ends or the deadline passes first.
std::optional<std::string> answer_of(StoreConnection& connection, const Deadline& deadline) {
  while (!deadline.expired()) {
    if (const auto payload = connection.next()) {
      auto response = wire::decode_response(*payload);
      return response ? std::make_optional(std::move(response->value)) : std::nullopt;
    }
    if (connection.over()) return std::nullopt;
    pollfd waited{connection.fd(), POLLIN, 0};
    if (::poll(&waited, 1, deadline.poll_timeout_ms()) > 0) connection.receive();
  }
  return std::nullopt;
}

std::optional<VoteAnswer> ask(const Endpoint& other, const StoreClientOptions& options,
                              const VoteRequest& request, const Deadline& deadline) {
  try {
    StoreConnection connection = connect_to_store(other, options, deadline);
    connection.append(wire::encode(wire::Request{.op = wire::Op::set,
                                                 .id = 1,
                                                 .keys = {std::string(kVoteKey)},
                                                 .value = encode(request),
                                                 .expected = {}}));
    if (!connection.flush() || connection.unsent_bytes() > 0) return std::nullopt;
    const auto answer = answer_of(connection, deadline);
    return answer ? decode_vote_answer(*answer) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;  // it is not there
  }
}

}  // namespace

std::vector<VoteAnswer> ask_all(const std::vector<Endpoint>& others, const StoreClientOptions& options,
                                const VoteRequest& request, Duration patience, std::size_t votes) {
  struct Ballot {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<VoteAnswer> answers;
    std::size_t silent = 0, granted = 0;
    bool leader = false;
  };
  const auto ballot = std::make_shared<Ballot>();
  const Deadline deadline = Deadline::after(patience);
  ballot->silent = others.size();
  for (const Endpoint& other : others) {
    // Each ends by itself at the deadline, and holds on to all that it uses.
    const auto work = [ballot, other, options, request, deadline] {
      auto answer = ask(other, options, request, deadline);
      const std::lock_guard lock(ballot->mutex);
      --ballot->silent;
      if (answer) {
        ballot->granted += answer->granted ? 1 : 0;
        ballot->leader = ballot->leader || answer->leads > request.known_term;
        ballot->answers.push_back(std::move(*answer));
      }
      ballot->changed.notify_all();
    };
    try {
      std::thread(work).detach();
    } catch (const std::system_error&) {
      // No thread can be had now: as if that one were silent. A launcher without a leader asks again.
      const std::lock_guard lock(ballot->mutex);
      --ballot->silent;
    }
  }
  std::unique_lock lock(ballot->mutex);
  ballot->changed.wait_until(lock, *deadline.at(), [&] {
    return ballot->silent == 0 || ballot->leader || (votes > 0 && ballot->granted >= votes);
  });
  return ballot->answers;
}

}  // namespace dtrain::rendezvous
