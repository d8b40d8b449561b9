#include "parallel/server/message_link.h"

#include "collectives/p2p/transport.h"
#include "collectives/tcp/link.h"

namespace dtrain::server {
namespace {

// The parts of a message are messages of the link, under a tag each.
constexpr std::uint64_t kHeadTag = 1, kPrefaceTag = 2, kPayloadTag = 3;
constexpr std::size_t kStagingBytes = 1 << 20;

struct Outgoing {
  Message message;
  std::array<std::byte, kEnvelopeBytes> head;
  std::vector<std::byte> preface;
  int pending = 0;
};

}  // namespace

struct MessageLink::State {
  State(int peer, net::SecureStream stream, std::uint8_t last)
      : link(peer, std::move(stream), kStagingBytes), last_kind(last) {}

  enum class Part { none, head, preface, payload };
  void expect(Part next, std::uint64_t tag, std::byte* data, std::size_t bytes) {
    part = next;
    link.expect(tag, data, bytes, pending);
  }

  tcp::Link link;
  const std::uint8_t last_kind;
  std::deque<std::unique_ptr<Outgoing>> outgoing;
  Part part = Part::none;  ///< of the message that is coming in
  int pending = 0;
  std::array<std::byte, kEnvelopeBytes> head;
  std::vector<std::byte> preface;
  Message incoming;
};

MessageLink::MessageLink(int peer, net::SecureStream stream, std::uint8_t last_kind)
    : state_(std::make_unique<State>(peer, std::move(stream), last_kind)) {}
MessageLink::~MessageLink() = default;
MessageLink::MessageLink(MessageLink&&) noexcept = default;

int MessageLink::fd() const noexcept { return state_->link.fd(); }
bool MessageLink::sends() const noexcept { return state_->link.sends(); }

void MessageLink::send(Message message) {
  auto out = std::make_unique<Outgoing>();
  out->message = std::move(message);
  Envelope& head = out->message.head;
  head.keys = static_cast<std::uint32_t>(out->message.keys.size());
  head.text_bytes = static_cast<std::uint32_t>(out->message.text.size());
  head.payload_bytes = out->message.payload.size();
  out->head = encode(head);
  out->preface = encode_preface(out->message);
  tcp::Link& link = state_->link;
  link.send(kHeadTag, out->head.data(), out->head.size(), out->pending);
  if (!out->preface.empty()) link.send(kPrefaceTag, out->preface.data(), out->preface.size(), out->pending);
  if (!out->message.payload.empty())
    link.send(kPayloadTag, out->message.payload.data(), out->message.payload.size(), out->pending);
  state_->outgoing.push_back(std::move(out));
}

void MessageLink::flush() {
  state_->link.flush();
  while (!state_->outgoing.empty() && state_->outgoing.front()->pending == 0) state_->outgoing.pop_front();
}

std::optional<Message> MessageLink::take() {
  State& s = *state_;
  using Part = State::Part;
  if (s.part == Part::none) s.expect(Part::head, kHeadTag, s.head.data(), s.head.size());
  while (true) {
    s.link.take();
    if (s.pending > 0) return std::nullopt;
    if (s.part == Part::head) {
      const auto head = decode_envelope(s.head, s.last_kind);
      if (!head) throw p2p::LinkLost("it sent something that is not a dtrain message", s.link.rank());
      s.incoming = Message{*head};
      s.preface.resize(head->preface_bytes());
      if (!s.preface.empty()) {
        s.expect(Part::preface, kPrefaceTag, s.preface.data(), s.preface.size());
        continue;
      }
    }
    if (s.part == Part::preface) decode_preface(s.preface, s.incoming);
    if (s.part != Part::payload && s.incoming.head.payload_bytes > 0) {
      s.incoming.payload.resize(s.incoming.head.payload_bytes);
      s.expect(Part::payload, kPayloadTag, s.incoming.payload.data(), s.incoming.payload.size());
      continue;
    }
    s.part = Part::none;
    return std::move(s.incoming);
  }
}

}  // namespace dtrain::server
