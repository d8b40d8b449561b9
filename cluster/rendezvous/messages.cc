// u8 kind, then the fields in the order of protocol.h; integers as in the store's frames.
#include "cluster/rendezvous/messages.h"

#include <algorithm>
#include <chrono>

#include "cluster/detect/nodelist.h"
#include "cluster/rendezvous/node_runs.h"
#include "cluster/store/store_wire.h"

namespace dtrain::rendezvous {
namespace {

using wire::ByteReader;

constexpr std::size_t kFirstLines = 24;  // of too many
constexpr std::uint32_t kMaxFailureKind = static_cast<std::uint32_t>(Failure::Kind::unusable);

// Places in News; the first byte of its encoding.
constexpr std::uint8_t kForming = 1, kStart = 2, kStop = 3, kOver = 4, kSnapshot = 7;
static_assert(std::is_same_v<std::variant_alternative_t<kSnapshot, News>, Snapshot>);
static_assert(std::is_same_v<std::variant_alternative_t<kForming, News>, Forming>);
static_assert(std::is_same_v<std::variant_alternative_t<kStart, News>, Start>);
static_assert(std::is_same_v<std::variant_alternative_t<kStop, News>, Stop>);
static_assert(std::is_same_v<std::variant_alternative_t<kOver, News>, Over>);
// Of Forming and Start: kind, round, then `self`.
constexpr std::size_t kSelfAt = 5;

class Writer : public wire::ByteWriter {
 public:
  using ByteWriter::ByteWriter;
  void i32(int value) { u32(static_cast<std::uint32_t>(value)); }
  void i64(std::int64_t value) { u64(static_cast<std::uint64_t>(value)); }
  void flag(bool value) { u8(value ? 1 : 0); }
  void cut(std::string_view value, std::size_t max_bytes) { text(value.substr(0, max_bytes)); }
  void maybe(std::optional<int> value) {
    flag(value.has_value());
    if (value) i32(*value);
  }
  void lines(const std::vector<std::string>& all) {
    const std::size_t left_out = all.size() > kMaxLines ? all.size() - kMaxLines + 1 : 0;
    u32(static_cast<std::uint32_t>(std::min(all.size(), kMaxLines)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (left_out > 0 && i == kFirstLines) {
        text("…");
        i += left_out;
      }
      cut(all[i], kMaxLineBytes);
    }
  }
  void endpoint(const Endpoint& value) {
    cut(value.host, kMaxHostBytes);
    u16(value.port);
  }
  void pairs(const std::vector<std::pair<int, int>>& all) {
    u32(static_cast<std::uint32_t>(all.size()));
    for (const auto& [first, second] : all) {
      i32(first);
      i32(second);
    }
  }
  void failure(const Failure& value) {
    u8(static_cast<std::uint8_t>(value.kind));
    i32(value.node_rank);
    cut(value.host, kMaxHostBytes);
    i32(value.rank);
    i32(value.exit_code);
    flag(value.consequence);
    lines(value.lines);
  }
  void maybe(const std::optional<Failure>& value) {
    flag(value.has_value());
    if (value) failure(*value);
  }
};

// As ByteReader: what is wrong shows in good() at the end.
class Reader : public ByteReader {
 public:
  using ByteReader::ByteReader;
  int i32() { return static_cast<int>(u32()); }
  std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  bool flag() { return below(2) == 1; }
  std::uint8_t below(std::uint32_t end) {
    const std::uint8_t value = u8();
    well_ = well_ && value < end;
    return value;
  }
  std::string string(std::size_t max_bytes) { return std::string(text(max_bytes)); }
  std::optional<int> maybe_int() { return flag() ? std::optional<int>(i32()) : std::nullopt; }
  std::vector<std::string> lines() {
    std::vector<std::string> all;
    const std::uint32_t count = u32();
    well_ = well_ && count <= kMaxLines;
    for (std::uint32_t i = 0; i < count && well(); ++i) all.push_back(string(kMaxLineBytes));
    return all;
  }
  /// Of more than that nothing is read.
  std::uint32_t count(std::size_t most) {
    const std::uint32_t value = u32();
    well_ = well_ && value <= most;
    return value;
  }
  Endpoint endpoint() {
    Endpoint value;
    value.host = string(kMaxHostBytes);
    value.port = u16();
    return value;
  }
  std::vector<std::pair<int, int>> pairs() {
    std::vector<std::pair<int, int>> all;
    const std::uint32_t pairs = count(2 * kMaxNodes);
    for (std::uint32_t i = 0; i < pairs && well(); ++i) {
      const int first = i32();
      all.emplace_back(first, i32());
    }
    return all;
  }
  Failure failure() {
    Failure value;
    value.kind = static_cast<Failure::Kind>(below(kMaxFailureKind + 1));
    value.node_rank = i32();
    value.host = string(kMaxHostBytes);
    value.rank = i32();
    value.exit_code = i32();
    value.consequence = flag();
    value.lines = lines();
    return value;
  }
  std::optional<Failure> maybe_failure() { return flag() ? std::optional<Failure>(failure()) : std::nullopt; }
  std::vector<RoundNode> nodes() {
    auto taken = take_nodes(*this);
    well_ = well_ && taken;
    return taken ? std::move(*taken) : std::vector<RoundNode>();
  }
  bool well() const { return well_ && good(); }
  bool complete() const { return well_ && finished(); }

 private:
  bool well_ = true;
};

void put(Writer& out, std::string&, const Waiting& news) { out.lines(news.lines); }
void put(Writer& out, std::string& bytes, const Forming& news) {
  out.i32(news.round);
  out.i32(news.self);
  out.i32(news.restart_count);
  out.pairs(news.displaced);
  put_nodes(bytes, news.nodes);
}
void put(Writer& out, std::string& bytes, const Start& news) {
  out.i32(news.round);
  out.i32(news.self);
  out.i32(news.restart_count);
  put_nodes(bytes, news.nodes);
  out.u16(news.master_port);
  out.i64(news.launch_time_ns);
  out.cut(news.run_id, kMaxMatchValueBytes);
  out.cut(news.master_addr, kMaxHostBytes);
}
void put(Writer& out, std::string&, const Stop& news) {
  out.i32(news.round);
  out.flag(news.again);
  out.flag(news.checkpoint_first);
  out.maybe(news.signal);
  out.flag(news.at_once);
  out.maybe(news.failure);
}
void put(Writer& out, std::string&, const Over& news) {
  out.i32(news.exit_code);
  out.maybe(news.failure);
}
void put(Writer& out, std::string&, const Refused& news) {
  out.cut(news.why, kMaxReasonBytes);
  out.flag(news.unreachable);
}
void put(Writer& out, std::string&, const LeaseLost& news) { out.cut(news.why, kMaxReasonBytes); }

void put(Writer& out, std::string& bytes, const Snapshot& news) {
  out.u64(news.job);
  out.u32(static_cast<std::uint32_t>(std::min(news.voters.size(), kMaxVoters)));
  for (std::size_t i = 0; i < std::min(news.voters.size(), kMaxVoters); ++i) {
    out.u64(news.voters[i].instance_id);
    out.cut(news.voters[i].host, kMaxHostBytes);
    out.endpoint(news.voters[i].at);
  }
  out.i32(news.restart_count);
  out.i64(news.launch_time_ns);
  out.i32(news.round);
  out.pairs(news.displaced);
  put_nodes(bytes, news.nodes);
}

void put(Writer& out, std::string&, const Ready& word) {
  out.i32(word.round);
  out.u16(word.master_port);
  out.cut(word.master_addr, kMaxHostBytes);
}
void put(Writer& out, std::string&, const Failed& word) {
  out.i32(word.round);
  out.i64(word.age.count());
  out.failure(word.failure);
}
void put(Writer& out, std::string&, const Ended& word) {
  out.i32(word.round);
  out.i32(word.exit_code);
}
void put(Writer& out, std::string&, const Signalled& word) { out.i32(word.signal); }
void put(Writer&, std::string&, const Gone&) {}

template <class Variant>
std::string encode_variant(const Variant& message) {
  std::string bytes;
  Writer out(bytes);
  out.u8(static_cast<std::uint8_t>(message.index()));
  std::visit([&](const auto& one) { put(out, bytes, one); }, message);
  return bytes;
}

Forming take_forming(Reader& in) {
  Forming forming;
  forming.round = in.i32();
  forming.self = in.i32();
  forming.restart_count = in.i32();
  forming.displaced = in.pairs();
  forming.nodes = in.nodes();
  return forming;
}

Start take_start(Reader& in) {
  Start start;
  start.round = in.i32();
  start.self = in.i32();
  start.restart_count = in.i32();
  start.nodes = in.nodes();
  start.master_port = in.u16();
  start.launch_time_ns = in.i64();
  start.run_id = in.string(kMaxMatchValueBytes);
  start.master_addr = in.string(kMaxHostBytes);
  return start;
}

Snapshot take_snapshot(Reader& in) {
  Snapshot news;
  news.job = in.u64();
  const std::uint32_t eligible = in.count(kMaxVoters);
  for (std::uint32_t i = 0; i < eligible && in.well(); ++i) {
    Voter one;
    one.instance_id = in.u64();
    one.host = in.string(kMaxHostBytes);
    one.at = in.endpoint();
    news.voters.push_back(std::move(one));
  }
  news.restart_count = in.i32();
  news.launch_time_ns = in.i64();
  news.round = in.i32();
  news.displaced = in.pairs();
  news.nodes = in.nodes();
  return news;
}

// Braced initialisers are evaluated in the order of the fields.
News take_news(Reader& in) {
  switch (in.below(std::variant_size_v<News>)) {
    case 0:
      return Waiting{in.lines()};
    case kForming:
      return take_forming(in);
    case kStart:
      return take_start(in);
    case kStop:
      return Stop{in.i32(), in.flag(), in.flag(), in.maybe_int(), in.flag(), in.maybe_failure()};
    case kOver:
      return Over{in.i32(), in.maybe_failure()};
    case 5:
      return Refused{in.string(kMaxReasonBytes), in.flag()};
    case 6:
      return LeaseLost{in.string(kMaxReasonBytes)};
    default:
      return take_snapshot(in);
  }
}

Word take_word(Reader& in) {
  switch (in.below(std::variant_size_v<Word>)) {
    case 0:
      return Ready{in.i32(), in.u16(), in.string(kMaxHostBytes)};
    case 1:
      return Failed{in.i32(), Duration(in.i64()), in.failure()};
    case 2:
      return Ended{in.i32(), in.i32()};
    case 3:
      return Signalled{in.i32()};
    default:
      return Gone{};
  }
}

}  // namespace

std::string encode(const News& news) { return encode_variant(news); }
std::string encode(const Word& word) { return encode_variant(word); }

std::string encode(const NodeOffer& offer) {
  std::string bytes;
  Writer out(bytes);
  out.maybe(offer.node_rank);
  out.cut(offer.host, kMaxHostBytes);
  out.cut(offer.address, kMaxAddressBytes);
  out.i32(offer.nproc);
  const std::size_t matches = std::min(offer.must_match.size(), kMaxMatches);
  out.u32(static_cast<std::uint32_t>(matches));
  for (std::size_t i = 0; i < matches; ++i) {
    out.cut(offer.must_match[i].first, kMaxMatchKeyBytes);
    out.cut(offer.must_match[i].second, kMaxMatchValueBytes);
  }
  out.u64(offer.instance_id);
  out.flag(offer.resumes);
  out.endpoint(offer.standby);
  out.u64(offer.job);
  out.u64(offer.term);
  out.i32(offer.place);
  out.i32(offer.round);
  out.flag(offer.at_work);
  out.maybe(offer.ended);
  return bytes;
}

std::string encode(const Admission& admission) {
  std::string bytes;
  Writer out(bytes);
  out.i32(admission.node_rank);
  out.cut(admission.refused, kMaxReasonBytes);
  out.lines(admission.lines);
  out.flag(admission.elsewhere);
  out.endpoint(admission.leader);
  out.flag(admission.as_before);
  out.u64(admission.term);
  out.text(encode(admission.grant));
  return bytes;
}

std::optional<News> decode_news(std::string_view bytes) {
  Reader in(bytes);
  News news = take_news(in);
  if (!in.complete()) return std::nullopt;
  return news;
}

std::optional<Word> decode_word(std::string_view bytes) {
  Reader in(bytes);
  Word word = take_word(in);
  if (!in.complete()) return std::nullopt;
  return word;
}

std::optional<NodeOffer> decode_offer(std::string_view bytes) {
  Reader in(bytes);
  NodeOffer offer;
  offer.node_rank = in.maybe_int();
  offer.host = in.string(kMaxHostBytes);
  offer.address = in.string(kMaxAddressBytes);
  offer.nproc = in.i32();
  const std::uint32_t matches = in.u32();
  if (offer.nproc < 1 || offer.nproc > kMaxTasksPerNode || matches > kMaxMatches) return std::nullopt;
  for (std::uint32_t i = 0; i < matches && in.well(); ++i) {
    std::string key = in.string(kMaxMatchKeyBytes);
    offer.must_match.emplace_back(std::move(key), in.string(kMaxMatchValueBytes));
  }
  offer.instance_id = in.u64();
  offer.resumes = in.flag();
  offer.standby = in.endpoint();
  offer.job = in.u64();
  offer.term = in.u64();
  offer.place = in.i32();
  offer.round = in.i32();
  offer.at_work = in.flag();
  offer.ended = in.maybe_int();
  if (!in.complete()) return std::nullopt;
  return offer;
}

std::optional<Admission> decode_admission(std::string_view bytes) {
  Reader in(bytes);
  Admission admission{in.i32(), in.string(kMaxReasonBytes), in.lines()};
  admission.elsewhere = in.flag();
  admission.leader = in.endpoint();
  admission.as_before = in.flag();
  admission.term = in.u64();
  const auto grant = decode_grant(in.text(kMaxGrantBytes));
  if (!grant || !in.complete()) return std::nullopt;
  admission.grant = *grant;
  return admission;
}

std::optional<int> round_of(std::string_view news) {
  Reader in(news);
  const std::uint8_t kind = in.u8();
  const int round = in.i32();
  if (!in.good() || kind < kForming || kind > kStop) return std::nullopt;
  return round;
}

bool is_forming(std::string_view news) noexcept {
  return !news.empty() && static_cast<std::uint8_t>(news[0]) == kForming;
}

bool is_start(std::string_view news) noexcept {
  return !news.empty() && static_cast<std::uint8_t>(news[0]) == kStart;
}

bool is_over(std::string_view news) noexcept {
  return !news.empty() && static_cast<std::uint8_t>(news[0]) == kOver;
}

bool is_snapshot(std::string_view news) noexcept {
  return !news.empty() && static_cast<std::uint8_t>(news[0]) == kSnapshot;
}

std::optional<int> index_in_round(std::string_view forming, int place) {
  if (!is_forming(forming) || forming.size() < kSelfAt + 8) return std::nullopt;
  Reader in(forming.substr(kSelfAt + 8));
  int node_rank = place;
  for (const auto& [from, to] : in.pairs()) {
    if (from == place) node_rank = to;
  }
  if (!in.well() || node_rank < 0) return std::nullopt;
  return find_node(in, node_rank);
}

void set_self(std::string& news, int place) {
  if (news.size() < kSelfAt + 4 || (news[0] != kForming && news[0] != kStart)) return;
  std::string bytes;
  wire::ByteWriter(bytes).u32(static_cast<std::uint32_t>(place));
  news.replace(kSelfAt, bytes.size(), bytes);
}

}  // namespace dtrain::rendezvous
