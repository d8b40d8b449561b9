#include "runtime/data/images/files/survey.h"

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/base/blocked_signals.h"
#include "runtime/base/start_thread.h"

namespace dtrain {
namespace {

/// Whether the frame's header says that there are several scans, each of a part of the coefficients.
bool is_progressive(std::span<const std::uint8_t> bytes) {
  constexpr std::uint8_t kProgressive = 0xc2, kScan = 0xda;
  for (std::size_t at = 2; at + 4 <= bytes.size() && bytes[at] == 0xff;) {
    const std::uint8_t kind = bytes[at + 1];
    if (kind == kProgressive) return true;
    if (kind == kScan) return false;
    at += 2 + (static_cast<std::size_t>(bytes[at + 2]) << 8 | bytes[at + 3]);
  }
  return false;
}

void add_pixels(const PictureView& pixels, PictureFacts& facts) {
  for (int y = 0; y < pixels.height; ++y) {
    const std::uint8_t* at = pixels.row(y);
    for (int x = 0; x < pixels.width; ++x) {
      for (std::size_t c = 0; c < 3; ++c, ++at) {
        const std::uint64_t value = *at;
        facts.sums[c] += value;
        facts.squares[c] += value * value;
      }
    }
  }
}

PictureFacts facts_of(const PictureFiles& files, std::int64_t index) {
  thread_local std::vector<std::uint8_t> memory;
  thread_local Picture pixels;
  PictureFacts facts;
  try {
    const EncodedPicture picture = files.read(index, memory);
    const auto decoder = open_picture(picture);
    facts.size = decoder->size();
    add_pixels(decoder->decode({0, 0, facts.size.width, facts.size.height}, pixels), facts);
    facts.bytes = static_cast<std::int64_t>(picture.bytes.size());
    facts.format = *picture_format(picture.bytes);
    facts.progressive = facts.format == PictureFormat::jpeg && is_progressive(picture.bytes);
    facts.crc = static_cast<std::uint32_t>(::crc32_z(0, picture.bytes.data(), picture.bytes.size()));
  } catch (const Error& error) {
    facts = {};
    facts.bad = error.what();
  }
  return facts;
}

}  // namespace

void for_each_index(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body) {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (std::int64_t index; (index = next.fetch_add(1)) < count;) body(index);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> workers;
  {
    const AllSignalsBlocked for_the_threads;
    for (int i = 1; i < threads; ++i) workers.emplace_back(work);
  }
  work();
  workers.clear();
  if (failure) std::rethrow_exception(failure);
}

std::vector<PictureFacts> survey(const PictureFiles& files, int threads) {
  std::vector<PictureFacts> facts(static_cast<std::size_t>(files.size()));
  for_each_index(files.size(), threads, [&](std::int64_t index) {
    facts[static_cast<std::size_t>(index)] = facts_of(files, index);
  });
  return facts;
}

std::vector<std::vector<std::int64_t>> duplicates(const PictureFiles& files,
                                                  const std::vector<PictureFacts>& facts) {
  std::map<std::pair<std::int64_t, std::uint32_t>, std::vector<std::int64_t>> alike;
  for (std::size_t i = 0; i < facts.size(); ++i) {
    if (facts[i].bad.empty()) alike[{facts[i].bytes, facts[i].crc}].push_back(static_cast<std::int64_t>(i));
  }
  std::vector<std::vector<std::int64_t>> groups;
  std::vector<std::uint8_t> memory;
  for (const auto& [key, indices] : alike) {
    if (indices.size() < 2) continue;
    std::map<std::string, std::vector<std::int64_t>> by_content;
    for (const std::int64_t index : indices) {
      const auto bytes = files.read(index, memory).bytes;
      by_content[std::string(bytes.begin(), bytes.end())].push_back(index);
    }
    for (auto& [content, same] : by_content) {
      if (same.size() > 1) groups.push_back(std::move(same));
    }
  }
  std::ranges::sort(groups);
  return groups;
}

}  // namespace dtrain
