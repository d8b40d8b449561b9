#include "runtime/data/images/files/picture_source.h"

#include "runtime/data/images/files/orientation.h"
#include "runtime/data/sources/pixels.h"

namespace dtrain {

PictureSource::PictureSource(std::string name, std::shared_ptr<const PictureFiles> files,
                             const PictureOptions& options, std::shared_ptr<BadSamples> bad)
    : name_(std::move(name)),
      files_(std::move(files)),
      bad_(std::move(bad)),
      transform_(options.size, options.resize, options.augmentation, options.numbers),
      numbers_(options.numbers),
      upright_(options.upright),
      cache_(options.cache),
      fields_(labelled_image({3, options.size, options.size},
                             static_cast<std::int64_t>(files_->classes().size()))) {
  fields_.back().value_names = files_->classes();
}

// What it returns refers to memory of this thread, until the next call.
std::unique_ptr<PictureDecoder> PictureSource::open(std::int64_t index) const {
  thread_local std::vector<std::uint8_t> memory;
  const EncodedPicture encoded = files_->read(index, memory);
  auto picture = open_picture(encoded);
  if (upright_) picture = turned_upright(std::move(picture), exif_orientation(encoded.bytes));
  return picture;
}

void PictureSource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const {
  bad_->read_good(index, generator, [&](std::int64_t at, KeyedGenerator& own) {
    const auto decode = [&] { return open(at); };
    const auto picture = cache_ != nullptr ? cache_->open(files_.get(), at, decode) : decode();
    transform_(*picture, own, outputs[0]);
    *outputs[1].as<std::int64_t>() = files_->label(at);
  });
}

}  // namespace dtrain
