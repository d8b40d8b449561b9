#include "tests/fuzz/targets_server.h"

#include <algorithm>
#include <map>
#include <set>

#include "parallel/server/table.h"
#include "tests/fuzz/require.h"

namespace dtrain::fuzz {
namespace {

using namespace server;  // NOLINT: messages, by their names

constexpr int kWorkers = 3;
constexpr std::int64_t kBound = 1;

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

void envelope(std::span<const std::byte> bytes, bool answer) {
  if (bytes.size() < kEnvelopeBytes) return;
  const auto head = decode_envelope(bytes.first(kEnvelopeBytes), answer ? kLastStatus : kLastOp);
  if (!head) return;
  const auto again = encode(*head);
  require(std::equal(again.begin(), again.end(), bytes.begin()), "an envelope has one encoding");
  const auto rest = bytes.subspan(kEnvelopeBytes);
  if (rest.size() < head->preface_bytes()) return;
  Message message{*head};
  decode_preface(rest.first(head->preface_bytes()), message);
  const auto preface = encode_preface(message);
  require(preface.size() == head->preface_bytes() && std::equal(preface.begin(), preface.end(), rest.begin()),
          "keys and text have one encoding");
}

/// A request made of four bytes; some of them make sense.
Message request(std::string_view how, std::uint64_t id) {
  const auto number = [&](std::size_t i) { return static_cast<unsigned char>(how[i]); };
  Message message;
  message.head.kind = static_cast<std::uint8_t>(1 + number(1) % static_cast<int>(kLastOp));
  message.head.id = id;
  message.head.number = static_cast<std::int64_t>(number(2) % 4) - 1;
  message.head.rate = 0.5;
  if (message.op() == Op::init) {
    message.text = to_text(TensorMeta{number(2) % 2 == 0 ? "a" : "b", number(3) % 12, {number(3) % 3, 2}});
    message.payload.resize(number(2) % 5 == 0 ? 0 : std::size_t{8} * (number(3) % 3));
  } else {
    for (int i = 0; i < number(2) % 3; ++i) message.keys.push_back(number(3) % 3U);
    message.payload.resize(std::size_t{8} * (number(2) % 3) * (1 + number(3) % 2));
    if (message.op() == Op::restore) message.text = to_text(StateMeta{{}, 0, {number(3)}});
  }
  return message;
}

}  // namespace

void server_messages(std::string_view input) {
  envelope(bytes_of(input), false);
  envelope(bytes_of(input), true);
  const std::string text(input);
  if (const auto meta = tensor_meta(text)) {
    require(tensor_meta(to_text(*meta)) == meta, "a tensor's description says the same again");
    require(bytes_of(*meta) <= std::size_t{1} << 40, "no description asks for more than there is");
  }
  if (const auto meta = state_meta(text))
    require(state_meta(to_text(*meta)) == meta, "a state's description says the same again");
  if (const auto delays = UpdateDelays::parse(text))
    require(UpdateDelays::parse(delays->text()) == delays, "a report says the same again");
}

void server_table(std::string_view input) {
  if (input.empty()) return;
  const bool async = (input[0] & 1) != 0;
  std::map<int, std::uint64_t> asked, answered;
  std::set<int> present;
  const auto answer = [&](int worker, const Message& message) {
    require(present.contains(worker), "nothing is answered to who is gone");
    require(message.head.id == ++answered[worker], "each request is answered once, in its order");
    require(message.head.kind >= 1 && message.head.kind <= kLastStatus, "answers have a status");
  };
  Table table({.workers = kWorkers,
               .update = async ? ServerUpdate::async : ServerUpdate::sync,
               .max_staleness = async ? std::optional(kBound) : std::nullopt,
               .recorder = async && (input[0] & 2) != 0 ? 0 : -1},
              make_updater([](const std::string&, const Tensor& pushed, Tensor& value, double rate) {
                if (value.dtype() == DType::f32) value.add_in_place(pushed, rate);
              }),
              answer);
  input.remove_prefix(1);
  for (std::size_t at = 0; at + 4 <= input.size() && at < 4096; at += 4) {
    const std::string_view how = input.substr(at, 4);
    const int worker = static_cast<unsigned char>(how[0]) % (kWorkers + 1);
    const int what = static_cast<unsigned char>(how[0]) / 8;
    if (worker == kWorkers || (!present.contains(worker) && what < 28)) {
      if (present.contains(worker)) continue;
      if (table.join(worker)) present.insert(worker);
      asked[worker] = answered[worker] = 0;
    } else if (what >= 28) {
      present.erase(worker);
      if (worker < kWorkers) table.lose(worker);
    } else {
      table.ask(worker, request(how, ++asked[worker]));
    }
    require(answered[worker] <= asked[worker], "no answer without a request");
  }
  if (async && !table.delays().ahead.empty())
    require(table.delays().ahead.rbegin()->first <= kBound, "nobody runs ahead of the bound");
}

}  // namespace dtrain::fuzz
