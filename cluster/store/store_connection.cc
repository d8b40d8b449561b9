// A message is as many frames as it needs; the tag of each says how many bytes of the message come after it.
#include "cluster/store/store_connection.h"

#include <fmt/format.h>

#include "cluster/net/connector.h"
#include "cluster/store/store_wire.h"
#include "runtime/base/error.h"

namespace dtrain {
namespace {

// Buffers that once held a large message are given back.
constexpr std::size_t kKeepCapacity = 64 * 1024;

void release(std::string& buffer) {
  buffer.clear();
  if (buffer.capacity() > kKeepCapacity) buffer.shrink_to_fit();
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void StoreConnection::append(std::string_view payload) {
  while (!payload.empty()) {
    const std::string_view body = payload.substr(0, net::kMostBodyBytes);
    payload.remove_prefix(body.size());
    const net::SealedFrame frame = stream_.seal(payload.size(), std::as_bytes(std::span(body)));
    out_.append(text_of(frame.header)).append(text_of(frame.body));
    out_.append(text_of(std::span(frame.mac).first(frame.mac_bytes)));
  }
}

bool StoreConnection::flush() {
  while (sent_ < out_.size()) {
    iovec rest{out_.data() + sent_, out_.size() - sent_};
    const std::size_t sent = stream_.send({&rest, 1});
    sent_ += sent;
    if (sent > 0) continue;
    if (sent_ > out_.size() / 2) {
      out_.erase(0, sent_);
      sent_ = 0;
    }
    return !over();
  }
  sent_ = 0;
  release(out_);
  return !over();
}

bool StoreConnection::receive() { return stream_.receive() && !stream_.drained(); }

std::optional<std::string_view> StoreConnection::next() {
  if (missing_ == 0 && !message_.empty()) release(message_);
  while (const net::Frame* frame = stream_.front()) {
    const std::string_view body = text_of(frame->body);
    const std::uint64_t left = frame->tag;
    const bool goes_on = missing_ > 0 ? left < missing_ && missing_ - left == body.size()
                                      : left <= wire::kMaxPayloadBytes - body.size();
    stream_.pop();
    if (!goes_on) {
      stream_.forge("a message longer than any the store sends");
      return std::nullopt;
    }
    missing_ = left;
    if (left == 0 && message_.empty()) return body;
    message_.append(body);
    if (left == 0) return message_;
  }
  return std::nullopt;
}

// --- connecting -------------------------------------------------------------------------------------------

StoreConnection connect_to_store(const Endpoint& server, const StoreClientOptions& options,
                                 const Deadline& deadline) {
  const TimePoint start = steady_clock().now();
  std::vector<SocketAddress> addresses = resolve_when_known(server, deadline);
  if (!options.insecure) {
    for (const SocketAddress& address : addresses)
      require_token(options.token, address, "store " + server.text());
  }
  net::Connector connector(std::move(addresses), options.token ? options.token->bytes() : std::string_view(),
                           {options.job, options.role, options.rank});
  if (auto stream = connector.run(deadline)) return StoreConnection(std::move(*stream));
  const double seconds = std::chrono::duration<double>(steady_clock().now() - start).count();
  const std::string why =
      connector.refusal().empty()
          ? fmt::format(
                "no connection within {:.1f} s; last error: {}; check that rank 0 runs there and that the "
                "port is open",
                seconds, connector.why())
          : connector.refusal();
  throw PeerError(fmt::format("store {}: {}", server.text(), why),
                  {.host = server.host, .operation = "store connect", .tensor = {}});
}

}  // namespace dtrain
