// Requests out, answers in; sets renew the lease by the time at which they were sent.
#include "cluster/rendezvous/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cluster/net/bytes.h"
#include "cluster/rendezvous/messages.h"

namespace dtrain::rendezvous {
namespace {

using wire::Op;

constexpr Duration kNothingDue = std::chrono::hours(1);
// For a new leader to be followed by enough.
constexpr Duration kFirstGrant = std::chrono::seconds(2);
// All leases depend on how fresh the word of the voters' majority is.
constexpr int kVoterBeats = 4;
constexpr Duration kSoon = std::chrono::milliseconds(30);
constexpr char kDeserted[] = "this launcher has voted for another leader";

}  // namespace

std::string event_key(std::uint64_t number) { return fmt::format("{}event/{}", kPrefix, number); }

std::string join_answer(std::uint64_t first_event, std::string_view admission) {
  std::string bytes;
  wire::ByteWriter writer(bytes);
  writer.u64(first_event);
  writer.raw(admission);
  return bytes;
}

std::string number_event(std::uint64_t number, std::string_view event) {
  std::string bytes;
  wire::ByteWriter writer(bytes);
  writer.u64(number);
  writer.raw(event);
  return bytes;
}

NumberedEvent split_event(std::string_view bytes) {
  wire::ByteReader reader(bytes);
  const std::uint64_t number = reader.u64();
  if (!reader.good()) return {};
  return {number, bytes.substr(sizeof number)};
}

Session::Session(const NodeOffer& offer, SessionTimes times, TimePoint now, Leadership* leadership)
    : offer_(offer),
      times_(times),
      leadership_(leadership),
      lease_from_(now),
      lease_ends_(now + times.lease),
      next_beat_(now + times.beat),
      unadmitted_since_(now) {
  join_request_ = next_request_;
  set(kJoinKey, encode(offer), now);
}

std::uint64_t Session::ask(Op op, std::string_view key, std::string value) {
  const wire::Request request{
      .op = op, .id = next_request_++, .keys = {std::string(key)}, .value = std::move(value), .expected = {}};
  out_.push_back(wire::encode(request));
  return request.id;
}

void Session::set(std::string_view key, std::string value, TimePoint now) {
  unanswered_.push_back({ask(Op::set, key, std::move(value)), now, {}});
}

void Session::await_event() { event_request_ = ask(Op::get, event_key(next_event_), {}); }

void Session::say(const NodeEvent& event, TimePoint now) {
  if (const auto* ended = std::get_if<Ended>(&event); ended != nullptr && ended->round == round_) {
    at_work_ = false;
    ended_with_ = ended->exit_code;
  }
  ++own_events_;
  if (!ended_) say_numbered(number_event(own_events_, encode(event)), now);
}

void Session::say_numbered(std::string numbered, TimePoint now) {
  if (interrupted()) {
    unsaid_.push_back(std::move(numbered));
    return;
  }
  set(kNodeEventKey, numbered, now);
  unanswered_.back().event = std::move(numbered);
}

void Session::interrupt(std::string why) {
  if (ended_ || interrupted()) return;
  put_aside(std::move(why));
  out_.clear();
}

void Session::hang_up(std::string why, TimePoint now) {
  if (ended_ || interrupted()) return;
  interrupt(std::move(why));
  if (!hung_up_until_) hung_up_until_ = now + hang_up_patience(times_.lease);
}

void Session::put_aside(std::string why) {
  cause_ = std::move(why);
  std::deque<std::string> words;
  for (Sent& sent : unanswered_) {
    if (!sent.event.empty()) words.push_back(std::move(sent.event));
  }
  unsaid_ = std::move(words);
  unanswered_.clear();
}

void Session::resume(TimePoint now) {
  if (!interrupted()) return;
  offer_.resumes = admitted();
  offer_.job = known_.job;
  offer_.term = leadership_ == nullptr ? 0 : leadership_->known_term();
  offer_.place = place_;
  offer_.round = index_ ? round_ : -1;
  offer_.at_work = at_work_;
  offer_.ended = ended_with_;
  connected_again(now);
  for (std::string& event : std::exchange(unsaid_, {})) say_numbered(std::move(event), now);
}

void Session::rejoin(TimePoint now) {
  if (!interrupted()) return;
  if (admitted()) unadmitted_since_ = now;
  place_ = -1;
  known_ = {};
  if (leadership_ != nullptr) leadership_->forget();
  offer_.resumes = false;
  lease_from_ = now;
  lease_ends_ = now + times_.lease;
  connected_again(now);
}

void Session::connected_again(TimePoint now) {
  cause_.clear();
  out_.clear();
  elsewhere_.reset();
  joining_ = true;
  patience_ = now + kFirstGrant;
  join_request_ = next_request_;
  set(kJoinKey, encode(offer_), now);
  event_request_ = 0;
  next_beat_ = now + times_.beat;
}

void Session::lose(std::string why) {
  if (ended_) return;
  ended_ = true;
  events_.push_back(encode(LeaderEvent(LeaseLost{std::move(why)})));
}

void Session::receive(std::string_view message, TimePoint now) {
  // Answers that come after the lease has run out are too late.
  tick(now);
  if (ended_ || interrupted()) return;
  auto response = wire::decode_response(message);
  response ? answered(*response, now) : lose("the rendezvous sent a malformed response");
}

void Session::answered(wire::Response& response, TimePoint now) {
  if (!unanswered_.empty() && unanswered_.front().request == response.id) {
    const TimePoint asked = unanswered_.front().at;
    unanswered_.pop_front();
    if (response.id == join_request_) return take_admission(response.value, asked, now);
    const auto grant = decode_grant(response.value);
    grant ? take_grant(*grant, asked, now) : lose("the rendezvous sent a malformed answer");
  } else if (response.id == event_request_ && response.status == wire::Status::ok) {
    ++next_event_;
    hear(std::move(response.value), now);
    if (!ended_) await_event();
  } else {
    lose("the rendezvous sent an answer without a request");
  }
}

// By the time at which the question was sent, which is before the leader looked at its own.
void Session::take_grant(const LeaseGrant& grant, TimePoint asked, TimePoint now) {
  TimePoint ends = lease_ends_;
  if (grant.lasts > Duration::zero()) ends = std::max(ends, asked + std::min(times_.lease, grant.lasts));
  if (leadership_ != nullptr && !leadership_->granted(grant, ends, now)) return interrupt(kDeserted);
  lease_from_ = asked;
  lease_ends_ = ends;
  if (grant.lasts > Duration::zero()) {
    orphaned_until_.reset();
  } else {
    // A leader whom too few follow yet must hear soon that this one does.
    next_beat_ = std::min(next_beat_, asked + kSoon);
  }
}

void Session::take_admission(std::string_view answer, TimePoint asked, TimePoint now) {
  joining_ = false;
  wire::ByteReader reader(answer);
  const std::uint64_t first_event = reader.u64();
  const auto admission = decode_admission(answer.substr(std::min<std::size_t>(answer.size(), 8)));
  if (!reader.good() || !admission) return lose("the rendezvous sent a malformed admission");
  if (admission->elsewhere) {
    if (offer_.resumes && round_ >= 0 && known_.voters.empty())
      return lose("the rendezvous that led this job is gone, and another one has started in its place");
    elsewhere_ = admission->leader;
    return put_aside(admission->leader.port == 0
                         ? "the job has no leader now"
                         : fmt::format("the leader was reported at {}", admission->leader.text()));
  }
  if (!admission->refused.empty() && offer_.resumes) return lose(admission->refused);
  if (!admission->refused.empty()) {
    ended_ = true;
    events_.push_back(encode(LeaderEvent(Refused{admission->refused})));
    return;
  }
  const auto followed =
      leadership_ == nullptr ? Leadership::Followed::as_before : leadership_->follow(admission->term);
  // The time to find another leader is not renewed by one who must not be followed.
  if (followed == Leadership::Followed::refused) return put_aside(kDeserted);
  const bool anew = followed == Leadership::Followed::anew;
  hung_up_until_.reset();
  place_ = admission->node_rank;
  if (anew && !admission->as_before) {
    round_ = -1;
    index_.reset();
    ended_with_.reset();
  }
  if (!offer_.resumes || anew) next_event_ = first_event;
  take_grant(admission->grant, asked, now);
  if (interrupted()) return;
  if (!admission->lines.empty()) events_.push_back(encode(LeaderEvent(Waiting{admission->lines})));
  await_event();
}

// What concerns a round is only for those in it.
void Session::hear(std::string event, TimePoint now) {
  if (leadership_ != nullptr) remember(event, now);
  if (is_snapshot(event) || (is_kept_out(event) && hear_own_exclusion(event))) return;
  const auto round = round_of(event);
  if (round && is_forming(event)) {
    round_ = *round;
    index_ = index_in_round(event, place_);
    at_work_ = false;
    ended_with_.reset();
  }
  if (round && (!index_ || *round != round_)) return;
  if (round) set_self(event, *index_);
  at_work_ = at_work_ || is_start(event);
  if (is_over(event)) {
    set(kHeardKey, {}, now);
    ended_ = true;
  }
  events_.push_back(std::move(event));
}

// Everybody is told who is kept out; to that one itself it is the end.
bool Session::hear_own_exclusion(const std::string& event) {
  const auto decoded = decode_leader_event(event);
  const auto* kept = decoded ? std::get_if<KeptOut>(&*decoded) : nullptr;
  if (kept == nullptr || kept->place != place_) return false;
  ended_ = true;
  events_.push_back(encode(LeaderEvent(Refused{kept->why})));
  return true;
}

// What a successor would have to know. That it is known here is told at once.
void Session::remember(const std::string& event, TimePoint now) {
  const bool snapshot = is_snapshot(event), forming = is_forming(event);
  std::optional<LeaderEvent> piece;
  if (snapshot || forming) {
    piece = decode_leader_event(event);
    if (!piece) return lose("the rendezvous sent an event that cannot be decoded");
  }
  if (snapshot) {
    known_ = std::move(std::get<Snapshot>(*piece));
  } else if (forming) {
    auto& formed = std::get<Forming>(*piece);
    known_.round = formed.round;
    known_.restart_count = formed.restart_count;
    known_.nodes = std::move(formed.nodes);
    known_.displaced = std::move(formed.displaced);
  }
  leadership_->hear(next_event_, known_.voters);
  if (!piece) return;
  votes_ = std::any_of(known_.voters.begin(), known_.voters.end(),
                       [&](const Voter& one) { return one.instance_id == offer_.instance_id; });
  if (votes_) beat(now);
}

void Session::beat(TimePoint now) {
  if (hushed_) return;
  set(kBeatKey, leadership_ == nullptr ? std::string() : leadership_->ack(), now);
  next_beat_ = now + (votes_ ? times_.beat / kVoterBeats : times_.beat);
}

std::optional<std::string> Session::take() {
  if (events_.empty()) return std::nullopt;
  std::string event = std::move(events_.front());
  events_.pop_front();
  return event;
}

// Each place that it is sent on to renews the lease of one who has nothing at work yet.
void Session::give_up_joining(TimePoint now) {
  ended_ = true;
  const double waited = std::chrono::duration<double>(now - unadmitted_since_).count();
  events_.push_back(encode(
      LeaderEvent(Refused{fmt::format("after {:.0f} s: found no launcher that leads the job ({}), so every "
                                      "copy of its state is lost; start dtrain-launch again on every node",
                                      waited, cause_),
                          true})));
}

TimePoint Session::tick(TimePoint now) {
  if (ended_ || hushed_) return now + kNothingDue;
  if (leadership_ != nullptr && !joining_ && !interrupted() && leadership_->deserted()) interrupt(kDeserted);
  if (interrupted() && !admitted() && now - unadmitted_since_ >= times_.join) give_up_joining(now);
  if (orphaned_until_ && now >= *orphaned_until_)
    lose(fmt::format("its lease has expired, and no other leader was found in {:.0f} s; {}",
                     std::chrono::duration<double>(times_.succession).count(), cause_));
  if (ended_) return now + kNothingDue;
  if (orphaned()) return *orphaned_until_;
  TimePoint lease_end = orphaned_until_ ? patience_ : lease_ends_;
  if (hung_up_until_ && !successors()) lease_end = std::min(lease_end, *hung_up_until_);
  if (now >= lease_end && successors()) {
    if (!orphaned_until_) orphaned_until_ = now + times_.succession;
    if (!interrupted()) {
      set(kSilenceKey, {}, now);  // it may hear us even if we do not hear it
      put_aside("the leader does not answer");
    }
    return now;
  }
  if (now >= lease_end) {
    // It may hear us even if we do not hear it.
    const std::string cause = interrupted() ? "; " + cause_ : "";
    if (!interrupted()) set(kSilenceKey, {}, now);
    lose(fmt::format("no answer from the rendezvous for {:.1f} s{}",
                     std::chrono::duration<double>(now - lease_from_).count(), cause));
    return now + kNothingDue;
  }
  if (interrupted()) return lease_end;
  if (now >= next_beat_) {
    beat(now);
  }
  return std::min(next_beat_, lease_end);
}

}  // namespace dtrain::rendezvous
