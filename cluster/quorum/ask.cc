// A thread for each, since any of them may be silent.
#include "cluster/quorum/ask.h"

#include <poll.h>
#include <sys/socket.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "cluster/store/store_connect.h"
#include "runtime/base/error.h"

namespace dtrain::rendezvous {
namespace {

// Nothing when the connection ends or the deadline passes first.
std::optional<std::string> answer_of(StoreStream& stream, const Deadline& deadline) {
  char bytes[4096];
  while (!deadline.expired()) {
    std::string_view payload;
    switch (stream.reader.next(payload)) {
      case wire::FrameReader::Result::frame:
        if (auto response = wire::decode_response(payload)) return std::move(response->value);
        return std::nullopt;
      case wire::FrameReader::Result::bad:
        return std::nullopt;
      case wire::FrameReader::Result::need_more:
        break;
    }
    pollfd waited{stream.fd.get(), POLLIN, 0};
    if (::poll(&waited, 1, deadline.poll_timeout_ms()) <= 0) continue;
    const ssize_t got = ::recv(stream.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0) return std::nullopt;
    if (got > 0) stream.reader.feed({bytes, static_cast<std::size_t>(got)});
  }
  return std::nullopt;
}

std::optional<VoteAnswer> ask(const Endpoint& other, const StoreClientOptions& options,
                              const VoteRequest& request, const Deadline& deadline) {
  try {
    StoreStream stream = connect_to_store(other, options, deadline);
    const wire::Request set{.op = wire::Op::set,
                            .id = 1,
                            .keys = {std::string(kVoteKey)},
                            .value = encode(request),
                            .expected = {}};
    std::string bytes;
    stream.writer.append(bytes, wire::encode(set));
    if (::send(stream.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size()))
      return std::nullopt;
    const auto answer = answer_of(stream, deadline);
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
