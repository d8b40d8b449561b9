// Requests out, answers in; sets renew the lease by the time at which they were sent.
#include "cluster/rendezvous/session.h"

#include <fmt/format.h>

#include <utility>

#include "cluster/rendezvous/messages.h"

namespace dtrain::rendezvous {
namespace {

using wire::Op;

constexpr Duration kIdle = std::chrono::hours(1);

}  // namespace

std::string event_key(std::uint64_t number) { return fmt::format("{}event/{}", kPrefix, number); }

std::string join_answer(std::uint64_t first_event, std::string_view admission) {
  std::string bytes;
  wire::ByteWriter writer(bytes);
  writer.u64(first_event);
  writer.raw(admission);
  return bytes;
}

std::string number_word(std::uint64_t number, std::string_view word) {
  std::string bytes;
  wire::ByteWriter writer(bytes);
  writer.u64(number);
  writer.raw(word);
  return bytes;
}

NumberedWord split_word(std::string_view bytes) {
  wire::ByteReader reader(bytes);
  const std::uint64_t number = reader.u64();
  if (!reader.good()) return {};
  return {number, bytes.substr(sizeof number)};
}

Session::Session(wire::FrameReader reader, wire::FrameWriter writer, const NodeOffer& offer,
                 SessionTimes times, TimePoint now)
    : reader_(std::move(reader)),
      writer_(std::move(writer)),
      offer_(offer),
      times_(times),
      lease_from_(now),
      next_beat_(now + times.beat) {
  join_request_ = next_request_;
  set(kJoinKey, encode(offer), now);
}

std::uint64_t Session::ask(Op op, std::string_view key, std::string value) {
  const wire::Request request{
      .op = op, .id = next_request_++, .keys = {std::string(key)}, .value = std::move(value), .expected = {}};
  writer_.append(out_, wire::encode(request));
  return request.id;
}

void Session::set(std::string_view key, std::string value, TimePoint now) {
  unanswered_.push_back({ask(Op::set, key, std::move(value)), now, {}});
}

void Session::await_event() { event_request_ = ask(Op::get, event_key(next_event_), {}); }

void Session::say(const Word& word, TimePoint now) {
  if (!ended_) say_numbered(number_word(++words_, encode(word)), now);
}

void Session::say_numbered(std::string numbered, TimePoint now) {
  if (interrupted()) {
    unsaid_.push_back(std::move(numbered));
    return;
  }
  set(kWordKey, numbered, now);
  unanswered_.back().word = std::move(numbered);
}

void Session::interrupt(std::string why) {
  if (ended_ || interrupted()) return;
  if (!admitted()) return lose(std::move(why));  // there is no seat to come back to
  cause_ = std::move(why);
  std::deque<std::string> words;
  for (Sent& sent : unanswered_) {
    if (!sent.word.empty()) words.push_back(std::move(sent.word));
  }
  unsaid_ = std::move(words);
  unanswered_.clear();
  out_.clear();
}

void Session::resume(wire::FrameReader reader, wire::FrameWriter writer, TimePoint now) {
  if (!interrupted()) return;
  reader_ = std::move(reader);
  writer_ = std::move(writer);
  cause_.clear();
  offer_.resumes = true;
  join_request_ = next_request_;
  set(kJoinKey, encode(offer_), now);
  event_request_ = 0;
  next_beat_ = now + times_.beat;
  for (std::string& word : std::exchange(unsaid_, {})) say_numbered(std::move(word), now);
}

void Session::lose(std::string why) {
  if (ended_) return;
  ended_ = true;
  news_.push_back(encode(News(LeaseLost{std::move(why)})));
}

void Session::receive(std::string_view bytes, TimePoint now) {
  // Answers that come after the lease has run out are too late.
  tick(now);
  if (ended_) return;
  reader_.feed(bytes);
  std::string_view payload;
  wire::FrameReader::Result result;
  while (!ended_ && (result = reader_.next(payload)) == wire::FrameReader::Result::frame) {
    auto response = wire::decode_response(payload);
    if (!response) return lose("the rendezvous sent a malformed response");
    answered(*response);
  }
  if (!ended_ && result == wire::FrameReader::Result::bad)
    lose(fmt::format("the rendezvous sent {}", reader_.reason()));
}

void Session::answered(wire::Response& response) {
  if (!unanswered_.empty() && unanswered_.front().request == response.id) {
    lease_from_ = unanswered_.front().at;
    unanswered_.pop_front();
    if (response.id == join_request_) take_admission(response.value);
  } else if (response.id == event_request_ && response.status == wire::Status::ok) {
    ++next_event_;
    hear(std::move(response.value));
    if (!ended_) await_event();
  } else {
    lose("the rendezvous sent an answer to no question");
  }
}

void Session::take_admission(std::string_view answer) {
  wire::ByteReader reader(answer);
  const std::uint64_t first_event = reader.u64();
  const auto admission = decode_admission(answer.substr(std::min<std::size_t>(answer.size(), 8)));
  if (!reader.good() || !admission) return lose("the rendezvous sent a malformed admission");
  if (!admission->refused.empty() && offer_.resumes) return lose(admission->refused);
  if (!admission->refused.empty()) {
    ended_ = true;
    news_.push_back(encode(News(Refused{admission->refused})));
    return;
  }
  node_rank_ = admission->node_rank;
  if (!offer_.resumes) next_event_ = first_event;
  if (!admission->lines.empty()) news_.push_back(encode(News(Waiting{admission->lines})));
  await_event();
}

// What concerns a round is only for those in it.
void Session::hear(std::string news) {
  const auto round = round_of(news);
  if (round && is_forming(news)) {
    round_ = *round;
    place_ = place_in_round(news, node_rank_);
  }
  if (round && (!place_ || *round != round_)) return;
  if (round) set_self(news, *place_);
  ended_ = is_over(news);
  news_.push_back(std::move(news));
}

std::optional<std::string> Session::take() {
  if (news_.empty()) return std::nullopt;
  std::string news = std::move(news_.front());
  news_.pop_front();
  return news;
}

TimePoint Session::tick(TimePoint now) {
  if (ended_) return now + kIdle;
  const TimePoint lease_end = lease_from_ + times_.lease;
  if (now >= lease_end) {
    // It may hear us even if we do not hear it.
    const std::string cause = interrupted() ? "; " + cause_ : "";
    if (!interrupted()) set(kSilenceKey, {}, now);
    lose(fmt::format("no answer from the rendezvous for {:.1f} s{}",
                     std::chrono::duration<double>(now - lease_from_).count(), cause));
    return now + kIdle;
  }
  if (interrupted()) return lease_end;
  if (now >= next_beat_) {
    set(kBeatKey, {}, now);
    next_beat_ = now + times_.beat;
  }
  return std::min(next_beat_, lease_end);
}

}  // namespace dtrain::rendezvous
