// The event file against published CRC-32C vectors and a decoder written from the format's description.
#include "runtime/metrics/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#include "tests/support/temp_dir.h"

namespace dtrain {
namespace {

using Points = std::vector<std::pair<std::string, double>>;

std::uint32_t crc_of(const std::string& text) { return crc32c(std::as_bytes(std::span(text))); }

TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(crc_of(""), 0U);
  EXPECT_EQ(crc_of("123456789"), 0xe3069283U);            // the catalogue's check value
  EXPECT_EQ(crc_of(std::string(32, '\0')), 0x8a9136aaU);  // RFC 3720, B.4
  EXPECT_EQ(crc_of(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising(32, '\0');
  for (int i = 0; i < 32; ++i) rising[static_cast<std::size_t>(i)] = static_cast<char>(i);
  EXPECT_EQ(crc_of(rising), 0x46dd794eU);
}

// Bit by bit and unmasked the other way round: shares nothing with the code under test.
std::uint32_t slow_crc(const std::string& text) {
  std::uint32_t crc = 0xffffffffU;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) crc = (crc & 1U) != 0 ? (crc >> 1) ^ 0x82f63b78U : crc >> 1;
  }
  return crc ^ 0xffffffffU;
}

template <class T>
T take(std::string& from) {
  T value;
  if (from.size() < sizeof value) throw std::runtime_error("cut");
  std::memcpy(&value, from.data(), sizeof value);
  from.erase(0, sizeof value);
  return value;
}

std::uint32_t unmask(std::uint32_t masked) {
  const std::uint32_t turned = masked - 0xa282ead8U;
  return (turned >> 17) | (turned << 15);
}

std::vector<std::string> records(std::string file) {
  std::vector<std::string> payloads;
  while (!file.empty()) {
    const std::string length_bytes = file.substr(0, 8);
    const auto length = take<std::uint64_t>(file);
    EXPECT_EQ(unmask(take<std::uint32_t>(file)), slow_crc(length_bytes));
    payloads.push_back(file.substr(0, length));
    file.erase(0, length);
    EXPECT_EQ(unmask(take<std::uint32_t>(file)), slow_crc(payloads.back()));
  }
  return payloads;
}

std::uint64_t take_varint(std::string& from) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<std::uint8_t>(from);
    value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
    if ((byte & 0x80U) == 0) return value;
  }
}

// Field number → raw value; varints as 8 little-endian bytes.
std::map<int, std::string> fields(std::string message) {
  std::map<int, std::string> result;
  while (!message.empty()) {
    const std::uint64_t tag = take_varint(message);
    std::size_t size = 0;
    std::string value;
    switch (tag & 7U) {
      case 0: {
        const std::uint64_t number = take_varint(message);
        value.assign(reinterpret_cast<const char*>(&number), 8);
        break;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = take_varint(message);
        break;
      case 5:
        size = 4;
        break;
      default:
        throw std::runtime_error("wire type");
    }
    value += message.substr(0, size);
    message.erase(0, size);
    result[static_cast<int>(tag >> 3)] = value;
  }
  return result;
}

TEST(TensorBoard, FileHoldsWhatWasWritten) {
  const test::TempDir folder;
  TensorBoardWriter writer(folder.path(), 1700000000.25);
  EXPECT_EQ(writer.path().filename().string().find("events.out.tfevents.1700000000."), 0U);
  writer.scalars(Points{{"train/loss", 0.625}}, 300, 1700000001.5);
  writer.scalars(Points{{std::string(200, 't'), -1}}, 1LL << 40, 2);
  const auto payloads = records(test::read_file(writer.path()));
  ASSERT_EQ(payloads.size(), 3U);

  auto first = fields(payloads[0]);
  EXPECT_EQ(take<double>(first[1]), 1700000000.25);
  EXPECT_EQ(first[3], "brain.Event:2");

  auto second = fields(payloads[1]);
  EXPECT_EQ(take<double>(second[1]), 1700000001.5);
  EXPECT_EQ(take<std::uint64_t>(second[2]), 300U);
  auto value = fields(fields(second[5])[1]);
  EXPECT_EQ(value[1], "train/loss");
  EXPECT_EQ(take<float>(value[2]), 0.625F);

  auto third = fields(payloads[2]);
  EXPECT_EQ(take<std::uint64_t>(third[2]), 1ULL << 40);
  EXPECT_EQ(fields(fields(third[5])[1])[1], std::string(200, 't'));
}

TEST(TensorBoard, AResumeForgetsLaterSteps) {
  const test::TempDir folder;
  TensorBoardWriter writer(folder.path(), 1, 40);
  const auto payloads = records(test::read_file(writer.path()));
  ASSERT_EQ(payloads.size(), 2U);
  auto restart = fields(payloads[1]);
  EXPECT_EQ(take<std::uint64_t>(restart[2]), 41U);
  auto session = fields(restart[7]);
  EXPECT_EQ(take<std::uint64_t>(session[1]), 1U);  // START
}

TEST(TensorBoard, AStartFromNothingForgetsAllThatAnEarlierOneWrote) {
  const test::TempDir folder;
  {
    TensorBoardWriter killed(folder.path(), 1);
    killed.scalars(Points{{"train/loss", 1}}, 1, 1);
  }
  const TensorBoardWriter writer(folder.path(), 2);
  const auto payloads = records(test::read_file(writer.path()));
  ASSERT_EQ(payloads.size(), 2U);
  auto restart = fields(payloads[1]);
  EXPECT_EQ(take<std::uint64_t>(restart[2]), 1U) << "the first step and all later ones";
}

}  // namespace
}  // namespace dtrain
