// u8 kind, then the fields in the order of protocol.h; integers as in the store's frames.
#include "cluster/rendezvous/messages.h"

#include "cluster/detect/nodelist.h"
#include "cluster/rendezvous/node_runs.h"
#include "cluster/store/fields.h"

namespace dtrain::rendezvous {
namespace {

constexpr std::size_t kFirstLines = 24;  // of too many
constexpr unsigned kFailureKinds = static_cast<unsigned>(Failure::Kind::unusable) + 1;

// Places in LeaderEvent; the first byte of its encoding.
constexpr std::uint8_t kForming = 1, kStart = 2, kStop = 3, kOver = 4, kSnapshot = 7, kKeptOut = 8;
static_assert(std::is_same_v<std::variant_alternative_t<kSnapshot, LeaderEvent>, Snapshot>);
static_assert(std::is_same_v<std::variant_alternative_t<kKeptOut, LeaderEvent>, KeptOut>);
static_assert(std::is_same_v<std::variant_alternative_t<kForming, LeaderEvent>, Forming>);
static_assert(std::is_same_v<std::variant_alternative_t<kStart, LeaderEvent>, Start>);
static_assert(std::is_same_v<std::variant_alternative_t<kStop, LeaderEvent>, Stop>);
static_assert(std::is_same_v<std::variant_alternative_t<kOver, LeaderEvent>, Over>);
// Of Forming and Start: kind, round, then `self`.
constexpr std::size_t kSelfAt = 5;

constexpr auto kEachLine = [](auto& f, auto& line) { f.text(line, kMaxLineBytes); };

// Of too many the middle goes.
void lines(wire::FieldWriter& out, std::vector<std::string> all) {
  if (all.size() > kMaxLines) {
    const auto first = all.begin() + kFirstLines;
    *first = "…";
    all.erase(first + 1, first + 1 + static_cast<std::ptrdiff_t>(all.size() - kMaxLines));
  }
  out.list(all, kMaxLines, kEachLine);
}
void lines(wire::FieldReader& in, std::vector<std::string>& all) { in.list(all, kMaxLines, kEachLine); }

void nodes(wire::FieldWriter& out, const std::vector<RoundNode>& all) { put_nodes(out.bytes(), all); }
void nodes(wire::FieldReader& in, std::vector<RoundNode>& all) {
  auto taken = take_nodes(in.bytes());
  in.expect(taken.has_value());
  if (taken) all = std::move(*taken);
}

template <class Fields, class Pairs>
void displaced(Fields& f, Pairs& pairs) {
  f.list(pairs, 2 * kMaxNodes, [](auto& each, auto& pair) { each(pair.first, pair.second); });
}

}  // namespace

template <class Fields>
void describe(Fields& f, typename Fields::template Of<Failure>& failure) {
  f.below(failure.kind, kFailureKinds);
  f(failure.node_rank);
  f.text(failure.host, wire::kMaxHostBytes);
  f(failure.rank, failure.exit_code, failure.consequence);
  lines(f, failure.lines);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Voter>& voter) {
  f(voter.instance_id);
  f.text(voter.host, wire::kMaxHostBytes);
  f(voter.at);
}

template <class Fields>
void describe(Fields& f, typename Fields::template Of<Waiting>& event) {
  lines(f, event.lines);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Forming>& event) {
  f(event.round, event.self, event.restart_count);
  displaced(f, event.displaced);
  nodes(f, event.nodes);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Start>& event) {
  f(event.round, event.self, event.restart_count);
  nodes(f, event.nodes);
  f(event.master_port, event.launch_time_ns);
  f.text(event.run_id, kMaxMatchValueBytes);
  f.text(event.master_addr, wire::kMaxHostBytes);
  f(event.examines);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Stop>& event) {
  f(event.round, event.again, event.checkpoint_first, event.signal, event.at_once, event.failure);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Over>& event) {
  f(event.exit_code, event.failure);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Refused>& event) {
  f.text(event.why, kMaxReasonBytes);
  f(event.unreachable);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<LeaseLost>& event) {
  f.text(event.why, kMaxReasonBytes);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Snapshot>& event) {
  f(event.job);
  f.list(event.voters, kMaxVoters, [](auto& each, auto& voter) { each(voter); });
  f(event.restart_count, event.launch_time_ns, event.round, event.best_step, event.stalled_restarts);
  f.list(event.kept_out, kMaxKeptOut, [](auto& each, auto& host) {
    each.text(host.first, wire::kMaxHostBytes);
    each.text(host.second, kMaxLineBytes);
  });
  displaced(f, event.displaced);
  nodes(f, event.nodes);
}

template <class Fields>
void describe(Fields& f, typename Fields::template Of<KeptOut>& event) {
  f(event.place);
  f.text(event.why, kMaxReasonBytes);
}

template <class Fields>
void describe(Fields& f, typename Fields::template Of<Ready>& event) {
  f(event.round, event.master_port);
  f.text(event.master_addr, wire::kMaxHostBytes);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Failed>& event) {
  f(event.round, event.age, event.failure);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Ended>& event) {
  f(event.round, event.exit_code, event.step);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Signalled>& event) {
  f(event.signal);
}
template <class Fields>
void describe(Fields&, typename Fields::template Of<Gone>&) {}

template <class Fields>
void describe(Fields& f, typename Fields::template Of<NodeOffer>& offer) {
  f(offer.node_rank);
  f.text(offer.host, wire::kMaxHostBytes);
  f.text(offer.address, kMaxAddressBytes);
  f(offer.nproc);
  f.list(offer.must_match, kMaxMatches, [](auto& each, auto& match) {
    each.text(match.first, kMaxMatchKeyBytes);
    each.text(match.second, kMaxMatchValueBytes);
  });
  f(offer.instance_id, offer.resumes, offer.standby, offer.job, offer.term, offer.place, offer.round,
    offer.at_work, offer.ended);
}
template <class Fields>
void describe(Fields& f, typename Fields::template Of<Admission>& admission, std::string& grant) {
  f(admission.node_rank);
  f.text(admission.refused, kMaxReasonBytes);
  lines(f, admission.lines);
  f(admission.elsewhere, admission.leader, admission.as_before, admission.term);
  f.text(grant, kMaxGrantBytes);
}

namespace {

template <class Variant>
std::string encode_variant(const Variant& message) {
  std::string bytes;
  wire::FieldWriter out(bytes);
  out(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& one) { out(one); }, message);
  return bytes;
}

template <class Variant, std::size_t i = 0>
std::optional<Variant> decode_variant(std::string_view bytes) {
  if constexpr (i < std::variant_size_v<Variant>) {
    if (bytes.empty() || static_cast<std::uint8_t>(bytes.front()) != i)
      return decode_variant<Variant, i + 1>(bytes);
    return wire::read_fields<std::variant_alternative_t<i, Variant>>(bytes.substr(1));
  }
  return std::nullopt;
}

}  // namespace

std::string encode(const LeaderEvent& event) { return encode_variant(event); }
std::string encode(const NodeEvent& event) { return encode_variant(event); }
std::string encode(const NodeOffer& offer) { return wire::write_fields(offer); }

std::string encode(const Admission& admission) {
  std::string bytes, grant = encode(admission.grant);
  wire::FieldWriter out(bytes);
  describe(out, admission, grant);
  return bytes;
}

std::optional<LeaderEvent> decode_leader_event(std::string_view bytes) {
  return decode_variant<LeaderEvent>(bytes);
}
std::optional<NodeEvent> decode_node_event(std::string_view bytes) {
  return decode_variant<NodeEvent>(bytes);
}

std::optional<NodeOffer> decode_offer(std::string_view bytes) {
  auto offer = wire::read_fields<NodeOffer>(bytes);
  return offer && offer->nproc >= 1 && offer->nproc <= kMaxTasksPerNode ? offer : std::nullopt;
}

std::optional<Admission> decode_admission(std::string_view bytes) {
  wire::FieldReader in(bytes);
  Admission admission;
  std::string grant;
  describe(in, admission, grant);
  const auto granted = decode_grant(grant);
  if (!granted || !in.finished()) return std::nullopt;
  admission.grant = *granted;
  return admission;
}

std::optional<int> round_of(std::string_view event) {
  wire::ByteReader in(event);
  const std::uint8_t kind = in.u8();
  const auto round = static_cast<int>(in.u32());
  if (!in.good() || kind < kForming || kind > kStop) return std::nullopt;
  return round;
}

bool is_forming(std::string_view event) noexcept { return event.starts_with(char{kForming}); }
bool is_start(std::string_view event) noexcept { return event.starts_with(char{kStart}); }
bool is_over(std::string_view event) noexcept { return event.starts_with(char{kOver}); }
bool is_snapshot(std::string_view event) noexcept { return event.starts_with(char{kSnapshot}); }
bool is_kept_out(std::string_view event) noexcept { return event.starts_with(char{kKeptOut}); }

std::optional<int> index_in_round(std::string_view forming, int place) {
  if (!is_forming(forming) || forming.size() < kSelfAt + 8) return std::nullopt;
  wire::FieldReader in(forming.substr(kSelfAt + 8));
  std::vector<std::pair<int, int>> all;
  displaced(in, all);
  int node_rank = place;
  for (const auto& [from, to] : all) {
    if (from == place) node_rank = to;
  }
  if (!in.good() || node_rank < 0) return std::nullopt;
  return find_node(in.bytes(), node_rank);
}

void set_self(std::string& event, int place) {
  if (event.size() < kSelfAt + 4 || (!is_forming(event) && !is_start(event))) return;
  std::string bytes;
  wire::ByteWriter(bytes).u32(static_cast<std::uint32_t>(place));
  event.replace(kSelfAt, bytes.size(), bytes);
}

}  // namespace dtrain::rendezvous
