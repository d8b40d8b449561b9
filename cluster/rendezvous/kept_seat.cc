// Bytes in the encoding of the messages; the reader is the same program, a moment later.
#include "cluster/rendezvous/kept_seat.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cluster/rendezvous/messages.h"
#include "cluster/store/store_wire.h"

namespace dtrain::rendezvous {
namespace {

// Two pieces of news with the most nodes there can be, and words.
constexpr std::size_t kSeatBytes = std::size_t{8} << 20;
// About a million words.
constexpr std::size_t kOfficeBytes = std::size_t{64} << 20;
constexpr std::size_t kAnyBytes = kSeatBytes;

void put(wire::ByteWriter& out, const std::vector<std::string>& texts) {
  out.u32(static_cast<std::uint32_t>(texts.size()));
  for (const std::string& text : texts) out.text(text);
}

std::vector<std::string> take_texts(wire::ByteReader& in) {
  std::vector<std::string> texts;
  for (std::uint32_t left = in.u32(); left > 0 && in.good(); --left) texts.emplace_back(in.text(kAnyBytes));
  return texts;
}

std::uint64_t bits(int value) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(value)); }
int int_of(std::uint64_t bits) { return static_cast<int>(static_cast<std::int64_t>(bits)); }

void put(wire::ByteWriter& out, const std::optional<int>& value) {
  out.u8(value ? 1 : 0);
  out.u64(bits(value.value_or(0)));
}

std::optional<int> take_maybe(wire::ByteReader& in) {
  const bool there = in.u8() == 1;
  const int value = int_of(in.u64());
  return there ? std::optional(value) : std::nullopt;
}

std::string encode(const KeptSeat& seat) {
  std::string bytes;
  wire::ByteWriter out(bytes);
  const KeptSession& session = seat.session;
  out.text(seat.server.host);
  out.u16(seat.server.port);
  out.text(rendezvous::encode(session.offer));
  out.u64(bits(session.place));
  out.u64(session.epoch);
  out.u64(session.next_event);
  out.u64(bits(session.round));
  put(out, session.index);
  out.u8(session.at_work ? 1 : 0);
  put(out, session.ended_with);
  out.u64(session.known.epoch);
  out.u64(session.known.events);
  out.text(rendezvous::encode(News(session.known.leadership)));
  out.u64(session.words);
  put(out, session.unanswered);
  put(out, session.news);
  out.u64(seat.news_before);
  out.u8(session.ended ? 1 : 0);
  return bytes;
}

std::optional<KeptSeat> decode(std::string_view bytes) {
  wire::ByteReader in(bytes);
  KeptSeat seat;
  KeptSession& session = seat.session;
  seat.server.host = in.text(kAnyBytes);
  seat.server.port = in.u16();
  auto offer = decode_offer(in.text(kAnyBytes));
  session.place = int_of(in.u64());
  session.epoch = in.u64();
  session.next_event = in.u64();
  session.round = int_of(in.u64());
  session.index = take_maybe(in);
  session.at_work = in.u8() == 1;
  session.ended_with = take_maybe(in);
  session.known.epoch = in.u64();
  session.known.events = in.u64();
  auto known = decode_news(in.text(kAnyBytes));
  session.words = in.u64();
  session.unanswered = take_texts(in);
  session.news = take_texts(in);
  seat.news_before = in.u64();
  session.ended = in.u8() == 1;
  auto* leadership = known ? std::get_if<Leadership>(&*known) : nullptr;
  if (!in.finished() || !offer || leadership == nullptr) return std::nullopt;
  session.offer = std::move(*offer);
  session.known.leadership = std::move(*leadership);
  return seat;
}

}  // namespace

KeptSession without_read_news(const KeptSeat& seat, std::uint64_t read) {
  KeptSession session = seat.session;
  const std::uint64_t taken =
      std::min<std::uint64_t>(read - std::min(read, seat.news_before), session.news.size());
  session.news.erase(session.news.begin(), session.news.begin() + static_cast<std::ptrdiff_t>(taken));
  return session;
}

SeatMemory::SeatMemory()
    : pages_(sizeof(Words)),
      words_(::new (pages_.data()) Words{0, 0, 0, 0}),
      seat_(kSeatBytes),
      office_(kOfficeBytes) {}

void SeatMemory::keep(const std::optional<KeptSeat>& seat) {
  seat_.put(seat ? encode(*seat) : std::string());
}

std::optional<KeptSeat> SeatMemory::seat() const {
  const std::string bytes = seat_.get();
  return bytes.empty() ? std::nullopt : decode(bytes);
}

}  // namespace dtrain::rendezvous
