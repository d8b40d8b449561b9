// Decoded pictures that are kept in memory, so that later epochs do not decode them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/data/images/decode.h"

namespace dtrain {

/// Keeps pictures until its memory is full, and then those: each epoch reads all of them once in another
/// order, so that whatever replaced one would be replaced before it is read again. Used by any number of
/// threads. What is read through it has the same bits as what is not.
class PictureCache {
 public:
  /// What is counted for a picture beside its pixels: its place in the table.
  static constexpr std::size_t kEntryBytes = 192;

  /// Of at most `most_bytes`, pixels and places together. `log` is borrowed as long as this lives, and hears
  /// once that the cache is full; null: silent.
  explicit PictureCache(std::size_t most_bytes, Log* log = nullptr) : most_bytes_(most_bytes), log_(log) {}

  /// Picture `index` of the files `files`, of which only the address counts: a decoder of the pixels that are
  /// kept, or the one that `open` makes, whose pixels are kept first where there is room. A picture that is
  /// damaged is not kept; what `open` makes then says so when it decodes a damaged part. Throws as `open`.
  std::unique_ptr<PictureDecoder> open(const void* files, std::int64_t index,
                                       const std::function<std::unique_ptr<PictureDecoder>()>& open);

  std::size_t most_bytes() const noexcept { return most_bytes_; }
  /// Of the pictures that are kept, or about to be; never more than most_bytes().
  std::size_t bytes() const;
  /// How many pictures are kept.
  std::size_t size() const;
  /// How many calls of open() found theirs.
  std::int64_t hits() const;

 private:
  using Key = std::pair<const void*, std::int64_t>;
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<const void*>()(key.first) ^ std::hash<std::int64_t>()(key.second);
    }
  };

  std::shared_ptr<const Picture> find(const Key& key);
  /// Whether a picture of `size` fits, for which room is then taken.
  bool take_room(PictureSize size);
  void give_back(PictureSize size);
  /// Keeps `picture`, for which room was taken, or gives that back where the picture is kept already. Returns
  /// the one that is kept.
  std::shared_ptr<const Picture> keep(const Key& key, std::shared_ptr<const Picture> picture);

  const std::size_t most_bytes_;
  Log* const log_;
  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<Key, std::shared_ptr<const Picture>, Hash> kept_;
  std::size_t bytes_ = 0;
  std::int64_t hits_ = 0;
  bool said_full_ = false;
};

}  // namespace dtrain
