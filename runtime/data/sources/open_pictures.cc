// "folder:…" of --dataset.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/error.h"
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
    options.augmentation = split == Split::train ? how_.augment : Augmentation::none;
    return std::make_shared<const PictureSource>(fmt::format("pictures {} ({})", name_of(split), at.place),
                                                 at.files, options, std::move(bad));
  }

  PictureOptions options_;
  OpenPictureOptions how_;
};

PictureOptions take_options(SourceSpec& spec) {
  PictureOptions options;
  options.size = static_cast<int>(spec.take_integer("size", 1, kMostPixels, options.size));
  options.resize =
      static_cast<int>(spec.take_integer("resize", options.size, kMostPixels, default_resize(options.size)));
  return options;
}

}  // namespace

Splits open_pictures(std::string_view text, const std::filesystem::path& folder,
                     const OpenPictureOptions& how) {
  SourceSpec spec("folder", text);
  if (spec.file().empty()) spec.refuse("a folder first, as in folder:pictures,size=224", "none");
  const PictureSplits splits(take_options(spec), how);
  const auto test = spec.take("test");
  HoldOut hold_out = HoldOut::take(spec);
  spec.finish("size=N, resize=N, test=DIR, split=SHARE or split-seed=N");
  if (!test && hold_out.share == 0) hold_out.share = kDefaultShare;
  hold_out.check(spec, test.has_value());
  const auto open = [&](const std::string& name) {
    const std::string place = (folder / name).string();
    return PictureFilesAt{place, open_picture_folder(place)};
  };
  const PictureFilesAt files = open(spec.file());
  if (!test) return splits.cut(files, hold_out);
  const PictureFilesAt others = open(*test);
  check_classes(spec, *files.files, *others.files);
  return splits.of(files, others);
}

}  // namespace dtrain
