#include "runtime/data/images/clips/clip_source.h"

#include <fmt/format.h>

#include "runtime/base/error.h"
#include "runtime/data/images/draws.h"

namespace dtrain {
namespace {

/// Frame `number` of `clip`, f32 [T, 3, H, W].
View frame_of(const View& clip, std::int64_t number) {
  return {clip.as<float>() + number * clip.strides[0],
          clip.dtype,
          {clip.shape[1], clip.shape[2], clip.shape[3]},
          {clip.strides[1], clip.strides[2], clip.strides[3]}};
}

}  // namespace

ClipSource::ClipSource(std::string name, std::shared_ptr<const ClipFiles> files, const ClipOptions& options,
                       std::shared_ptr<BadSamples> bad)
    : name_(std::move(name)),
      files_(std::move(files)),
      bad_(std::move(bad)),
      options_(options),
      transform_(options.picture.size, options.picture.resize, options.picture.augmentation,
                 options.picture.numbers),
      spanned_(static_cast<std::int64_t>(options.frames - 1) * options.stride + 1),
      fields_{{.name = "clip", .shape = {options.frames, 3, options.picture.size, options.picture.size}},
              {.name = "label",
               .dtype = DType::i64,
               .values = static_cast<std::int64_t>(files_->classes().size()),
               .value_names = files_->classes()}} {
  if (options.frames < 1 || options.stride < 1) {
    throw UsageError(
        fmt::format("clips: expected at least 1 frame, and a stride of at least 1, got {} and {}",
                    options.frames, options.stride));
  }
  for (std::int64_t i = 0; i < files_->size(); ++i) {
    if (const std::int64_t frames = files_->frames(i); frames > 0) check_frames(i, frames);
  }
}

void ClipSource::check_frames(std::int64_t index, std::int64_t frames) const {
  if (frames >= spanned_) return;
  throw DataError(
      files_->place(index), -1,
      fmt::format("at least {} frames, for {} that are {} apart", spanned_, options_.frames, options_.stride),
      fmt::format("{}; take fewer, or remove the clip", frames));
}

void ClipSource::read_clip(std::int64_t index, const View& clip, KeyedGenerator& generator) const {
  const auto file = files_->open(index);
  check_frames(index, file->frames());
  const std::int64_t choices = file->frames() - spanned_ + 1;
  std::int64_t first = (choices - 1) / 2;
  if (options_.picture.augmentation != Augmentation{} && choices > 1)
    first = draws::below(generator, static_cast<int>(choices));
  DrawnChanges changes;
  PictureSize size;
  for (int t = 0; t < options_.frames; ++t) {
    const std::int64_t number = first + static_cast<std::int64_t>(t) * options_.stride;
    const auto frame = file->frame(number);
    if (t == 0) {
      size = frame->size();
      changes = transform_.draw(size, generator);
    } else if (frame->size() != size) {
      throw DataError(
          file->place(number), -1,
          fmt::format("a frame of {} x {}, as {} is", size.width, size.height, file->place(first)),
          fmt::format("{} x {}", frame->size().width, frame->size().height));
    }
    transform_(*frame, changes, frame_of(clip, t));
  }
}

void ClipSource::read(std::int64_t index, std::span<const View> outputs, KeyedGenerator& generator) const {
  bad_->read_good(index, generator, [&](std::int64_t at, KeyedGenerator& own) {
    read_clip(at, outputs[0], own);
    *outputs[1].as<std::int64_t>() = files_->label(at);
  });
}

}  // namespace dtrain
