// The store and the lists of hosts.
#include "tests/fuzz/targets.h"

#include <string>
#include <vector>

#include "cluster/detect/nodelist.h"
#include "cluster/store/store_handshake.h"
#include "cluster/store/store_wire.h"
#include "runtime/base/error.h"
#include "tests/fuzz/require.h"

namespace dtrain::fuzz {
namespace {

using wire::FrameReader;

struct Opened {
  std::vector<std::string> frames;
  bool bad = false;
  bool operator==(const Opened&) const = default;
};

// Reads `bytes` in pieces of `step`.
Opened open_frames(std::string_view key, std::string_view bytes, std::size_t step) {
  FrameReader reader{MacKey(key)};
  Opened opened;
  for (std::size_t at = 0; at < bytes.size() && !opened.bad; at += step) {
    reader.feed(bytes.substr(at, step));
    std::string_view payload;
    FrameReader::Result result;
    while ((result = reader.next(payload)) == FrameReader::Result::frame) opened.frames.emplace_back(payload);
    opened.bad = result == FrameReader::Result::bad;
    require(opened.bad || reader.buffered_bytes() < wire::kMaxPayloadBytes + wire::kFrameOverheadBytes,
            "a frame reader keeps less than one whole frame");
  }
  return opened;
}

wire::ServerHandshake shake(std::string_view secret, const wire::Nonce& nonce, std::string_view bytes,
                            std::size_t step, std::string& out) {
  wire::ServerHandshake handshake(secret, nonce);
  for (std::size_t at = 0; at < bytes.size(); at += step) handshake.feed(bytes.substr(at, step), out);
  return handshake;
}

}  // namespace

void nodelist(std::string_view input) {
  try {
    const auto hosts = expand_nodelist(input, "input");
    require(!hosts.empty() && hosts.size() <= kMaxNodes, "1 to kMaxNodes hosts");
    for (const std::string& host : hosts)
      require(!host.empty() && host.size() <= 253, "hosts of 1 to 253 bytes");
  } catch (const UsageError&) {
  }
}

void tasks_per_node(std::string_view input) {
  try {
    const auto tasks = expand_tasks_per_node(input, "input");
    require(!tasks.empty() && tasks.size() <= kMaxNodes, "1 to kMaxNodes nodes");
    for (const int count : tasks) require(count >= 1 && count <= kMaxTasksPerNode, "tasks in bounds");
  } catch (const UsageError&) {
  }
}

void frames(std::string_view input) {
  constexpr std::string_view kKey = "key";
  require(open_frames(kKey, input, 1) == open_frames(kKey, input, input.size() + 1),
          "cuts do not matter to bad input");

  // The input as two payloads.
  wire::FrameWriter writer{MacKey(kKey)};
  std::string bytes;
  const std::size_t half = input.size() / 2;
  writer.append(bytes, input.substr(0, half));
  writer.append(bytes, input.substr(half));
  const Opened whole = open_frames(kKey, bytes, bytes.size());
  require(!whole.bad && whole.frames.size() == 2 && whole.frames[0] + whole.frames[1] == input,
          "frames come back");
  require(open_frames(kKey, bytes, 1) == whole, "cuts do not matter to good input");
  const std::size_t bit =
      input.empty() ? 0 : static_cast<unsigned char>(input[0]) * std::size_t{37} % (bytes.size() * 8);
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  const Opened flipped = open_frames(kKey, bytes, bytes.size());
  require(flipped.frames.size() < 2, "a flipped bit is never let through");

  if (const auto request = wire::decode_request(input))
    require(wire::encode(*request) == input, "one encoding of a request");
  if (const auto response = wire::decode_response(input))
    require(wire::encode(*response) == input, "one encoding of a response");
}

void handshake(std::string_view input) {
  constexpr std::string_view kSecret = "a secret the input does not know";
  const wire::Nonce nonce{7};
  std::string out_whole, out_cut;
  const auto whole = shake(kSecret, nonce, input, input.size() + 1, out_whole);
  const auto cut = shake(kSecret, nonce, input, 1, out_cut);
  require(whole.state() == cut.state() && out_whole == out_cut, "cuts do not matter to a handshake");
  require(whole.state() != wire::ServerHandshake::State::accepted, "nobody is accepted without the secret");
  require(out_whole.size() <= wire::kChallengeBytes, "a stranger gets one answer");

  const std::string hello = wire::make_hello({"job", "worker", 1}, nonce);
  const wire::Answer answer = wire::answer_challenge(kSecret, hello, input);
  require(!answer.error.empty() && answer.proof.empty(), "no challenge is believed without the secret");
}

}  // namespace dtrain::fuzz
