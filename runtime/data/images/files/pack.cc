#include "runtime/data/images/files/pack.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "runtime/base/error.h"
#include "runtime/base/files/durable_file.h"
#include "runtime/base/random.h"
#include "runtime/data/formats/tar.h"
#include "runtime/data/formats/tar_writer.h"
#include "runtime/data/images/encode.h"
#include "runtime/data/images/files/survey.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

constexpr std::int64_t kAtOnce = 256;  // samples that wait in memory to be written

std::string checksum(std::span<const std::uint8_t> bytes) {
  return fmt::format("{:08x}", ::crc32_z(0, bytes.data(), bytes.size()));
}

bool same_pixels(const EncodedPicture& one, const EncodedPicture& other) {
  const auto first = open_picture(one), second = open_picture(other);
  if (first->size() != second->size()) return false;
  const Region whole{0, 0, first->size().width, first->size().height};
  Picture memory, other_memory;
  const PictureView a = first->decode(whole, memory), b = second->decode(whole, other_memory);
  for (int y = 0; y < whole.height; ++y) {
    if (std::memcmp(a.row(y), b.row(y), 3 * static_cast<std::size_t>(whole.width)) != 0) return false;
  }
  return true;
}

/// A picture as it is packed.
struct Ready {
  Bytes bytes;
  std::int64_t bytes_before = 0;
  PictureFormat format = PictureFormat::jpeg;
  bool rewritten = false;
};

Ready make_ready(const PictureFiles& files, std::int64_t index) {
  Ready ready;
  const EncodedPicture picture = files.read(index, ready.bytes);
  const auto format = picture_format(picture.bytes);
  if (!format) throw DataError(picture.path, picture.offset, "a JPEG, PNG or WebP picture", "none");
  ready.format = *format;
  ready.bytes_before = static_cast<std::int64_t>(picture.bytes.size());
  if (ready.format == PictureFormat::jpeg) {
    if (auto rewritten = rewrite_jpeg(picture)) {
      ready.rewritten = same_pixels(picture, {*rewritten, picture.path, 0});
      if (ready.rewritten) ready.bytes = std::move(*rewritten);
    }
  }
  return ready;
}

/// The shards under their working names, which go when it is not finished.
class Shards {
 public:
  Shards(const PackOptions& options, const std::vector<std::string>& classes)
      : options_(options), classes_(nlohmann::json(classes).dump()) {}
  ~Shards() {
    std::error_code ignored;
    for (const std::string& path : names_) fs::remove(path + kWorking, ignored);
  }
  Shards(const Shards&) = delete;
  Shards& operator=(const Shards&) = delete;

  TarWriter& current() {
    if (writer_ && writer_->bytes() >= options_.shard_bytes) end_shard();
    if (!writer_) {
      names_.push_back(fmt::format("{}-{:06}.tar", options_.prefix, names_.size()));
      if (fs::exists(names_.back())) {
        throw UsageError(fmt::format(
            "pack: expected no shard {}, found one; remove it or choose another name", names_.back()));
      }
      writer_.emplace(names_.back() + kWorking);
      writer_->add("__classes__", classes_);
    }
    return *writer_;
  }

  std::vector<std::string> finish() {
    if (writer_) end_shard();
    for (const std::string& path : names_) {
      if (std::rename((path + kWorking).c_str(), path.c_str()) != 0)
        throw SystemError("rename " + path, errno);
    }
    sync_directory(fs::absolute(names_.front()).parent_path());
    return std::exchange(names_, {});
  }

 private:
  static constexpr const char* kWorking = ".part";

  void end_shard() {
    writer_->finish();
    writer_.reset();
  }

  PackOptions options_;
  std::string classes_;
  std::vector<std::string> names_;
  std::optional<TarWriter> writer_;
};

std::string_view ending(PictureFormat format) {
  return format == PictureFormat::jpeg ? "jpg" : format == PictureFormat::png ? "png" : "webp";
}

void add_sample(TarWriter& shard, std::int64_t number, const Ready& ready, const PictureFiles& files,
                std::int64_t index) {
  const std::int64_t label = files.label(index);
  const std::string key = fmt::format("{:09}", number);
  const nlohmann::ordered_json about = {{"class", files.classes()[static_cast<std::size_t>(label)]},
                                        {"crc32", checksum(ready.bytes)},
                                        {"source", files.place(index)}};
  shard.add(fmt::format("{}.{}", key, ending(ready.format)), std::span(ready.bytes));
  shard.add(key + ".cls", std::to_string(label));
  shard.add(key + ".json", about.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

std::vector<std::int64_t> order_of(std::int64_t size, const std::optional<std::uint64_t>& shuffle) {
  if (shuffle) return Generator(*shuffle).permutation(size);
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// Of one sample in a shard: its picture and what its .json says of it.
struct Checked {
  std::string key, crc;
  std::optional<TarMember> picture;
};

}  // namespace

Packed pack_pictures(const PictureFiles& files, const PackOptions& options) {
  const std::vector<std::int64_t> order = order_of(files.size(), options.shuffle);
  make_directories(fs::absolute(options.prefix).parent_path());
  Shards shards(options, files.classes());
  Packed packed{.samples = files.size()};
  for (std::int64_t begin = 0; begin < files.size(); begin += kAtOnce) {
    std::vector<Ready> ready(static_cast<std::size_t>(std::min(kAtOnce, files.size() - begin)));
    for_each_index(static_cast<std::int64_t>(ready.size()), options.threads, [&](std::int64_t i) {
      ready[static_cast<std::size_t>(i)] = make_ready(files, order[static_cast<std::size_t>(begin + i)]);
    });
    for (std::size_t i = 0; i < ready.size(); ++i) {
      const auto number = begin + static_cast<std::int64_t>(i);
      add_sample(shards.current(), number, ready[i], files, order[static_cast<std::size_t>(number)]);
      packed.bytes_before += ready[i].bytes_before;
      packed.bytes_after += static_cast<std::int64_t>(ready[i].bytes.size());
      packed.rewritten += ready[i].rewritten ? 1 : 0;
    }
  }
  packed.shards = shards.finish();
  return packed;
}

std::int64_t check_packed(const std::vector<std::string>& shards,
                          const std::function<void(const std::string& message)>& bad) {
  std::int64_t count = 0;
  for (const std::string& path : shards) {
    TarReader archive(path), contents(path);
    Checked sample;
    archive.for_each([&](const TarMember& member) {
      const std::size_t dot = member.name.find('.', member.name.rfind('/') + 1);
      if (dot == std::string::npos) return;
      const std::string key = member.name.substr(0, dot), kind = member.name.substr(dot + 1);
      if (key != sample.key) sample = {key, "", std::nullopt};
      if (kind == "jpg" || kind == "png" || kind == "webp") sample.picture = member;
      if (kind != "json" || !sample.picture) return;
      const auto about = contents.read(member);
      const auto json = nlohmann::json::parse(about.begin(), about.end(), nullptr, false);
      const auto crc = json.is_object() ? json.find("crc32") : json.end();
      if (crc == json.end() || !crc->is_string()) return;
      ++count;
      const std::string found = checksum(contents.read(*sample.picture));
      if (found != crc->get<std::string>()) {
        bad(DataError(path, sample.picture->offset, "a picture with the checksum " + crc->get<std::string>(),
                      found)
                .what());
      }
    });
  }
  return count;
}

}  // namespace dtrain
