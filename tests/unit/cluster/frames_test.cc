// What seals messages on their way: frames come back whole, and nothing else is ever let through.
#include "cluster/net/frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"

namespace dtrain::net {
namespace {

constexpr std::string_view kKey = "0123456789abcdef0123456789abcdef";

std::vector<std::byte> bytes(std::size_t count, int seed = 0) {
  std::vector<std::byte> all(count);
  for (std::size_t i = 0; i < count; ++i)
    all[i] = static_cast<std::byte>((i * 131 + i / 1000 + static_cast<std::size_t>(seed)) & 0xff);
  return all;
}

void append(std::vector<std::byte>& stream, const SealedFrame& frame) {
  stream.insert(stream.end(), frame.header.begin(), frame.header.end());
  stream.insert(stream.end(), frame.body.begin(), frame.body.end());
  stream.insert(stream.end(), frame.mac.begin(), frame.mac.begin() + static_cast<long>(frame.mac_bytes));
}

std::vector<std::byte> sealed(FrameSealer& sealer, std::uint64_t tag, std::span<const std::byte> body) {
  std::vector<std::byte> stream;
  append(stream, sealer.seal(tag, body));
  return stream;
}

class AllFrames : public testing::TestWithParam<Protection> {
 protected:
  FrameSealer sealer_{GetParam(), kKey};
  FrameOpener opener_{GetParam(), kKey};
  Frame frame_;
};

class ProtectedFrames : public AllFrames {};

TEST_P(AllFrames, ComeBackWholeAndInOrder) {
  for (const std::size_t size : {std::size_t{1}, std::size_t{15}, std::size_t{4096}, kMostBodyBytes}) {
    const auto body = bytes(size, 3);
    auto stream = sealed(sealer_, size * 7, body);
    for (const std::size_t part : {std::size_t{0}, std::size_t{3}, std::size_t{12}, stream.size() - 1})
      EXPECT_EQ(opener_.open(std::span(stream).first(part), frame_), FrameOpener::Result::need_more);
    ASSERT_EQ(opener_.open(stream, frame_), FrameOpener::Result::frame);
    EXPECT_EQ(frame_.tag, size * 7);
    EXPECT_EQ(frame_.bytes, stream.size());
    EXPECT_TRUE(std::equal(frame_.body.begin(), frame_.body.end(), body.begin(), body.end()));
  }
}

TEST_P(AllFrames, HaveAPossibleLength) {
  for (const std::uint32_t length : {0U, static_cast<std::uint32_t>(kMostBodyBytes) + 1, 0xffffffffU}) {
    FrameOpener opener(GetParam(), kKey);
    std::vector<std::byte> stream(64);
    std::memcpy(stream.data(), &length, sizeof length);
    EXPECT_EQ(opener.open(stream, frame_), FrameOpener::Result::bad) << length;
    EXPECT_EQ(opener.open(stream, frame_), FrameOpener::Result::bad) << "for good";
  }
}

TEST_P(ProtectedFrames, NoFlippedBitIsLetThrough) {
  const auto stream = sealed(sealer_, 5, bytes(20));
  for (std::size_t bit = 0; bit < stream.size() * 8; ++bit) {
    auto changed = stream;
    changed[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    FrameOpener opener(GetParam(), kKey);
    EXPECT_NE(opener.open(changed, frame_), FrameOpener::Result::frame) << "bit " << bit;
  }
}

TEST_P(ProtectedFrames, NoFrameIsReplayedReorderedOrLeftOut) {
  const auto body = bytes(100);
  auto first = sealed(sealer_, 1, body), second = sealed(sealer_, 1, body), third = sealed(sealer_, 1, body);
  EXPECT_NE(first, second) << "equal bodies have different MACs";
  const auto second_copy = second;
  ASSERT_EQ(opener_.open(first, frame_), FrameOpener::Result::frame);
  {
    FrameOpener early(GetParam(), kKey);
    EXPECT_EQ(early.open(second, frame_), FrameOpener::Result::bad) << "reordered";
  }
  second = second_copy;
  ASSERT_EQ(opener_.open(second, frame_), FrameOpener::Result::frame);
  second = second_copy;
  EXPECT_EQ(opener_.open(second, frame_), FrameOpener::Result::bad) << "replayed";
  EXPECT_EQ(opener_.open(third, frame_), FrameOpener::Result::bad) << "after what is bad nothing is good";
}

TEST_P(ProtectedFrames, AnotherKeyOpensNothing) {
  std::string other(kKey);
  other.back() = 'x';
  FrameOpener opener(GetParam(), other);
  auto stream = sealed(sealer_, 1, bytes(100));
  EXPECT_EQ(opener.open(stream, frame_), FrameOpener::Result::bad);
}

INSTANTIATE_TEST_SUITE_P(, AllFrames,
                         testing::Values(Protection::none, Protection::authenticate, Protection::encrypt),
                         [](const auto& one) { return std::string(name_of(one.param)); });
INSTANTIATE_TEST_SUITE_P(, ProtectedFrames, testing::Values(Protection::authenticate, Protection::encrypt),
                         [](const auto& one) { return std::string(name_of(one.param)); });

TEST(EncryptedFrames, ShowNothingOfTheirBodies) {
  const std::vector<std::byte> body(4096, std::byte{'A'});
  FrameSealer encrypts(Protection::encrypt, kKey), signs(Protection::authenticate, kKey);
  const auto runs_of_body = [](const std::vector<std::byte>& stream) {
    const std::vector<std::byte> run(8, std::byte{'A'});
    return std::search(stream.begin(), stream.end(), run.begin(), run.end()) != stream.end();
  };
  EXPECT_FALSE(runs_of_body(sealed(encrypts, 1, body)));
  EXPECT_TRUE(runs_of_body(sealed(signs, 1, body)));
}

TEST(ProtectionNames, AreThree) {
  for (const Protection one : {Protection::none, Protection::authenticate, Protection::encrypt})
    EXPECT_EQ(protection_named(name_of(one), "X"), one);
  EXPECT_THROW(protection_named("tls", "X"), UsageError);
}

}  // namespace
}  // namespace dtrain::net
