#include "runtime/data/images/files/picture_source.h"

#include "runtime/data/sources/pixels.h"

namespace dtrain {

PictureSource::PictureSource(std::string name, std::shared_ptr<const PictureFiles> files,
                             const PictureOptions& options, std::shared_ptr<BadSamples> bad)
    : name_(std::move(name)),
      files_(std::move(files)),
      bad_(std::move(bad)),
      transform_(options.size, options.resize, options.augmentation, options.numbers),
      numbers_(options.numbers),
      fields_(labelled_image({3, options.size, options.size},
                             static_cast<std::int64_t>(files_->classes().size()))) {
  fields_.back().value_names = files_->classes();
}

// A bad sample's place is taken by the next good one, with the numbers that the place would have drawn.
void PictureSource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const {
  thread_local std::vector<std::uint8_t> memory;
  for (std::int64_t at = index;; at = (at + 1) % size()) {
    KeyedGenerator own = generator;
    try {
      const auto decoder = open_picture(files_->read(at, memory));
      transform_(*decoder, own, outputs[0]);
    } catch (const DataError& error) {
      bad_->found(at, error);
      continue;
    }
    *outputs[1].as<std::int64_t>() = files_->label(at);
    generator = own;
    return;
  }
}

}  // namespace dtrain
