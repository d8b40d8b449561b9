#include "collectives/p2p/flight_recorder.h"

#include <sstream>

namespace dtrain::p2p {
namespace {

constexpr std::size_t kRemembered = 16;
constexpr std::size_t kMostRanks = 1U << 20;  // in a record that can be believed

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

void read_counts(std::istringstream& fields, FlightRecord& record) {
  std::size_t ranks = 0;
  if (!(fields >> ranks) || ranks > kMostRanks) return;
  std::vector<std::size_t> sends(ranks), receives(ranks);
  for (std::size_t& count : sends) fields >> count;
  for (std::size_t& count : receives) fields >> count;
  if (!fields) return;
  record.sends = std::move(sends);
  record.receives = std::move(receives);
}

std::optional<RecordedCall> disagreement_in_collective(const Call& mine, int rank, const FlightRecord& theirs,
                                                       int peer) {
  for (const RecordedCall& call : theirs.collectives) {
    if (call.sequence == mine.sequence && call.fingerprint != mine.fingerprint) return call;
  }
  const auto me = static_cast<std::size_t>(rank), them = static_cast<std::size_t>(peer);
  const bool both_there = theirs.latest_sequence() == mine.sequence && theirs.sends.size() > me &&
                          theirs.receives.size() > me && mine.sends.size() > them;
  if (both_there && (mine.sends[them] != theirs.receives[me] || mine.receives[them] != theirs.sends[me]))
    return theirs.collectives.back();
  return std::nullopt;
}

// Whether the message of `peer` is the other end of `mine`, perhaps with something wrong about it.
bool is_same_message(const Call& mine, int rank, const RecordedMessage& theirs, int peer) {
  const bool sends = mine.operation == Operation::send || mine.operation == Operation::offer;
  if (mine.operation == Operation::offer || mine.operation == Operation::receive_any) {
    // An offer about something else may wait its turn; one of the same topic must fit.
    return theirs.topic == topic_of(mine) && theirs.to == (sends ? peer : rank) &&
           (theirs.from == peer) == !sends;
  }
  return !theirs.topic && theirs.from == (sends ? rank : peer) && theirs.to == (sends ? peer : rank) &&
         theirs.sequence == mine.sequence;
}

}  // namespace

void FlightRecorder::record(const Call& call) {
  if (call.is_pairwise()) {
    messages_ = call.operation == Operation::exchange ? call.messages : std::vector<Call>{call};
    return;
  }
  messages_.clear();
  if (collectives_.size() == kRemembered) collectives_.pop_front();
  collectives_.push_back(call);
}

std::string FlightRecorder::dump(int rank, std::uint64_t looks) const {
  std::ostringstream out;
  out << "l " << looks << '\n';
  for (const Call& call : collectives_) {
    out << "c " << call.sequence << ' ' << call.fingerprint << ' ' << one_line(call.text()) << '\n';
  }
  if (!collectives_.empty() && collectives_.back().operation == Operation::all_to_all) {
    const Call& call = collectives_.back();
    out << "x " << call.sends.size();
    for (const std::size_t count : call.sends) out << ' ' << count;
    for (const std::size_t count : call.receives) out << ' ' << count;
    out << '\n';
  }
  for (const Call& call : messages_) {
    const bool sends = call.operation == Operation::send || call.operation == Operation::offer;
    const bool any = call.operation == Operation::offer || call.operation == Operation::receive_any;
    out << (any ? "o " : "p ") << call.sequence << ' ' << call.fingerprint << ' '
        << (sends ? rank : call.root) << ' ' << (sends ? call.root : rank) << ' ';
    if (any) out << topic_of(call) << ' ';
    out << one_line(call.text()) << '\n';
  }
  return out.str();
}

FlightRecord FlightRecord::parse(std::string_view text) {
  FlightRecord record;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    char kind = 0;
    fields >> kind;
    if (kind == 'x') {
      read_counts(fields, record);
      continue;
    }
    if (kind == 'l') {
      fields >> record.looks;
      continue;
    }
    RecordedMessage seen;
    fields >> seen.sequence >> seen.fingerprint;
    if (kind == 'p' || kind == 'o') fields >> seen.from >> seen.to;
    if (kind == 'o') fields >> seen.topic.emplace();
    fields.ignore(1);
    if (!fields || !std::getline(fields, seen.text)) continue;
    if (kind == 'c') record.collectives.push_back(seen);
    if (kind == 'p' || kind == 'o') record.messages.push_back(std::move(seen));
  }
  return record;
}

std::string FlightRecord::latest() const {
  if (messages.size() == 1) return messages.front().text;
  if (!messages.empty())
    return messages.front().text + " and " + std::to_string(messages.size() - 1) + " more messages";
  return collectives.empty() ? "nothing yet" : collectives.back().text;
}

bool waits_for_later_collective(const FlightRecord& theirs, std::uint64_t collectives) {
  return theirs.messages.empty() && theirs.latest_sequence() > collectives;
}

std::optional<RecordedCall> find_disagreement(const Call& mine, int rank, std::uint64_t collectives,
                                              const FlightRecord& theirs, int peer) {
  if (!mine.is_pairwise()) return disagreement_in_collective(mine, rank, theirs, peer);
  if (mine.operation == Operation::exchange) {
    for (const Call& message : mine.messages) {
      if (auto found = find_disagreement(message, rank, collectives, theirs, peer)) return found;
    }
    return std::nullopt;
  }
  // Who takes from any rank may be served by another one.
  const bool from_any = mine.operation == Operation::receive_any;
  if (!from_any && mine.root != peer) return std::nullopt;
  // They wait in a collective that needs us, we wait for a message they can only come to afterwards.
  if (!from_any && waits_for_later_collective(theirs, collectives)) return theirs.collectives.back();
  for (const RecordedMessage& message : theirs.messages) {
    if (is_same_message(mine, rank, message, peer) && message.fingerprint != mine.fingerprint) return message;
  }
  return std::nullopt;
}

}  // namespace dtrain::p2p
