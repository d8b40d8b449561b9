// Connections whose ends prove themselves, and the frames on them (cluster/net).

#include <algorithm>
#include <string>
#include <vector>

#include "cluster/net/handshake.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"

namespace dtrain::fuzz {
namespace {

using namespace net;  // NOLINT: the frames, by their names

constexpr std::string_view kKey = "0123456789abcdef0123456789abcdef";

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

struct Message {
  std::uint64_t tag = 0;
  std::vector<std::byte> body;
  bool operator==(const Message&) const = default;
};

const std::vector<Message>& messages() {
  static const std::vector<Message> all = {{1, bytes_of("a")},
                                           {0xffffffffffffffffULL, std::vector<std::byte>(300, std::byte{7})},
                                           {1, bytes_of("a")},
                                           {4, bytes_of("a gradient, say")}};
  return all;
}

// The messages' frames, one after another; `ends` receives where each ends.
std::vector<std::byte> sealed_stream(Protection protection, std::vector<std::size_t>& ends) {
  FrameSealer sealer(protection, kKey);
  std::vector<std::byte> stream;
  for (const Message& message : messages()) {
    const SealedFrame frame = sealer.seal(message.tag, message.body);
    stream.insert(stream.end(), frame.header.begin(), frame.header.end());
    stream.insert(stream.end(), frame.body.begin(), frame.body.end());
    stream.insert(stream.end(), frame.mac.begin(), frame.mac.begin() + static_cast<long>(frame.mac_bytes));
    ends.push_back(stream.size());
  }
  return stream;
}

std::vector<Message> open_all(Protection protection, std::vector<std::byte> stream) {
  FrameOpener opener(protection, kKey);
  std::vector<Message> opened;
  std::size_t at = 0;
  Frame frame;
  while (opener.open(std::span(stream).subspan(at), frame) == FrameOpener::Result::frame) {
    require(!frame.body.empty() && frame.bytes <= stream.size() - at, "a frame lies in what has come");
    opened.push_back({frame.tag, {frame.body.begin(), frame.body.end()}});
    at += frame.bytes;
  }
  return opened;
}

// Four bytes: what, where (two), and how much or with what.
void edit(std::vector<std::byte>& stream, std::string_view how) {
  const auto number = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(how[i]));
  };
  if (stream.empty()) return;
  const std::size_t at = (number(1) + 256 * number(2)) % stream.size();
  const std::size_t count = std::min(number(3), stream.size() - at);
  const auto begin = stream.begin() + static_cast<long>(at);
  switch (number(0) % 5) {
    case 0:
      stream[at] ^= static_cast<std::byte>(number(3));
      break;
    case 1:
      stream.erase(begin, begin + static_cast<long>(count));
      break;
    case 2: {
      const std::vector<std::byte> copy(begin, begin + static_cast<long>(count));
      stream.insert(begin, copy.begin(), copy.end());
      break;
    }
    case 3:
      stream.resize(at);
      break;
    default:
      std::rotate(stream.begin(), begin, stream.end());
  }
}

}  // namespace

void frames(std::string_view input) {
  if (input.empty()) return;
  const auto protection = static_cast<Protection>(static_cast<unsigned char>(input[0]) % 3);
  input.remove_prefix(1);
  const std::vector<Message> from_input = open_all(protection, bytes_of(input));
  if (protection == Protection::none) return;
  require(from_input.size() <= messages().size() &&
              std::equal(from_input.begin(), from_input.end(), messages().begin()),
          "what opens was sealed, in this order");

  std::vector<std::size_t> ends;
  const std::vector<std::byte> stream = sealed_stream(protection, ends);
  std::vector<std::byte> changed = stream;
  for (std::size_t at = 0; at + 4 <= input.size() && at < 64; at += 4) edit(changed, input.substr(at, 4));
  const auto difference = std::mismatch(stream.begin(), stream.end(), changed.begin(), changed.end()).first;
  const auto whole = static_cast<std::size_t>(std::count_if(ends.begin(), ends.end(), [&](std::size_t end) {
    return end <= static_cast<std::size_t>(difference - stream.begin());
  }));
  const std::vector<Message> opened = open_all(protection, changed);
  require(opened.size() == whole, "frames before a change open, the one that was changed does not");
  require(std::equal(opened.begin(), opened.end(), messages().begin()), "what opens is what was sealed");
}

void handshake(std::string_view input) {
  constexpr std::string_view kSecret = "a secret the input does not know";
  const MacKey key(kSecret);
  const Admit anyone = [](const Identity&) { return std::string(); };
  std::string answers[2];
  Responder::State ends[2];
  for (const bool whole : {false, true}) {
    Responder responder(key, Protection::authenticate, anyone, Nonce{7});
    const std::size_t step = whole ? input.size() + 1 : 1;
    for (std::size_t at = 0; at < input.size(); at += step)
      responder.feed(input.substr(at, step), answers[whole]);
    ends[whole] = responder.state();
    require(ends[whole] != Responder::State::accepted, "nobody gets in without the secret");
    require(answers[whole].size() <= kChallengeBytes, "a stranger gets one answer");
  }
  require(ends[0] == ends[1] && answers[0] == answers[1], "cuts do not matter to a handshake");

  Initiator initiator(kSecret, {"job", "worker", 1}, Nonce{7});
  std::string out;
  std::string_view rest = input;
  while (!rest.empty() && initiator.wants() > 0) {
    const std::string_view part = rest.substr(0, initiator.wants());
    initiator.feed(part, out);
    rest.remove_prefix(part.size());
  }
  require(
      initiator.state() == Initiator::State::want_challenge || initiator.state() == Initiator::State::failed,
      "nobody is believed without the secret");
  require(out.empty(), "nothing is proved to somebody who has proved nothing");
}

}  // namespace dtrain::fuzz
