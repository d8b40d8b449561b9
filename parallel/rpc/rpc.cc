// One thread moves the messages of all connections; requests are answered by a few others.
#include "parallel/rpc/rpc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "collectives/p2p/transport.h"
#include "collectives/tcp/peer_address.h"
#include "parallel/server/message_link.h"
#include "parallel/share.h"
#include "runtime/base/check.h"
#include "runtime/base/start_thread.h"
#include "runtime/tensor/defaults.h"

namespace dtrain {
namespace {

using Packet = server::Message;  // not one of Communicator::exchange()
using server::MessageLink;

constexpr const char* kShutDown = "remote calls were shut down here";
constexpr Duration kLongestTurn = std::chrono::milliseconds(100);

enum class Request : std::uint8_t {
  call = 1
};  ///< text: the function's name, a newline, the tensors' metadata
enum class Answer : std::uint8_t {
  returned = 1,  ///< text: the tensors' metadata
  failed,        ///< text: why
  unknown        ///< text: which functions there are
};

// Every rank may connect to every rank.
tcp::Purpose purpose_of(int rank, int size, Protection protection) {
  return {fmt::format("remote calls of rank {}", rank), -1, size, protection};
}

template <class Kind>
Packet pack(Kind kind, std::string text, const Tensors& tensors) {
  Packet message;
  message.head.kind = static_cast<std::uint8_t>(kind);
  server::StateMeta meta;
  for (const Tensor& tensor : tensors) {
    if (!tensor.defined()) throw UsageError("remote call: expected tensors, got one that is undefined");
    meta.tensors.push_back(server::meta_of("", tensor));
    server::append_values(tensor, message.payload);
  }
  message.text = std::move(text) + to_text(meta);
  return message;
}

/// Nothing for a message that does not fit together.
std::optional<Tensors> unpack(const Packet& message, const std::string& metadata,
                              const std::shared_ptr<Device>& cpu) {
  const auto meta = server::state_meta(metadata);
  if (!meta) return std::nullopt;
  Tensors tensors;
  std::size_t offset = 0;
  for (const server::TensorMeta& one : meta->tensors) {
    if (message.payload.size() - offset < bytes_of(one))
      return std::nullopt;  // before memory is taken for it
    tensors.push_back(Tensor::empty(Dims(one.shape), cpu, static_cast<DType>(one.dtype)));
    server::take_values(message.payload, offset, tensors.back());
  }
  return offset == message.payload.size() ? std::optional(tensors) : std::nullopt;
}

/// One that was made here.
struct Call {
  std::promise<Tensors> result;
  Deadline deadline;
  int rank;
  std::string function;
};

/// To one rank, whose functions are called from here. Used by the messages' thread.
struct CallLink {
  MessageLink link;
  std::uint64_t next_id = 1;
  std::map<std::uint64_t, Call> calls = {};
};

/// One that was made elsewhere.
struct Received {
  std::uint64_t connection;
  int caller;
  Packet message;
};

/// What other threads hand to the messages' thread.
struct Inbox {
  std::vector<std::pair<int, net::SecureStream>> streams;  ///< to a rank
  std::vector<std::pair<Call, Packet>> calls;
  std::vector<std::pair<std::uint64_t, Packet>> answers;  ///< of a connection
};

}  // namespace

struct Rpc::Impl {
  struct Peer {
    tcp::PeerAddress address;
    std::mutex connecting;
    bool connected = false;
  };

  Impl(Communicator& group, RemoteFunctions given, const RpcOptions& how, const Deadline& deadline)
      : communicator(group),
        functions(std::move(given)),
        options(how),
        cpu(how.cpu ? how.cpu : default_device()),
        listening(how.address, how.host, purpose_of(group.rank(), group.size(), how.protection), how.token,
                  deadline) {
    if (options.threads < 1)
      throw UsageError(fmt::format("remote calls: expected at least 1 thread, got {}", options.threads));
    if (cpu->type() != DeviceType::cpu)
      throw UsageError("remote calls: expected a device of the CPU for what comes (RpcOptions::cpu), got " +
                       cpu->name());
    for (const std::string& text : gather_texts(communicator, listening.address.text(), deadline)) {
      peers.emplace_back().address = tcp::PeerAddress::parse(text);
      if (peers.back().address.protection != options.protection)
        throw UsageError(
            fmt::format("remote calls: rank {} protects its messages by '{}', rank {} by '{}'; set "
                        "DTRAIN_TCP_PROTECTION to the same everywhere",
                        peers.size() - 1, name_of(peers.back().address.protection), communicator.rank(),
                        name_of(options.protection)));
    }
    wake.reset(static_cast<int>(check(Sys{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)}, "eventfd")));
    messages = start_thread("dtrain-rpc", [this] { move_messages(); });
  }

  ~Impl() { close(); }

  // ---- any thread

  std::string name_of_rank(int rank) const {
    const tcp::PeerAddress& at = peers[static_cast<std::size_t>(rank)].address;
    return fmt::format("rank {} on {}", rank, at.host.empty() ? at.address : at.host);
  }

  PeerError lost(int rank, const std::string& function, const std::string& why) const {
    return {fmt::format("call of '{}' of {}: {}", function, name_of_rank(rank), why),
            PeerFailure{rank, peers[static_cast<std::size_t>(rank)].address.host, "call", 0, function, why}};
  }

  std::future<Tensors> begin(int rank, const std::string& function, const Tensors& arguments,
                             const Deadline& deadline) {
    if (rank < 0 || rank >= communicator.size())
      throw UsageError(fmt::format("call of '{}': expected a rank from 0 to {}, got {}", function,
                                   communicator.size() - 1, rank));
    if (function.empty() || function.find('\n') != std::string::npos)
      throw UsageError("remote call: expected the name of a function in one line");
    if (is_closed()) throw lost(rank, function, kShutDown);
    Packet request = pack(Request::call, function + "\n", arguments);
    connect(rank, function, deadline);
    Call call{{}, deadline, rank, function};
    std::future<Tensors> result = call.result.get_future();
    {
      const std::lock_guard lock(mutex);
      if (closed) throw lost(rank, function, kShutDown);
      ++calls;
      inbox.calls.emplace_back(std::move(call), std::move(request));
    }
    ring();
    return result;
  }

  void connect(int rank, const std::string& function, const Deadline& deadline) {
    Peer& peer = peers[static_cast<std::size_t>(rank)];
    const std::lock_guard connecting(peer.connecting);
    if (peer.connected) return;
    net::Connector connector =
        tcp::connector_to(peer.address, communicator.rank(),
                          purpose_of(rank, communicator.size(), options.protection), options.token, deadline);
    std::optional<net::SecureStream> stream;
    while (!(stream = connector.run(Deadline::after(std::min(deadline.remaining(), kLongestTurn))))) {
      // It has listened since before this rank knew its address.
      const bool gone = connector.why().ends_with(std::generic_category().message(ECONNREFUSED));
      if (gone || !connector.refusal().empty() || deadline.expired())
        throw lost(rank, function, "no connection: " + connector.why());
    }
    const std::lock_guard lock(mutex);
    inbox.streams.emplace_back(rank, std::move(*stream));
    peer.connected = true;
  }

  void ring() noexcept {
    const std::uint64_t one = 1;
    // Cannot fail: the counter is far from its limit.
    [[maybe_unused]] const auto written = ::write(wake.get(), &one, sizeof one);
  }

  /// Waits until no call of this rank is under way.
  void wait_for_calls(const Deadline& deadline) {
    std::unique_lock lock(mutex);
    while (calls > 0) {
      if (deadline.expired())
        throw PeerError(fmt::format("shutdown of remote calls: {} of this rank have no answer yet", calls),
                        PeerFailure{-1, "", "shutdown", 0, ""});
      answered.wait_for(lock, std::min<Duration>(deadline.remaining(), kLongestTurn));
    }
  }

  void close() noexcept {
    {
      const std::lock_guard lock(mutex);
      closed = true;
    }
    ring();
    if (messages.joinable()) messages.join();
    received_or_closed.notify_all();
    for (std::thread& thread : answering) thread.join();
    answering.clear();
  }

  // ---- the messages' thread

  void move_messages() noexcept {
    std::string why = kShutDown;
    try {
      while (!is_closed()) turn();
    } catch (const std::exception& error) {
      why = error.what();
    }
    {
      const std::lock_guard lock(mutex);
      closed = true;
    }
    take_inbox();
    for (auto& [rank, to] : links) fail_all(to, why);
    links.clear();
    callers.clear();
    received_or_closed.notify_all();
  }

  bool is_closed() {
    const std::lock_guard lock(mutex);
    return closed;
  }

  void turn() {
    std::vector<pollfd> polled{{wake.get(), POLLIN, 0}, {listening.acceptor.fd(), POLLIN, 0}};
    const auto add = [&](const MessageLink& link) {
      polled.push_back({link.fd(), static_cast<short>(link.sends() ? POLLIN | POLLOUT : POLLIN), 0});
    };
    for (const auto& [rank, to] : links) add(to.link);
    for (const auto& [connection, from] : callers) add(from.second);
    ::poll(polled.data(), polled.size(), Deadline::after(pause()).poll_timeout_ms());
    std::uint64_t woken = 0;
    [[maybe_unused]] const auto read = ::read(wake.get(), &woken, sizeof woken);
    take_inbox();
    for (net::AcceptedPeer& peer : listening.acceptor.serve())
      callers.emplace(next_connection++,
                      std::pair(peer.identity.rank, MessageLink(peer.identity.rank, std::move(peer.stream),
                                                                static_cast<std::uint8_t>(Request::call))));
    for (auto it = callers.begin(); it != callers.end();)
      it = serve(it->first, it->second) ? ++it : callers.erase(it);
    for (auto it = links.begin(); it != links.end();) it = take_answers(it->second) ? ++it : links.erase(it);
  }

  /// Until something is due without a message.
  Duration pause() const {
    Duration least = kLongestTurn;
    for (const auto& [rank, to] : links) {
      for (const auto& [id, call] : to.calls) least = std::min(least, call.deadline.remaining());
    }
    return least;
  }

  void take_inbox() {
    Inbox came;
    {
      const std::lock_guard lock(mutex);
      std::swap(came, inbox);
    }
    for (auto& [rank, stream] : came.streams)
      links.emplace(
          rank, CallLink{MessageLink(rank, std::move(stream), static_cast<std::uint8_t>(Answer::unknown))});
    for (auto& [call, message] : came.calls) {
      const auto to = links.find(call.rank);
      if (to == links.end()) {
        fail(call, "the connection was lost before");
        continue;
      }
      const std::uint64_t id = message.head.id = to->second.next_id++;
      to->second.link.send(std::move(message));
      to->second.calls.emplace(id, std::move(call));
    }
    for (auto& [connection, message] : came.answers) {
      const auto from = callers.find(connection);
      if (from != callers.end()) from->second.second.send(std::move(message));
    }
  }

  /// False when the caller is gone: nobody waits for its answers.
  bool serve(std::uint64_t connection, std::pair<int, MessageLink>& from) {
    try {
      while (auto message = from.second.take()) hand_out({connection, from.first, std::move(*message)});
      from.second.flush();
      return true;
    } catch (const p2p::LinkLost&) {
      return false;
    }
  }

  bool take_answers(CallLink& to) {
    try {
      to.link.flush();
      while (auto answer = to.link.take()) {
        const auto call = to.calls.find(answer->head.id);
        if (call == to.calls.end()) continue;  // its deadline has passed
        finish(call->second, *answer);
        to.calls.erase(call);
      }
    } catch (const p2p::LinkLost& gone) {
      fail_all(to, gone.what());
      return false;
    }
    for (auto call = to.calls.begin(); call != to.calls.end();) {
      if (!call->second.deadline.expired()) {
        ++call;
        continue;
      }
      fail(call->second, "no answer in time; is the rank stopped, or does the function take longer?");
      call = to.calls.erase(call);
    }
    return true;
  }

  void finish(Call& call, const Packet& answer) {
    const std::string where = fmt::format("call of '{}' of {}: ", call.function, name_of_rank(call.rank));
    switch (static_cast<Answer>(answer.head.kind)) {
      case Answer::returned:
        if (auto tensors = unpack(answer, answer.text, cpu))
          call.result.set_value(std::move(*tensors));
        else
          return fail(call, "its answer does not fit together");
        break;
      case Answer::failed:
        call.result.set_exception(std::make_exception_ptr(RemoteError(where + answer.text)));
        break;
      case Answer::unknown:
        call.result.set_exception(std::make_exception_ptr(UsageError(where + answer.text)));
        break;
    }
    end_call();
  }

  void fail(Call& call, const std::string& why) {
    call.result.set_exception(std::make_exception_ptr(lost(call.rank, call.function, why)));
    end_call();
  }

  void fail_all(CallLink& to, const std::string& why) {
    for (auto& [id, call] : to.calls) fail(call, why);
    to.calls.clear();
  }

  void end_call() {
    const std::lock_guard lock(mutex);
    --calls;
    answered.notify_all();
  }

  // ---- requests of others

  void hand_out(Received request) {
    const std::lock_guard lock(mutex);
    received.push_back(std::move(request));
    received_or_closed.notify_one();
    if (received.size() <= idle || static_cast<int>(answering.size()) >= options.threads) return;
    try {
      answering.push_back(start_thread("dtrain-rpc-call", [this] { answer_requests(); }));
    } catch (const SystemError&) {
      if (answering.empty()) throw;  // else one of the others answers it
    }
  }

  void answer_requests() {
    std::unique_lock lock(mutex);
    while (true) {
      ++idle;
      received_or_closed.wait(lock, [&] { return closed || !received.empty(); });
      --idle;
      if (closed) return;
      const Received request = std::move(received.front());
      received.pop_front();
      lock.unlock();
      Packet answer = answer_to(request);
      answer.head.id = request.message.head.id;
      lock.lock();
      inbox.answers.emplace_back(request.connection, std::move(answer));
      ring();
    }
  }

  Packet answer_to(const Received& request) const {
    const std::string& text = request.message.text;
    const std::size_t end = text.find('\n');
    try {
      const auto arguments =
          unpack(request.message, end == std::string::npos ? "" : text.substr(end + 1), cpu);
      if (!arguments) throw Error("the request does not fit together");
      const auto function = functions.find(text.substr(0, end));
      if (function == functions.end())
        return {{.kind = static_cast<std::uint8_t>(Answer::unknown)}, {}, known()};
      return pack(Answer::returned, "", function->second(request.caller, *arguments));
    } catch (const std::exception& error) {
      return {{.kind = static_cast<std::uint8_t>(Answer::failed)}, {}, error.what()};
    }
  }

  std::string known() const {
    std::vector<std::string> names;
    for (const auto& [name, function] : functions) names.push_back(name);
    return names.empty() ? "expected a function of that name there, got none of any name"
                         : fmt::format("expected one of the functions there ({})", fmt::join(names, ", "));
  }

  Communicator& communicator;
  const RemoteFunctions functions;
  const RpcOptions options;
  const std::shared_ptr<Device> cpu;  ///< where tensors that come are made
  tcp::ListeningRank listening;
  std::deque<Peer> peers;
  UniqueFd wake;

  // The messages' thread's.
  std::map<int, CallLink> links;                                 ///< by rank
  std::map<std::uint64_t, std::pair<int, MessageLink>> callers;  ///< rank and connection, by number
  std::uint64_t next_connection = 1;

  std::mutex mutex;  ///< of all below
  Inbox inbox;
  bool closed = false;
  std::size_t calls = 0;  ///< of this rank, that have no answer yet
  std::condition_variable answered;
  std::deque<Received> received;
  std::size_t idle = 0;  ///< threads of `answering` that wait
  std::condition_variable received_or_closed;
  std::vector<std::thread> answering;
  std::thread messages;
};

Rpc::Rpc(Communicator& communicator, RemoteFunctions functions, const RpcOptions& options,
         const Deadline& deadline)
    : impl_(std::make_unique<Impl>(communicator, std::move(functions), options, deadline)) {}

Rpc::~Rpc() = default;

int Rpc::rank() const noexcept { return impl_->communicator.rank(); }
int Rpc::size() const noexcept { return impl_->communicator.size(); }

Tensors Rpc::call(int rank, const std::string& function, const Tensors& arguments, const Deadline& deadline) {
  return call_async(rank, function, arguments, deadline).get();
}

std::future<Tensors> Rpc::call_async(int rank, const std::string& function, const Tensors& arguments,
                                     const Deadline& deadline) {
  return impl_->begin(rank, function, arguments, deadline);
}

void Rpc::shutdown(const Deadline& deadline) {
  impl_->wait_for_calls(deadline);
  impl_->communicator.barrier("shutdown of remote calls")->wait(deadline);
  impl_->close();
}

}  // namespace dtrain
