// Each input is written, then taken in; reading takes in what was written.
#include "cluster/rendezvous/leader/office.h"

#include <algorithm>
#include <tuple>

#include "cluster/rendezvous/messages.h"
#include "cluster/store/store_wire.h"

namespace dtrain::rendezvous {
namespace {

using wire::ByteReader;
using wire::ByteWriter;

// Connections of different processes must not be taken for each other; a server counts its own from 0.
constexpr unsigned kClientBits = 40;
constexpr std::size_t kAnyBytes = std::size_t{64} << 20;

void put(ByteWriter& out, TimePoint time) {
  out.u64(static_cast<std::uint64_t>(time.time_since_epoch().count()));
}
TimePoint take_time(ByteReader& in) { return TimePoint(Duration(static_cast<std::int64_t>(in.u64()))); }

auto all_of(const Delegate& one) { return std::tie(one.incarnation, one.host, one.at); }

}  // namespace

// u8 of it, then its fields.
enum class Office::Kind : std::uint8_t {
  found,
  inherit,
  close,
  join,
  hear,
  leave,
  tick,
  heard_the_end,
  successors,
  council,
  event,
  taken_up,
};

bool Office::KeptCouncil::operator==(const KeptCouncil& other) const {
  return changed_at == other.changed_at && alone == other.alone &&
         std::equal(members.begin(), members.end(), other.members.begin(), other.members.end(),
                    [](const Delegate& a, const Delegate& b) { return all_of(a) == all_of(b); });
}

Office::Office(JobRules rules, Journal* journal, TimePoint now)
    : rules_(std::move(rules)), journal_(journal) {
  if (journal_ == nullptr || journal_->empty() || !journal_->whole()) return;
  reading_ = true;
  journal_->read([this](std::string_view record) { read(record); });
  reading_ = false;
  lost_.clear();
  // For people, about what was then.
  std::erase_if(queue_, [](const News& news) { return std::holds_alternative<Waiting>(news); });
  ++generation_;
  write(Kind::taken_up, [&](std::string& out) {
    ByteWriter writer(out);
    put(writer, now);
  });
  if (!membership_) return;
  membership_->lose_all_connections(now);
  collect();
}

SeatId Office::seat_of(std::uint64_t client) const noexcept { return (generation_ << kClientBits) | client; }

void Office::write(Kind kind, const std::function<void(std::string&)>& fields) const {
  if (journal_ == nullptr || reading_) return;
  std::string record(1, static_cast<char>(kind));
  fields(record);
  journal_->append(record);
}

void Office::collect() {
  for (News& news : membership_->take_news()) {
    if (!reading_ || !std::holds_alternative<Waiting>(news)) queue_.push_back(std::move(news));
  }
  for (const SeatId id : membership_->take_lost()) {
    if (id >> kClientBits == generation_) lost_.push_back(id & ((std::uint64_t{1} << kClientBits) - 1));
  }
}

void Office::start_over() {
  council_.reset();
  successors_ = false;
  queue_.clear();
  events_.clear();
  next_event_ = formed_at_ = 0;
  first_events_.clear();
  heard_.clear();
  unheard_.reset();
}

// --- who leads --------------------------------------------------------------------------------------------

void Office::found(TimePoint now) {
  write(Kind::found, [&](std::string& out) {
    ByteWriter writer(out);
    put(writer, now);
  });
  start_over();
  membership_.emplace(rules_, now);
}

void Office::inherit(std::uint64_t epoch, const Inheritance& inheritance, TimePoint now) {
  write(Kind::inherit, [&](std::string& out) {
    ByteWriter writer(out);
    writer.u64(epoch);
    put(writer, now);
    put(writer, inheritance.heard);
    writer.u32(static_cast<std::uint32_t>(inheritance.host_place));
    writer.text(inheritance.lost);
    writer.text(encode(News(inheritance.known)));
  });
  start_over();
  epoch_ = epoch;
  membership_.emplace(rules_, inheritance, now);
  collect();
}

void Office::read_inheritance(std::string_view fields) {
  ByteReader in(fields);
  const std::uint64_t epoch = in.u64();
  const TimePoint now = take_time(in);
  Inheritance inheritance;
  inheritance.heard = take_time(in);
  inheritance.host_place = static_cast<int>(in.u32());
  inheritance.lost = in.text(kAnyBytes);
  auto known = decode_news(in.text(kAnyBytes));
  auto* leadership = known ? std::get_if<Leadership>(&*known) : nullptr;
  if (leadership == nullptr) return;
  inheritance.known = std::move(*leadership);
  inherit(epoch, inheritance, now);
}

void Office::close() {
  write(Kind::close, [](std::string&) {});
  membership_.reset();
  start_over();
}

void Office::set_successors(bool there_are) {
  if (successors_ == there_are) return;
  write(Kind::successors, [&](std::string& out) { ByteWriter(out).u8(there_are ? 1 : 0); });
  successors_ = there_are;
  membership_->set_successors(there_are);
}

void Office::set_council(const KeptCouncil& council) {
  if (council_ == council) return;
  write(Kind::council, [&](std::string& out) {
    ByteWriter writer(out);
    writer.u64(council.changed_at);
    writer.u8(council.alone ? 1 : 0);
    Leadership members;
    members.council = council.members;
    writer.text(encode(News(members)));
  });
  council_ = council;
}

// --- what launchers say -----------------------------------------------------------------------------------

Admission Office::join(std::uint64_t client, std::string_view offer, TimePoint now) {
  write(Kind::join, [&](std::string& out) {
    ByteWriter writer(out);
    writer.u64(client);
    put(writer, now);
    writer.raw(offer);
  });
  const auto decoded = decode_offer(offer);
  if (!decoded)
    return {-1, "the rendezvous did not understand the join; run the same dtrain on every node", {}};
  if (decoded->incarnation != 0) first_events_.try_emplace(decoded->incarnation, next_event_);
  Admission admission = membership_->join(seat_of(client), *decoded, now);
  // What became of the round that it comes back from has been told from the first piece of news on.
  const bool comes_back = decoded->resumes && decoded->epoch != epoch_ && admission.as_before;
  if (comes_back && decoded->incarnation != 0) first_events_[decoded->incarnation] = 0;
  collect();
  return admission;
}

void Office::beat(std::uint64_t client, TimePoint now) { membership_->beat(seat_of(client), now); }

void Office::hear(std::uint64_t client, std::string_view word, std::uint64_t number, TimePoint now) {
  const auto decoded = decode_word(word);
  if (!decoded || !membership_->seated(seat_of(client))) return;
  write(Kind::hear, [&](std::string& out) {
    ByteWriter writer(out);
    writer.u64(client);
    writer.u64(number);
    put(writer, now);
    writer.raw(word);
  });
  if (membership_->over() && std::holds_alternative<Gone>(*decoded)) note_heard(client);
  membership_->hear(seat_of(client), *decoded, now, number);
  collect();
}

void Office::leave(std::uint64_t client, Departure departure, TimePoint now) {
  if (!membership_->seated(seat_of(client))) return;
  write(Kind::leave, [&](std::string& out) {
    ByteWriter writer(out);
    writer.u64(client);
    put(writer, now);
    writer.u8(static_cast<std::uint8_t>(departure));
  });
  membership_->leave(seat_of(client), departure, now);
  collect();
}

// Most ticks do nothing. Heartbeats are not written down, so whose leases have run out is.
TimePoint Office::tick(TimePoint now) {
  const std::vector<Expiry> expired = membership_->expired(now);
  const TimePoint next = membership_->tick(now, expired);
  if (!membership_->ticked()) return next;
  write(Kind::tick, [&](std::string& out) {
    ByteWriter writer(out);
    put(writer, now);
    for (const Expiry& one : expired) {
      writer.u64(one.seat);
      put(writer, one.last_heard);
    }
  });
  collect();
  return next;
}

void Office::heard_the_end(std::uint64_t client) {
  write(Kind::heard_the_end, [&](std::string& out) { ByteWriter(out).u64(client); });
  note_heard(client);
}

void Office::note_heard(std::uint64_t client) {
  const std::uint64_t incarnation = incarnation_of(client);
  heard_.insert(incarnation);
  if (unheard_) unheard_->erase(incarnation);
}

std::uint64_t Office::incarnation_of(std::uint64_t client) const {
  return membership_->incarnation_of(seat_of(client));
}

// Nobody comes or is lost any more.
std::size_t Office::unheard() {
  if (!unheard_) {
    unheard_.emplace();
    for (const std::uint64_t incarnation : membership_->incarnations()) {
      if (!heard_.contains(incarnation)) unheard_->insert(incarnation);
    }
  }
  return unheard_->size();
}

std::vector<std::uint64_t> Office::take_lost() { return std::exchange(lost_, {}); }

// --- what they are told -----------------------------------------------------------------------------------

std::uint64_t Office::first_event_of(std::uint64_t incarnation) const {
  const auto found = first_events_.find(incarnation);
  return found == first_events_.end() ? next_event_ : found->second;
}

bool Office::forms() const {
  return std::any_of(queue_.begin(), queue_.end(),
                     [](const News& news) { return std::holds_alternative<Forming>(news); });
}

const Office::Event& Office::tell_next(TimePoint now) {
  const News news = std::move(queue_.front());
  queue_.pop_front();
  return add_event(encode(news), !std::holds_alternative<Waiting>(news), now);
}

const Office::Event& Office::tell(const News& news, TimePoint now) {
  return add_event(encode(news), false, now);
}

const Office::Event& Office::add_event(std::string bytes, bool from_queue, TimePoint now) {
  write(Kind::event, [&](std::string& out) {
    ByteWriter writer(out);
    put(writer, now);
    writer.u8(from_queue ? 1 : 0);
    writer.raw(bytes);
  });
  if (is_forming(bytes)) formed_at_ = next_event_ + 1;
  events_.push_back({next_event_++, std::move(bytes), now});
  return events_.back();
}

// --- another process --------------------------------------------------------------------------------------

void Office::read(std::string_view record) {
  const Kind kind{static_cast<std::uint8_t>(record.front())};
  const std::string_view fields = record.substr(1);
  ByteReader in(fields);
  switch (kind) {
    case Kind::found:
      return found(take_time(in));
    case Kind::inherit:
      return read_inheritance(fields);
    case Kind::close:
      return close();
    case Kind::join: {
      const std::uint64_t client = in.u64();
      const TimePoint now = take_time(in);
      join(client, fields.substr(16), now);
      return;
    }
    case Kind::hear: {
      const std::uint64_t client = in.u64(), number = in.u64();
      const TimePoint now = take_time(in);
      return hear(client, fields.substr(24), number, now);
    }
    case Kind::leave: {
      const std::uint64_t client = in.u64();
      const TimePoint now = take_time(in);
      return leave(client, Departure{in.u8()}, now);
    }
    case Kind::tick: {
      const TimePoint now = take_time(in);
      std::vector<Expiry> expired;
      for (std::size_t left = (fields.size() - 8) / 16; left > 0; --left) {
        const SeatId seat = in.u64();
        expired.push_back({seat, take_time(in)});
      }
      membership_->tick(now, expired);
      return collect();
    }
    case Kind::heard_the_end:
      return heard_the_end(in.u64());
    case Kind::successors:
      return set_successors(in.u8() == 1);
    case Kind::council: {
      KeptCouncil council;
      council.changed_at = in.u64();
      council.alone = in.u8() == 1;
      auto members = decode_news(in.text(kAnyBytes));
      if (members) council.members = std::move(std::get<Leadership>(*members).council);
      return set_council(council);
    }
    case Kind::event: {
      const TimePoint now = take_time(in);
      const bool from_queue = in.u8() == 1;
      if (from_queue && !queue_.empty()) queue_.pop_front();
      add_event(std::string(fields.substr(9)), from_queue, now);
      return;
    }
    case Kind::taken_up:
      ++generation_;
      if (membership_) membership_->lose_all_connections(take_time(in));
      if (membership_) collect();
      return;
  }
}

}  // namespace dtrain::rendezvous
