#include "runtime/data/images/masks/masked_source.h"

#include <fmt/format.h>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

std::vector<Field> fields_of(const MaskedPictures& files, int size, const ClassNumbers& numbers) {
  Field mask{.name = "mask",
             .dtype = DType::i64,
             .shape = {size, size},
             .values = numbers.classes,
             .has_none = true};
  if (static_cast<std::int64_t>(files.classes().size()) == numbers.classes)
    mask.value_names = files.classes();
  return {{.name = "image", .shape = {3, size, size}}, std::move(mask)};
}

}  // namespace

MaskedSource::MaskedSource(std::string name, std::shared_ptr<const MaskedPictures> files,
                           const PictureOptions& options, const ClassNumbers& numbers,
                           std::shared_ptr<BadSamples> bad)
    : name_(std::move(name)),
      files_(std::move(files)),
      bad_(std::move(bad)),
      transform_(options.size, options.resize, options.augmentation, options.numbers),
      numbers_(options.numbers),
      classes_(numbers),
      fields_(fields_of(*files_, options.size, numbers)) {
  if (numbers.classes < 1)
    throw UsageError(fmt::format("{}: expected at least one class, got {}", name_, numbers.classes));
  if (options.augmentation.rand_augment.ops > 0 || options.augmentation.trivial_augment) {
    throw UsageError(fmt::format(
        "augment: expected crop, flip, jitter or erase for pictures with masks, got \"{}\", which "
        "turns and shears pictures (torchvision's do not take masks either)",
        name_of(options.augmentation)));
  }
}

void MaskedSource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const {
  thread_local std::vector<std::uint8_t> memory, mask_memory;
  bad_->read_good(index, generator, [&](std::int64_t at, KeyedGenerator& own) {
    const auto picture = open_picture(files_->read(at, memory));
    const EncodedPicture encoded = files_->read_mask(at, mask_memory);
    const ClassMap map = decode_class_map(encoded);
    if (map.size != picture->size()) {
      throw DataError(encoded.path, encoded.offset,
                      fmt::format("a mask of {} x {}, as its picture {} is", picture->size().width,
                                  picture->size().height, files_->place(at)),
                      fmt::format("{} x {}", map.size.width, map.size.height));
    }
    check_class_map(map, classes_, encoded);
    const DrawnChanges changes = transform_.draw(map.size, own);
    transform_(*picture, changes, outputs[0]);
    write_classes(map, classes_, transform_.seen_region(map.size, changes), changes.flip, outputs[1]);
  });
}

}  // namespace dtrain
