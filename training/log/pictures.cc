#include "training/log/pictures.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/data/images/contact_sheet.h"
#include "runtime/data/loader.h"

namespace dtrain {
namespace {

using nlohmann::ordered_json;

// A third more as base64: below 100 kB in the page.
constexpr std::size_t kMostSheetBytes = 72'000;

std::string base64(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::uint32_t three = 0;
    for (std::size_t i = 0; i < 3; ++i) three = three << 8 | (at + i < bytes.size() ? bytes[at + i] : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      text += at + i <= bytes.size() ? kDigits[three >> (18 - 6 * i) & 63U] : '=';
  }
  return text;
}

/// Null where there is nothing to show.
ordered_json sheet_json(std::span<const float> values, const Dims& shape,
                        const std::optional<PixelNumbers>& numbers) {
  const auto sheet = make_contact_sheet(values, shape, numbers, kMostSheetBytes);
  if (!sheet) return nullptr;
  return {{"image", "data:image/jpeg;base64," + base64(sheet->jpeg)},
          {"columns", sheet->columns},
          {"cell", {sheet->cell.width, sheet->cell.height}},
          {"size", {sheet->picture.width, sheet->picture.height}}};
}

std::string class_name(std::span<const std::string> names, std::int64_t number) {
  return names.empty() ? std::to_string(number) : names[static_cast<std::size_t>(number)];
}

/// Read again, as the evaluation read them. Null where they are no pictures.
ordered_json mistakes_sheet(const Confusion& confusion, const EvaluatedOn& on, const Deadline& deadline) {
  const Field& field = on.source->fields()[on.image];
  if (confusion.worst.empty() || field.dtype != DType::f32 || field.shape.rank() != 3) return nullptr;
  std::vector<std::int64_t> order;
  for (const Mistake& one : confusion.worst) order.push_back(one.sample);
  Loader loader(on.source, make_device("cpu"), {.batch_size = static_cast<std::int64_t>(order.size())});
  loader.start(std::move(order), 0);
  const auto batch = loader.next(deadline);
  const View& images = batch->views()[on.image];
  return sheet_json({images.as<float>(), static_cast<std::size_t>(images.numel())}, images.shape,
                    on.source->pixel_numbers(on.image));
}

}  // namespace

std::string batch_json(const FedPictures& fed) {
  const ordered_json sheet = sheet_json(fed.values, fed.shape, fed.numbers);
  if (sheet.is_null()) return {};
  ordered_json json = {{"sheet", sheet}, {"samples", ordered_json::array()}};
  for (std::size_t i = 0; i < fed.samples.size(); ++i) {
    json["samples"].push_back({{"sample", fed.samples[i]}});
    if (!fed.files[i].empty()) json["samples"].back()["file"] = fed.files[i];
    if (!fed.labels.empty()) json["samples"].back()["label"] = class_name(fed.classes, fed.labels[i]);
  }
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string evaluation_json(const Confusion& confusion, const EvaluatedAt& at, const EvaluatedOn& on,
                            const Deadline& deadline) {
  ordered_json json = {{"epoch", at.epoch}, {"step", at.step}, {"classes", ordered_json::array()}};
  for (std::int64_t i = 0; i < confusion.classes; ++i)
    json["classes"].push_back(class_name(on.label.value_names, i));
  json["confusion"] = ordered_json::array();
  for (std::size_t i = 0; i < confusion.counts.size(); ++i) {
    const auto classes = static_cast<std::size_t>(confusion.classes);
    if (confusion.counts[i] > 0) json["confusion"].push_back({i / classes, i % classes, confusion.counts[i]});
  }
  json["mistakes"] = ordered_json::array();
  for (const Mistake& one : confusion.worst) {
    json["mistakes"].push_back({{"sample", on.source->place_of(one.sample)},
                                {"label", one.label},
                                {"predicted", one.predicted},
                                {"probability", one.probability}});
    if (const std::string file = on.source->file_of(one.sample); !file.empty())
      json["mistakes"].back()["file"] = file;
  }
  json["sheet"] = mistakes_sheet(confusion, on, deadline);
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dtrain
