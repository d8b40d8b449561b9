// Pictures in tar archives: a list of where each lies, read with pread by any number of threads. Only sparse
// files have more than one place: a list of their pieces, empty for nearly all shards.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/fd.h"
#include "runtime/data/formats/tar.h"
#include "runtime/data/formats/tar_header.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/images/files/kept_index.h"
#include "runtime/data/images/files/masked_files.h"
#include "runtime/data/images/files/wds_index.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 4> kMemberEndings = {"jpg", "jpeg", "png", "webp"};
constexpr std::string_view kJson = "json.", kClassesMember = "__classes__";
constexpr std::int64_t kMostLabelBytes = 1 << 20, kMostClasses = 1 << 24;

/// Where one picture lies.
struct Place {
  std::int32_t shard = 0, label = 0;
  std::int64_t offset = 0, bytes = 0;
};

/// What is stored of a sparse file, the member whose content begins at `member`: TarPiece.
struct PlacePiece {
  std::int64_t shard = 0, member = 0;
  TarPiece piece = {};
};

/// What shards hold.
struct SampleList {
  std::vector<Place> places;
  std::vector<Place> masks = {};          ///< of each picture; empty: they have labels
  std::vector<std::string> classes = {};  ///< that the shards name
  std::vector<PlacePiece> pieces = {};    ///< of the sparse files among places and masks, by shard and member
};

/// Groups the members of one shard and adds each sample's place.
class Grouping {
 public:
  Grouping(TarReader& archive, std::string path, std::int32_t shard, const ShardFields& fields,
           SampleList& list)
      : archive_(archive), path_(std::move(path)), fields_(fields), list_(list), shard_(shard) {
    if (fields.mask.empty() && !fields.unlabelled)
      label_ending_ = fields.label.starts_with(kJson) ? "json" : fields.label;
  }

  void add(const TarMember& member) {
    if (member.name == kClassesMember) return read_names(member);
    std::string key, ending;
    if (!split_member_name(member.name, key, ending)) return;
    if (key != key_) finish();
    key_ = key;
    if (!members_.emplace(ending, member).second) {
      throw DataError(path_, member.offset,
                      fmt::format("one member {}.{}", printable(key), printable(ending)), "two");
    }
    // Now, while it is in the window.
    if (!label_ending_.empty() && ending == label_ending_) label_ = label_of(member);
  }

  void finish() {
    if (members_.empty()) return;
    const auto picture = std::ranges::find_if(
        kMemberEndings, [&](std::string_view ending) { return members_.contains(std::string(ending)); });
    const TarMember& first = members_.begin()->second;
    if (picture == kMemberEndings.end()) lacks(first, "jpg, .jpeg, .png or .webp");
    const std::string& other = fields_.mask.empty() ? label_ending_ : fields_.mask;
    if (!other.empty() && !members_.contains(other)) lacks(first, other);
    list_.places.push_back(place_of(members_.at(std::string(*picture)), label_));
    if (!fields_.mask.empty()) list_.masks.push_back(place_of(members_.at(fields_.mask), 0));
    members_.clear();
  }

 private:
  Place place_of(const TarMember& member, std::int32_t label) {
    check_sparse(path_, member);
    for (const TarPiece& piece : member.pieces) list_.pieces.push_back({shard_, member.offset, piece});
    return {shard_, label, member.offset, member.bytes};
  }

  [[noreturn]] void lacks(const TarMember& member, const std::string& ending) const {
    throw DataError(path_, member.offset, fmt::format("a member {}.{}", printable(key_), ending), "none");
  }

  std::int32_t label_of(const TarMember& member) const {
    if (member.bytes > kMostLabelBytes) refuse(member, fmt::format("{} bytes", member.bytes));
    const auto content = archive_.read(member);
    std::string text(reinterpret_cast<const char*>(content.data()), content.size());
    if (fields_.label.starts_with(kJson)) {
      const auto json = nlohmann::json::parse(text, nullptr, false);
      const auto found = json.is_object() ? json.find(fields_.label.substr(kJson.size())) : json.end();
      if (found == json.end() || !found->is_number_integer()) refuse(member, text.substr(0, 100));
      text = found->dump();
    }
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
    std::int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || value >= kMostClasses)
      refuse(member, text.substr(0, 100));
    return static_cast<std::int32_t>(value);
  }

  /// ["cat", "dog"]: what `dtrain data pack` writes; the same in every shard.
  void read_names(const TarMember& member) {
    const auto content = archive_.read(member);
    const auto json = nlohmann::json::parse(content.begin(), content.end(), nullptr, false);
    const auto is_text = [](const nlohmann::json& name) { return name.is_string(); };
    if (!json.is_array() || !std::ranges::all_of(json, is_text)) {
      throw DataError(path_, member.offset, fmt::format("a list of names in {}", kClassesMember),
                      "something else");
    }
    auto names = json.get<std::vector<std::string>>();
    if (!list_.classes.empty() && list_.classes != names) {
      throw DataError(path_, member.offset, "the names of classes that the shards before it have",
                      fmt::format("others ({} in place of {} of them)", names.size(), list_.classes.size()));
    }
    list_.classes = std::move(names);
  }

  [[noreturn]] void refuse(const TarMember& member, const std::string& found) const {
    const std::string what =
        fields_.label.starts_with(kJson) ? " as " + fields_.label.substr(kJson.size()) : "";
    throw DataError(
        path_, member.offset,
        fmt::format("a label from 0 to {}{} in {}", kMostClasses - 1, what, printable(member.name)),
        printable(found));
  }

  TarReader& archive_;
  std::string path_;
  ShardFields fields_;
  SampleList& list_;
  std::int32_t shard_, label_ = 0;
  std::string label_ending_, key_;
  std::map<std::string, TarMember> members_;  ///< of the sample that is being put together, by ending
};

class PictureShards final : public MaskedPictures {
 public:
  PictureShards(std::vector<std::string> shards, const ShardFields& fields, const IndexPlace& place)
      : shards_(std::move(shards)) {
    std::vector<FileStamp> stamps;
    const bool masked = !fields.mask.empty();
    std::string subject = masked ? fmt::format("shards mask={}", fields.mask)
                                 : fmt::format("shards label={}", fields.unlabelled ? "" : fields.label);
    for (const std::string& shard : shards_) {
      std::error_code ignored;
      if (!std::filesystem::exists(shard, ignored))
        throw DataError(shard, -1, "a tar archive", "no such file");
      stamps.push_back(stamp_of(std::filesystem::absolute(shard, ignored).string()));
      subject += " " + stamps.back().path;
      files_.emplace_back(::open(shard.c_str(), O_RDONLY | O_CLOEXEC));
      if (!files_.back()) throw SystemError("open " + shard, errno);
    }
    for (const std::string& path : fields.indices) {
      stamps.push_back(stamp_of(std::filesystem::absolute(path).string()));
      subject += " index " + stamps.back().path;
    }
    const KeptIndex index(place.directory, subject);
    if (const auto kept = index.find(); !kept || !take(*kept, masked)) {
      walk_all(fields);
      IndexWriter writer;
      writer.add(std::span(std::as_const(list_.places)));
      if (masked) writer.add(std::span(std::as_const(list_.masks)));
      writer.add(static_cast<std::int64_t>(list_.classes.size()));
      for (const std::string& name : list_.classes) writer.add(std::string_view(name));
      if (!list_.pieces.empty()) writer.add(std::span(std::as_const(list_.pieces)));
      index.keep(stamps, writer.bytes(), place.log);
    }
    name_classes(fields.classes);
  }

  std::int64_t size() const noexcept override { return static_cast<std::int64_t>(list_.places.size()); }
  const std::vector<std::string>& classes() const noexcept override { return list_.classes; }
  std::int64_t label(std::int64_t index) const noexcept override { return at(index).label; }
  std::string place(std::int64_t index) const override;
  EncodedPicture read(std::int64_t index, std::vector<std::uint8_t>& memory) const override {
    return read(at(index), memory);
  }
  EncodedPicture read_mask(std::int64_t index, std::vector<std::uint8_t>& memory) const override {
    return read(list_.masks[static_cast<std::size_t>(index)], memory);
  }

 private:
  static std::pair<std::int64_t, std::int64_t> key_of(const PlacePiece& piece) {
    return {piece.shard, piece.member};
  }
  void read(std::size_t shard, std::int64_t offset, std::span<std::uint8_t> bytes) const;
  EncodedPicture read(const Place& place, std::vector<std::uint8_t>& memory) const;
  const Place& at(std::int64_t index) const noexcept { return list_.places[static_cast<std::size_t>(index)]; }

  void walk_all(const ShardFields& fields) {
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      TarReader archive(shards_[i]);
      Grouping grouping(archive, shards_[i], static_cast<std::int32_t>(i), fields, list_);
      const auto add = [&](const TarMember& member) { grouping.add(member); };
      if (fields.indices.empty()) {
        archive.for_each(add);
      } else {
        for_each_indexed(archive, shards_[i], fields.indices[i], add);
      }
      grouping.finish();  // a sample does not continue in the next shard
    }
    std::ranges::stable_sort(list_.pieces, {}, key_of);  // a mask may be in front of its picture
    if (list_.places.empty())
      throw DataError(shards_.front(), -1, "at least one sample in the shards", "none");
  }

  bool take(std::string_view content, bool masked) {
    IndexReader reader(content);
    list_.places = reader.values<Place>();
    if (masked) list_.masks = reader.values<Place>();
    const std::int64_t count = reader.number();
    for (std::int64_t i = 0; i < count && list_.classes.size() < content.size(); ++i)
      list_.classes.emplace_back(reader.text());
    if (!reader.finished()) list_.pieces = reader.values<PlacePiece>();
    const bool complete = !masked || list_.masks.size() == list_.places.size();
    if (reader.finished() && complete && !list_.places.empty()) return true;
    list_ = {};
    return false;
  }

  void name_classes(std::int64_t count) {
    const Place& largest = *std::ranges::max_element(list_.places, {}, &Place::label);
    if (count > 0 && largest.label >= count) {
      throw DataError(shards_[static_cast<std::size_t>(largest.shard)], largest.offset,
                      fmt::format("a label from 0 to {} beside the picture", count - 1),
                      std::to_string(largest.label));
    }
    const auto named = static_cast<std::int64_t>(list_.classes.size());
    if (count > 0 ? named == count : named > largest.label) return;
    list_.classes.clear();  // nobody named them all
    if (count == 0) count = largest.label + 1;
    for (std::int64_t i = 0; i < count; ++i) list_.classes.push_back(std::to_string(i));
  }

  std::vector<std::string> shards_;
  std::vector<UniqueFd> files_;
  SampleList list_;
};

void PictureShards::read(std::size_t shard, std::int64_t offset, std::span<std::uint8_t> bytes) const {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::pread(files_[shard].get(), bytes.data() + done, bytes.size() - done,
                                  offset + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw SystemError("read " + shards_[shard], errno);
    if (count == 0) {
      throw DataError(shards_[shard], offset + static_cast<std::int64_t>(done),
                      fmt::format("{} more bytes, as when it was indexed", bytes.size() - done), "its end");
    }
    done += static_cast<std::size_t>(count);
  }
}

// The list has no names, which would be most of it: the archive has.
std::string PictureShards::place(std::int64_t index) const {
  constexpr std::int64_t kMostBlocks = 8;
  const auto shard = static_cast<std::size_t>(at(index).shard);
  const std::int64_t blocks = std::min(at(index).offset / kTarBlock, kMostBlocks);
  std::vector<std::uint8_t> front(static_cast<std::size_t>(blocks * kTarBlock));
  read(shard, at(index).offset - blocks * kTarBlock, front);
  const std::string name = tar_name_before(front);
  return fmt::format("{}:{}", shards_[shard], name.empty() ? std::to_string(at(index).offset) : name);
}

EncodedPicture PictureShards::read(const Place& place, std::vector<std::uint8_t>& memory) const {
  const auto shard = static_cast<std::size_t>(place.shard);
  const std::pair<std::int64_t, std::int64_t> key(place.shard, place.offset);
  auto piece_of = std::ranges::lower_bound(list_.pieces, key, {}, key_of);
  const auto is_of_it = [&] { return piece_of != list_.pieces.end() && key_of(*piece_of) == key; };
  if (!is_of_it()) {
    memory.resize(static_cast<std::size_t>(place.bytes));
    read(shard, place.offset, memory);
    return {memory, shards_[shard], place.offset};
  }
  memory.assign(static_cast<std::size_t>(place.bytes), 0);
  for (; is_of_it(); ++piece_of) {
    const TarPiece& piece = piece_of->piece;
    read(
        shard, piece.offset,
        std::span(memory).subspan(static_cast<std::size_t>(piece.at), static_cast<std::size_t>(piece.bytes)));
  }
  // Its bytes are not those of the shard from some offset on.
  return {memory, fmt::format("{}: the sparse file at {}", shards_[shard], place.offset), 0};
}

std::shared_ptr<const PictureShards> open_shards(const std::vector<std::string>& shards,
                                                 const ShardFields& fields, const IndexPlace& index) {
  if (fields.label != "cls" && (!fields.label.starts_with(kJson) || fields.label.size() == kJson.size())) {
    throw UsageError(fmt::format("shards: expected label=cls or label=json.NAME, got \"{}\"", fields.label));
  }
  if (shards.empty()) throw UsageError("shards: expected at least one file, got none");
  if (!fields.indices.empty() && fields.indices.size() != shards.size()) {
    throw UsageError(fmt::format("shards: expected an index for each of {} shards, got {}", shards.size(),
                                 fields.indices.size()));
  }
  return std::make_shared<const PictureShards>(shards, fields, index);
}

}  // namespace

std::shared_ptr<const PictureFiles> open_picture_shards(const std::vector<std::string>& shards,
                                                        const ShardFields& fields, const IndexPlace& index) {
  ShardFields labelled = fields;
  labelled.mask.clear();
  return open_shards(shards, labelled, index);
}

std::shared_ptr<const MaskedPictures> open_masked_shards(const std::vector<std::string>& shards,
                                                         const ShardFields& fields, const IndexPlace& index) {
  if (fields.mask.empty())
    throw UsageError("shards: expected the ending of the masks, as in seg.png, got none");
  return open_shards(shards, fields, index);
}

}  // namespace dtrain
