// "folder:…" and "shards:…" of --dataset: pictures with a class, clips, and pictures with masks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/options.h"
#include "runtime/data/fingerprint.h"
#include "runtime/data/formats/text.h"
#include "runtime/data/images/clips/clip_source.h"
#include "runtime/data/images/files/growing_source.h"
#include "runtime/data/images/files/picture_source.h"
#include "runtime/data/images/masks/masked_source.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/source_spec.h"

namespace dtrain {
namespace {

constexpr int kMostPixels = 1 << 14;  // of a side
constexpr std::int64_t kMostFrames = 1 << 14, kMostMaskClasses = 65535;

/// 256 for 224, as ImageNet is evaluated.
std::int64_t default_resize(std::int64_t size) { return (size * 8 + 6) / 7; }

/// The files of one place, and what makes samples of them.
struct SampleFiles {
  std::string place;  ///< for messages
  std::int64_t size = 0;
  std::vector<std::string> classes;
  /// With images of `size` pixels a side; 0: as the options of the files say.
  std::function<std::shared_ptr<const Source>(const std::string& name, const Augmentation& augment, int size,
                                              const std::shared_ptr<BadSamples>& bad)>
      make;
  std::function<std::int64_t(std::int64_t index)> label = {};  ///< of the samples that have one class
};

/// The options for images of `size` pixels a side, which show as much of a picture's middle.
PictureOptions changed(PictureOptions options, const Augmentation& augment, int size) {
  options.augmentation = augment;
  if (size == 0) return options;
  const auto scaled = static_cast<std::int64_t>(options.resize) * size / options.size;
  options.resize = std::max(size, static_cast<int>(scaled));
  options.size = size;
  return options;
}

SampleFiles pictures_at(std::string place, const std::shared_ptr<const PictureFiles>& files,
                        const PictureOptions& options) {
  return {std::move(place), files->size(), files->classes(),
          [=](const std::string& name, const Augmentation& augment, int size,
              const std::shared_ptr<BadSamples>& bad) {
            return std::make_shared<const PictureSource>(name, files, changed(options, augment, size), bad);
          },
          [files](std::int64_t index) { return files->label(index); }};
}

SampleFiles clips_at(std::string place, const std::shared_ptr<const ClipFiles>& files,
                     const ClipOptions& options) {
  return {std::move(place), files->size(), files->classes(),
          [=](const std::string& name, const Augmentation& augment, int size,
              const std::shared_ptr<BadSamples>& bad) {
            ClipOptions own = options;
            own.picture = changed(options.picture, augment, size);
            return std::make_shared<const ClipSource>(name, files, own, bad);
          },
          [files](std::int64_t index) { return files->label(index); }};
}

SampleFiles masked_at(std::string place, const std::shared_ptr<const MaskedPictures>& files,
                      const PictureOptions& options, const ClassNumbers& numbers) {
  return {std::move(place), files->size(), files->classes(),
          [=](const std::string& name, const Augmentation& augment, int size,
              const std::shared_ptr<BadSamples>& bad) {
            return std::make_shared<const MaskedSource>(name, files, changed(options, augment, size), numbers,
                                                        bad);
          }};
}

// One network takes both.
void check_classes(const SourceSpec& spec, const SampleFiles& train, const SampleFiles& test) {
  const auto& expected = train.classes;
  const auto& found = test.classes;
  if (expected == found) return;
  const auto first_without = [](const auto& names, const auto& others) {
    return std::ranges::find_if(
        names, [&](const std::string& name) { return std::ranges::find(others, name) == others.end(); });
  };
  const auto missing = first_without(expected, found), extra = first_without(found, expected);
  std::vector<std::string> differ;
  if (missing != expected.end()) differ.push_back(fmt::format("without {}", printable(*missing)));
  if (extra != found.end()) differ.push_back(fmt::format("with {}", printable(*extra)));
  spec.refuse(fmt::format("the same classes for testing as for training ({} of them)", expected.size()),
              fmt::format("{} of them in {}, {}", found.size(), test.place, fmt::join(differ, " and ")));
}

/// Both splits of one set of files, or of one each.
class PictureSplits {
 public:
  explicit PictureSplits(const OpenPictureOptions& how) : how_(how) {}

  /// Each of `train` and `test` has its own files.
  Splits of(const SampleFiles& train, const SampleFiles& test) const {
    return {source(Split::train, train, bad_of(train)), source(Split::test, test, bad_of(test))};
  }
  Splits cut(const SampleFiles& files, const HoldOut& hold_out) const {
    const auto bad = bad_of(files);
    const auto train = source(Split::train, files, bad), test = source(Split::test, files, bad);
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; hold_out.stratify && files.label && i < files.size; ++i)
      labels.push_back(files.label(i));
    SplitIndices indices = split_indices(files.size, hold_out, labels);
    std::vector<bool> held_out(static_cast<std::size_t>(files.size));
    for (const std::int64_t index : indices.test) held_out[static_cast<std::size_t>(index)] = true;
    bad->keep_apart(std::move(held_out));
    return {std::make_shared<SubsetSource>(train->name(), train, std::move(indices.train)),
            std::make_shared<SubsetSource>(test->name(), test, std::move(indices.test))};
  }

 private:
  std::shared_ptr<BadSamples> bad_of(const SampleFiles& files) const {
    return std::make_shared<BadSamples>(how_.on_bad_sample, files.size, how_.log);
  }
  std::shared_ptr<const Source> source(Split split, const SampleFiles& files,
                                       const std::shared_ptr<BadSamples>& bad) const {
    const Augmentation augment = split == Split::train ? how_.augment : Augmentation{};
    const std::string name = fmt::format("pictures {} ({})", name_of(split), files.place);
    auto source = files.make(name, augment, 0, bad);
    if (augment.size.from == 0) return source;
    return std::make_shared<const GrowingSource>(std::move(source),
                                                 [augment, name, bad, make = files.make](std::int64_t epoch) {
                                                   return make(name, augment, augment.size.at(epoch), bad);
                                                 });
  }

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

/// The settings of a picture, or of a frame; what is not set is as in `options`.
PictureOptions take_options(SourceSpec& spec, PictureOptions options = {}) {
  options.size = static_cast<int>(spec.take_integer("size", 1, kMostPixels, options.size));
  options.resize =
      static_cast<int>(spec.take_integer("resize", options.size, kMostPixels, default_resize(options.size)));
  take_numbers(spec, "mean", false, options.numbers.mean);
  take_numbers(spec, "deviation", true, options.numbers.deviation);
  return options;
}

/// The settings of pictures with a class: those, and orientation=exif.
PictureOptions take_class_options(SourceSpec& spec, const OpenPictureOptions& how = {}) {
  PictureOptions options = take_options(spec);
  if (how.cache_bytes > 0) options.cache = std::make_shared<PictureCache>(how.cache_bytes, how.log);
  if (const auto orientation = spec.take("orientation")) {
    if (*orientation != "exif") spec.refuse("orientation=exif, or nothing", *orientation);
    options.upright = true;
  }
  return options;
}

/// frames=N and stride=N: clips are asked for.
std::optional<ClipOptions> take_clip_options(SourceSpec& spec) {
  ClipOptions options;
  const bool asked = spec.has("frames");
  options.frames = static_cast<int>(spec.take_integer("frames", 1, kMostFrames, options.frames));
  if (!asked) return std::nullopt;
  options.stride = static_cast<int>(spec.take_integer("stride", 1, kMostFrames, options.stride));
  return options;
}

/// mask=ENDING, and in a folder masks=DIR: pixels have classes.
struct MaskRequest {
  MaskNames names;
  ClassNumbers numbers;
};

std::optional<MaskRequest> take_masks(SourceSpec& spec) {
  const auto ending = spec.take("mask"), directory = spec.take("masks");
  if (!ending && !directory) return std::nullopt;
  MaskRequest request;
  if (ending) request.names.ending = *ending;
  if (directory) request.names.directory = *directory;
  if (request.names.ending.empty() || request.names.ending.front() == '.')
    spec.refuse("mask=ENDING without a dot in front, as in mask=seg.png", request.names.ending);
  request.numbers.classes = spec.take_integer("classes", 0, kMostMaskClasses, 0);
  if (request.numbers.classes == 0) spec.refuse("classes=N, how many classes pixels may have", "none");
  request.numbers.ignored = spec.take_integer("ignore", 0, kMostMaskClasses, request.numbers.ignored);
  return request;
}

/// What the names of all kinds say.
struct PictureRequest {
  PictureOptions options;
  std::optional<std::string> test;
  HoldOut hold_out;
};

/// Takes what is left of `spec`; `known` lists the settings of its kind alone.
PictureRequest take_request(SourceSpec& spec, const PictureOptions& options, std::string_view known) {
  PictureRequest request{options, spec.take("test"), take_hold_out(spec)};
  spec.finish(fmt::format("size=N, resize=N, mean=X, deviation=X, {}, {}", known, kHoldOutSettings));
  HoldOut& how = request.hold_out;
  if (!request.test && how.folds == 0 && how.share == 0) how.share = kDefaultTrainShare;
  check_hold_out(spec, how, request.test.has_value());
  return request;
}

/// Both splits of folders that `open` makes files of.
Splits open_folders(const SourceSpec& spec, const PictureRequest& request, const OpenPictureOptions& how,
                    const std::function<SampleFiles(const std::string& name)>& open) {
  const PictureSplits splits(how);
  const SampleFiles files = open(spec.file());
  if (!request.test) return splits.cut(files, request.hold_out);
  const SampleFiles others = open(*request.test);
  check_classes(spec, files, others);
  return splits.of(files, others);
}

/// `what` is no picture with a class.
void refuse_cache(const SourceSpec& spec, const OpenPictureOptions& how, std::string_view what) {
  if (how.cache_bytes > 0)
    spec.refuse("pictures with a class for an image cache",
                fmt::format("{} and a cache of {} bytes", what, how.cache_bytes));
}

Splits open_clips(SourceSpec& spec, ClipOptions options, const std::filesystem::path& folder,
                  const OpenPictureOptions& how) {
  refuse_cache(spec, how, "clips");
  const PictureRequest request =
      take_request(spec, take_options(spec, options.picture), "frames=N, stride=N, test=DIR");
  options.picture = request.options;
  return open_folders(spec, request, how, [&](const std::string& name) {
    const std::string place = (folder / name).string();
    return clips_at(place, open_clip_folder(place, {how.index_dir, how.log}), options);
  });
}

Splits open_masks(SourceSpec& spec, const MaskRequest& masks, const std::filesystem::path& folder,
                  const OpenPictureOptions& how) {
  refuse_cache(spec, how, "masks");
  const auto test_masks = spec.take("test-masks");
  const PictureRequest request = take_request(
      spec, take_options(spec), "mask=ENDING, masks=DIR, classes=N, ignore=N, test=DIR, test-masks=DIR");
  if (test_masks.has_value() != (request.test && !masks.names.directory.empty())) {
    spec.refuse("test-masks=DIR beside masks=DIR and test=DIR, and only there",
                test_masks ? "test-masks=" + *test_masks : "none");
  }
  const auto open = [&](const std::string& name) {
    MaskNames names = masks.names;
    if (request.test && name == *request.test && test_masks) names.directory = *test_masks;
    if (!names.directory.empty()) names.directory = (folder / names.directory).string();
    const std::string place = (folder / name).string();
    return masked_at(place, open_masked_folder(place, names), request.options, masks.numbers);
  };
  return open_folders(spec, request, how, open);
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
  PicturesToPredict result;
  const auto none_bad = [](std::int64_t size) {
    return std::make_shared<BadSamples>(OnBadSample::stop, size, nullptr);
  };
  if (auto clips = take_clip_options(spec)) {
    clips->picture = take_options(spec, clips->picture);
    const auto files = open_clip_list(path);
    for (std::int64_t i = 0; i < files->size(); ++i) result.places.push_back(files->place(i));
    result.source = std::make_shared<const ClipSource>(path, files, *clips, none_bad(files->size()));
    return result;
  }
  const PictureOptions options = take_class_options(spec);
  const auto masks = take_masks(spec);
  const bool beside = masks && masks->names.directory.empty();
  // Shards are read without labels and masks: what is to be named need not have them.
  const auto files = path.ends_with(".tar")
                         ? open_picture_shards(expand_shards(path), {.unlabelled = true})
                         : open_picture_list(path, Listed::pictures, beside ? masks->names.ending : "");
  for (std::int64_t i = 0; i < files->size(); ++i) result.places.push_back(files->place(i));
  result.source = std::make_shared<const PictureSource>(path, files, options, none_bad(files->size()));
  return result;
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
  if (const auto clips = take_clip_options(spec)) return open_clips(spec, *clips, folder, how);
  if (const auto masks = take_masks(spec)) return open_masks(spec, *masks, folder, how);
  const PictureRequest request = take_request(spec, take_class_options(spec, how),
                                              "orientation=exif, frames=N, mask=ENDING, masks=DIR, test=DIR");
  return open_folders(spec, request, how, [&](const std::string& name) {
    const std::string place = (folder / name).string();
    return pictures_at(place, open_picture_folder(place, {how.index_dir, how.log}), request.options);
  });
}

Splits open_shards(std::string_view text, const std::filesystem::path& folder,
                   const OpenPictureOptions& how) {
  SourceSpec spec("shards", text);
  if (spec.file().empty()) spec.refuse("shards first, as in shards:s-{0000..1281}.tar,size=224", "none");
  const std::optional<MaskRequest> masks = spec.has("mask") ? take_masks(spec) : std::nullopt;
  ShardFields fields;
  if (masks) {
    refuse_cache(spec, how, "masks");
    if (!masks->names.directory.empty())
      spec.refuse("no masks=DIR, as masks are in the shards", "masks=" + masks->names.directory);
    fields.mask = masks->names.ending;
    fields.classes = masks->numbers.classes;
  } else {
    fields.label = spec.take("label").value_or("cls");
    fields.classes = spec.take_integer("classes", 1, INT32_MAX, 0);
  }
  const auto index = spec.take("index"), test_index = spec.take("test-index");
  const PictureRequest request = take_request(
      spec, masks ? take_options(spec) : take_class_options(spec, how),
      "orientation=exif, label=cls|json.NAME, mask=ENDING, classes=N, ignore=N, index=PATTERN, test=PATTERN, "
      "test-index=PATTERN");
  const PictureSplits splits(how);
  const auto open = [&](const std::string& pattern, const std::optional<std::string>& indices) {
    const std::string place = (folder / pattern).string();
    ShardFields own = fields;
    if (indices) own.indices = expand_shards((folder / *indices).string());
    const IndexPlace kept{how.index_dir, how.log};
    if (masks)
      return masked_at(place, open_masked_shards(expand_shards(place), own, kept), request.options,
                       masks->numbers);
    return pictures_at(place, open_picture_shards(expand_shards(place), own, kept), request.options);
  };
  SampleFiles files = open(spec.file(), index);
  if (!request.test) return splits.cut(files, request.hold_out);
  SampleFiles others = open(*request.test, test_index);
  if (files.classes != others.classes) {
    // Labels that nobody named are as many as the split with the larger ones says.
    fields.classes = static_cast<std::int64_t>(std::max(files.classes.size(), others.classes.size()));
    files = open(spec.file(), index);
    others = open(*request.test, test_index);
  }
  Splits both = splits.of(files, others);
  if (!difference(names_of_values(both.train->fields()), names_of_values(both.test->fields())).empty())
    check_classes(spec, files, others);
  return both;
}

}  // namespace dtrain
