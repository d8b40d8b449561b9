#include "collectives/p2p/notes.h"

#include <sstream>

namespace dtrain::p2p {
namespace {

constexpr std::size_t kRemembered = 16;

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return text;
}

}  // namespace

void Notes::begin(const Call& call) {
  if (call.is_pairwise()) {
    pairwise_ = call;
    return;
  }
  pairwise_.reset();
  if (collectives_.size() == kRemembered) collectives_.pop_front();
  collectives_.push_back(call);
}

std::string Notes::text(int rank) const {
  std::ostringstream out;
  for (const Call& call : collectives_) {
    out << "c " << call.sequence << ' ' << call.fingerprint << ' ' << one_line(call.text()) << '\n';
  }
  if (pairwise_) {
    const bool sends = pairwise_->operation == Operation::send;
    out << "p " << pairwise_->sequence << ' ' << pairwise_->fingerprint << ' '
        << (sends ? rank : pairwise_->root) << ' ' << (sends ? pairwise_->root : rank) << ' '
        << one_line(pairwise_->text()) << '\n';
  }
  return out.str();
}

SeenNotes SeenNotes::parse(std::string_view text) {
  SeenNotes notes;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    char kind = 0;
    SeenCall call;
    fields >> kind >> call.sequence >> call.fingerprint;
    if (kind == 'p') fields >> notes.from >> notes.to;
    fields.ignore(1);
    if (!fields || !std::getline(fields, call.text)) continue;
    if (kind == 'c') notes.collectives.push_back(std::move(call));
    if (kind == 'p') notes.pairwise = std::move(call);
  }
  return notes;
}

std::string SeenNotes::latest() const {
  if (pairwise) return pairwise->text;
  return collectives.empty() ? "nothing yet" : collectives.back().text;
}

std::optional<SeenCall> find_disagreement(const Call& mine, int rank, std::uint64_t collectives,
                                          const SeenNotes& theirs, int peer) {
  if (!mine.is_pairwise()) {
    for (const SeenCall& call : theirs.collectives) {
      if (call.sequence == mine.sequence && call.fingerprint != mine.fingerprint) return call;
    }
    return std::nullopt;
  }
  if (mine.root != peer) return std::nullopt;
  if (!theirs.pairwise) {
    // They wait in a collective that needs us, we wait for a message they can only come to afterwards.
    const bool stuck = theirs.latest_sequence() > collectives;
    return stuck ? std::optional(theirs.collectives.back()) : std::nullopt;
  }
  const bool sends = mine.operation == Operation::send;
  const bool same_message = theirs.from == (sends ? rank : peer) && theirs.to == (sends ? peer : rank) &&
                            theirs.pairwise->sequence == mine.sequence;
  return same_message && theirs.pairwise->fingerprint != mine.fingerprint ? theirs.pairwise : std::nullopt;
}

}  // namespace dtrain::p2p
