// "folder:…" and "shards:…" of --dataset.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "runtime/data/images/files/picture_source.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/source_spec.h"

namespace dtrain {
namespace {

constexpr int kMostPixels = 1 << 14;  // of a side
constexpr double kDefaultShare = 0.9;

/// Files, and where they are, for messages.
struct PictureFilesAt {
  std::string place;
  std::shared_ptr<const PictureFiles> files;
};

/// 256 for 224, as ImageNet is evaluated.
std::int64_t default_resize(std::int64_t size) { return (size * 8 + 6) / 7; }

// One network takes both.
void check_classes(const SourceSpec& spec, const PictureFiles& train, const PictureFiles& test) {
  if (train.classes() == test.classes()) return;
  const auto& expected = train.classes();
  const auto& found = test.classes();
  const auto at = std::ranges::mismatch(expected, found);
  spec.refuse(fmt::format("the same classes in both folders ({} of them, {})", expected.size(),
                          at.in1 == expected.end() ? "no more" : fmt::format("among them {}", *at.in1)),
              at.in2 == found.end() ? fmt::format("{} of them", found.size()) : *at.in2);
}

/// Both splits of one set of files, or of one each.
class PictureSplits {
 public:
  PictureSplits(PictureOptions options, const OpenPictureOptions& how) : options_(options), how_(how) {}

  /// Each of `train` and `test` has its own files.
  Splits of(const PictureFilesAt& train, const PictureFilesAt& test) const {
    return {source(Split::train, train, bad_of(train)), source(Split::test, test, bad_of(test))};
  }
  Splits cut(const PictureFilesAt& files, const HoldOut& hold_out) const {
    const auto bad = bad_of(files);
    const auto train = source(Split::train, files, bad), test = source(Split::test, files, bad);
    SplitIndices indices = split_indices(files.files->size(), hold_out.share, hold_out.seed);
    return {std::make_shared<SubsetSource>(train->name(), train, std::move(indices.train)),
            std::make_shared<SubsetSource>(test->name(), test, std::move(indices.test))};
  }

 private:
  std::shared_ptr<BadSamples> bad_of(const PictureFilesAt& at) const {
    return std::make_shared<BadSamples>(how_.on_bad_sample, at.files->size(), how_.log);
  }
  std::shared_ptr<const Source> source(Split split, const PictureFilesAt& at,
                                       std::shared_ptr<BadSamples> bad) const {
    PictureOptions options = options_;
    options.augmentation = split == Split::train ? how_.augment : Augmentation{};
    return std::make_shared<const PictureSource>(fmt::format("pictures {} ({})", name_of(split), at.place),
                                                 at.files, options, std::move(bad));
  }

  PictureOptions options_;
  OpenPictureOptions how_;
};

/// mean=0.5, or mean=0.5+0.4+0.4: of all channels, or red, green and blue.
void take_numbers(SourceSpec& spec, std::string_view name, bool above_zero, std::array<float, 3>& numbers) {
  const std::vector<std::string> texts = spec.take_list(name);
  if (texts.empty()) return;
  for (std::size_t c = 0; c < numbers.size(); ++c) {
    const auto number = parse_real(texts[std::min(c, texts.size() - 1)]);
    if ((texts.size() != 1 && texts.size() != numbers.size()) || !number || *number < 0 || *number > 1 ||
        (above_zero && *number == 0)) {
      spec.refuse(fmt::format("{}=X or {}=RED+GREEN+BLUE, each {} and at most 1", name, name,
                              above_zero ? "above 0" : "at least 0"),
                  fmt::format("{}", fmt::join(texts, "+")));
    }
    numbers[c] = static_cast<float>(*number);
  }
}

PictureOptions take_options(SourceSpec& spec) {
  PictureOptions options;
  options.size = static_cast<int>(spec.take_integer("size", 1, kMostPixels, options.size));
  options.resize =
      static_cast<int>(spec.take_integer("resize", options.size, kMostPixels, default_resize(options.size)));
  take_numbers(spec, "mean", false, options.numbers.mean);
  take_numbers(spec, "deviation", true, options.numbers.deviation);
  return options;
}

/// What the names of both kinds say.
struct PictureRequest {
  PictureOptions options;
  std::optional<std::string> test;
  HoldOut hold_out;
};

/// Takes what is left of `spec`; `known` lists the settings of its kind alone.
PictureRequest take_request(SourceSpec& spec, std::string_view known) {
  PictureRequest request{take_options(spec), spec.take("test"), HoldOut::take(spec)};
  spec.finish(fmt::format("size=N, resize=N, mean=X, deviation=X, {}, split=SHARE or split-seed=N", known));
  if (!request.test && request.hold_out.share == 0) request.hold_out.share = kDefaultShare;
  request.hold_out.check(spec, request.test.has_value());
  return request;
}

/// Labels that nobody named are as many as the split with the larger ones says.
void count_classes(const PictureFilesAt& train, const PictureFilesAt& test, ShardFields& fields) {
  fields.classes =
      static_cast<std::int64_t>(std::max(train.files->classes().size(), test.files->classes().size()));
}

}  // namespace

PicturesToPredict open_pictures_to_predict(const std::string& path, std::string_view dataset) {
  const std::size_t colon = std::min(dataset.find(':'), dataset.size() - 1);
  const std::string kind(dataset.substr(0, colon));
  if (kind != "folder" && kind != "shards") {
    throw UsageError(
        fmt::format("{}: expected a run that was trained on pictures (folder:…, shards:…), got one on {}",
                    path, dataset));
  }
  SourceSpec spec(kind, dataset.substr(colon + 1));
  const PictureOptions options = take_options(spec);
  const auto files =
      path.ends_with(".tar")
          ? open_picture_shards(expand_shards(path), {.label = spec.take("label").value_or("cls")})
          : open_picture_list(path);
  return {files,
          std::make_shared<const PictureSource>(
              path, files, options, std::make_shared<BadSamples>(OnBadSample::stop, files->size(), nullptr))};
}

std::shared_ptr<const PictureFiles> open_picture_files(std::string_view dataset,
                                                       const std::filesystem::path& folder) {
  const std::size_t colon = std::min(dataset.find(':'), dataset.size());
  const std::string kind(dataset.substr(0, colon));
  if (kind != "folder" && kind != "shards")
    throw UsageError(fmt::format("pictures: expected folder:DIR or shards:PATTERN, got \"{}\"", dataset));
  SourceSpec spec(kind, dataset.substr(colon + 1));
  if (spec.file().empty()) spec.refuse(kind + " first", "none");
  const std::string place = (folder / spec.file()).string();
  if (kind == "folder") {
    spec.finish("a folder alone");
    return open_picture_folder(place);
  }
  ShardFields fields{spec.take("label").value_or("cls"), spec.take_integer("classes", 1, INT32_MAX, 0)};
  if (const auto index = spec.take("index")) fields.indices = expand_shards((folder / *index).string());
  spec.finish("label=cls|json.NAME, classes=N or index=PATTERN");
  return open_picture_shards(expand_shards(place), fields);
}

Splits open_folder(std::string_view text, const std::filesystem::path& folder,
                   const OpenPictureOptions& how) {
  SourceSpec spec("folder", text);
  if (spec.file().empty()) spec.refuse("a folder first, as in folder:pictures,size=224", "none");
  const PictureRequest request = take_request(spec, "test=DIR");
  const PictureSplits splits(request.options, how);
  const auto open = [&](const std::string& name) {
    const std::string place = (folder / name).string();
    return PictureFilesAt{place, open_picture_folder(place, {how.index_dir, how.log})};
  };
  const PictureFilesAt files = open(spec.file());
  if (!request.test) return splits.cut(files, request.hold_out);
  const PictureFilesAt others = open(*request.test);
  check_classes(spec, *files.files, *others.files);
  return splits.of(files, others);
}

Splits open_shards(std::string_view text, const std::filesystem::path& folder,
                   const OpenPictureOptions& how) {
  SourceSpec spec("shards", text);
  if (spec.file().empty()) spec.refuse("shards first, as in shards:s-{0000..1281}.tar,size=224", "none");
  ShardFields fields{spec.take("label").value_or("cls"), spec.take_integer("classes", 1, INT32_MAX, 0)};
  const auto index = spec.take("index"), test_index = spec.take("test-index");
  const PictureRequest request =
      take_request(spec, "label=cls|json.NAME, classes=N, index=PATTERN, test=PATTERN, test-index=PATTERN");
  const PictureSplits splits(request.options, how);
  const auto open = [&](const std::string& pattern, const std::optional<std::string>& indices) {
    const std::string place = (folder / pattern).string();
    ShardFields own = fields;
    if (indices) own.indices = expand_shards((folder / *indices).string());
    return PictureFilesAt{place, open_picture_shards(expand_shards(place), own, {how.index_dir, how.log})};
  };
  PictureFilesAt files = open(spec.file(), index);
  if (!request.test) return splits.cut(files, request.hold_out);
  PictureFilesAt others = open(*request.test, test_index);
  if (files.files->classes() != others.files->classes()) {
    count_classes(files, others, fields);
    files = open(spec.file(), index);
    others = open(*request.test, test_index);
  }
  return splits.of(files, others);
}

}  // namespace dtrain
