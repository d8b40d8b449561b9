#include "runtime/data/images/augmentation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <vector>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

constexpr std::array<std::string_view, 3> kPresets = {"none", "imagenet", "imagenet-v2"};
constexpr std::string_view kSteps =
    "crop, flip, jitter=BRIGHTNESS/CONTRAST/SATURATION/HUE, randaugment=OPS/MAGNITUDE, trivialaugment, "
    "erase=PROBABILITY, size=PIXELS, size=FROM/TO/FIRST/LAST";
constexpr int kMostSide = 1 << 14;  // of a side
constexpr int kSizeStep = 32, kMostEpochs = 1'000'000;

const std::array<Augmentation, 3>& presets() {
  static const std::array<Augmentation, 3> values = {
      Augmentation{},
      {.crop = true, .flip = true},
      {.crop = true, .flip = true, .trivial_augment = true, .erase = 0.1}};
  return values;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t end = text.find(at); end != std::string_view::npos; end = text.find(at)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

/// `count` numbers from 0 to `most`, separated by slashes; nothing where it is not that.
std::optional<std::vector<double>> numbers(std::string_view text, std::size_t count, double most) {
  std::vector<double> values;
  for (const std::string_view part : split(text, '/')) {
    double value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || !(value >= 0 && value <= most)) return {};
    values.push_back(value);
  }
  if (values.size() != count) return {};
  return values;
}

bool is_whole(double value) { return value == std::floor(value); }

/// "176" or "160/192/11/13"; nothing where it is neither.
std::optional<TrainingSize> training_size(std::string_view text) {
  auto v = numbers(text, 1, kMostSide);
  v = v ? std::vector{v->front(), v->front(), 0.0, 0.0} : numbers(text, 4, kMostEpochs);
  if (!v || !std::ranges::all_of(*v, is_whole)) return {};
  TrainingSize size{static_cast<int>((*v)[0]), static_cast<int>((*v)[1]), static_cast<int>((*v)[2]),
                    static_cast<int>((*v)[3])};
  const bool fits = std::min(size.from, size.to) >= 1 && std::max(size.from, size.to) <= kMostSide;
  if (!fits || size.first > size.last) return {};
  if (size.from == size.to) size.first = size.last = 0;
  return size;
}

/// Adds one step to `to`; false where it is none.
bool add_step(std::string_view step, Augmentation& to) {
  const std::size_t equals = step.find('=');
  const bool has_value = equals != std::string_view::npos;
  const std::string_view name = step.substr(0, equals), value = has_value ? step.substr(equals + 1) : "";
  if (name == "jitter") {
    const auto v = numbers(value, 4, 1e6);
    if (!v || (*v)[3] > 0.5) return false;
    to.jitter = {(*v)[0], (*v)[1], (*v)[2], (*v)[3]};
  } else if (name == "randaugment") {
    const auto v = numbers(has_value ? value : "2/9", 2, kMagnitudes - 1);
    if (!v || !is_whole((*v)[0]) || !is_whole((*v)[1]) || (*v)[0] < 1) return false;
    to.rand_augment = {static_cast<int>((*v)[0]), static_cast<int>((*v)[1])};
  } else if (name == "erase") {
    const auto v = numbers(value, 1, 1);
    if (!v) return false;
    to.erase = v->front();
  } else if (name == "size") {
    const auto size = training_size(value);
    if (!size) return false;
    to.size = *size;
  } else if (has_value) {
    return false;
  } else if (name == "crop") {
    to.crop = true;
  } else if (name == "flip") {
    to.flip = true;
  } else if (name == "trivialaugment") {
    to.trivial_augment = true;
  } else {
    return false;
  }
  return true;
}

[[noreturn]] void refuse(std::string_view text, std::string_view found) {
  throw UsageError(fmt::format("augment: expected one of {}, or steps ({}) separated by commas, got \"{}\"{}",
                               fmt::join(kPresets, ", "), kSteps, text,
                               found == text ? "" : fmt::format(" with \"{}\"", found)));
}

/// Of row `row`, which both policies have, the largest amount.
PolicyRow policy_row(int row, float shear, float shift_x, float shift_y, float turn, float change,
                     float bits_lost) {
  using enum PictureOpKind;
  const std::array<PolicyRow, kPolicyRows> rows = {{{identity},
                                                    {shear_x, true, true, 0, shear},
                                                    {shear_y, true, true, 0, shear},
                                                    {translate_x, true, true, 0, shift_x},
                                                    {translate_y, true, true, 0, shift_y},
                                                    {rotate, true, true, 0, turn},
                                                    {brightness, true, true, 0, change},
                                                    {color, true, true, 0, change},
                                                    {contrast, true, true, 0, change},
                                                    {sharpness, true, true, 0, change},
                                                    {posterize, true, false, 8, 8 - bits_lost},
                                                    {solarize, true, false, 255, 0},
                                                    {auto_contrast},
                                                    {equalize}}};
  return rows[static_cast<std::size_t>(row)];
}

/// As torch.linspace(least, most, kMagnitudes)[i].
float in_steps(float least, float most, int i) {
  const float step = (most - least) / (kMagnitudes - 1);
  const int left = kMagnitudes - 1 - i;
  return i < kMagnitudes / 2 ? std::fma(step, static_cast<float>(i), least)
                             : std::fma(-step, static_cast<float>(left), most);
}

bool is_factor(PictureOpKind kind) {
  using enum PictureOpKind;
  return kind == brightness || kind == color || kind == contrast || kind == sharpness;
}

}  // namespace

std::span<const std::string_view> augmentation_presets() noexcept { return kPresets; }

std::string name_of(const TrainingSize& size) {
  if (size.from == size.to) return fmt::format("{}", size.from);
  return fmt::format("{}/{}/{}/{}", size.from, size.to, size.first, size.last);
}

int TrainingSize::at(std::int64_t epoch) const noexcept {
  if (epoch <= first) return from;
  if (epoch >= last) return to;
  const double share = static_cast<double>(epoch - first) / (last - first);
  const auto steps = static_cast<int>(std::nearbyint((from + (to - from) * share) / kSizeStep));
  return std::clamp(steps * kSizeStep, std::min(from, to), std::max(from, to));
}

std::string name_of(const Augmentation& augmentation) {
  for (std::size_t i = 0; i < kPresets.size(); ++i)
    if (augmentation == presets()[i]) return std::string(kPresets[i]);
  std::vector<std::string> steps;
  if (augmentation.crop) steps.emplace_back("crop");
  if (augmentation.flip) steps.emplace_back("flip");
  if (const ColorJitter& j = augmentation.jitter; j != ColorJitter{})
    steps.push_back(fmt::format("jitter={}/{}/{}/{}", j.brightness, j.contrast, j.saturation, j.hue));
  if (const RandAugment& r = augmentation.rand_augment; r.ops > 0)
    steps.push_back(fmt::format("randaugment={}/{}", r.ops, r.magnitude));
  if (augmentation.trivial_augment) steps.emplace_back("trivialaugment");
  if (augmentation.erase > 0) steps.push_back(fmt::format("erase={}", augmentation.erase));
  if (augmentation.size.from > 0) steps.push_back("size=" + name_of(augmentation.size));
  return fmt::format("{}", fmt::join(steps, ","));
}

Augmentation augmentation_named(std::string_view text) {
  Augmentation augmentation;
  bool first = true;
  for (const std::string_view step : split(text, ',')) {
    const auto preset = std::ranges::find(kPresets, step);
    if (first && preset != kPresets.end()) {
      augmentation = presets()[static_cast<std::size_t>(preset - kPresets.begin())];
    } else if (!add_step(step, augmentation)) {
      refuse(text, step);
    }
    first = false;
  }
  return augmentation;
}

PolicyRow rand_augment_row(int row, PictureSize size) {
  const auto shift = [](int side) { return static_cast<float>(150.0 / 331.0 * side); };
  return policy_row(row, 0.3F, shift(size.width), shift(size.height), 30, 0.9F, 4);
}

PolicyRow trivial_augment_row(int row) { return policy_row(row, 0.99F, 32, 32, 135, 0.99F, 6); }

PictureOp PolicyRow::op(int magnitude, bool negative) const {
  if (!has_magnitude) return {kind, 0};
  if (kind == PictureOpKind::posterize) {
    const float steps = (kMagnitudes - 1) / (least - most);
    return {kind, least - std::nearbyint(static_cast<float>(magnitude) / steps)};
  }
  double amount = in_steps(least, most, magnitude);
  if (negative) amount = -amount;
  return {kind, is_factor(kind) ? 1.0 + amount : amount};
}

}  // namespace dtrain
