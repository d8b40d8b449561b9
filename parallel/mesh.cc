#include "parallel/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/options.h"

namespace dtrain {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& what) {
  throw UsageError(fmt::format("mesh '{}': {}", text, what));
}

MeshAxis parse_axis(std::string_view text, std::string_view whole) {
  const auto equals = text.find('=');
  const std::string_view size = equals == std::string_view::npos ? "" : text.substr(equals + 1);
  const std::string name(text.substr(0, equals));
  if (name.empty() || size.empty())
    refuse(whole, fmt::format("expected axes like dp=2,tp=2, got '{}'", text));
  if (size == "auto") return {name, kAutoSize};
  const auto number = parse_integer(std::string(size));
  if (!number || *number < 1 || *number > INT32_MAX)
    refuse(whole, fmt::format("expected a size from 1 on or auto for {}, got '{}'", name, size));
  return {name, static_cast<int>(*number)};
}

// Fills in the axis that takes what is left.
std::vector<MeshAxis> complete(std::vector<MeshAxis> axes, int ranks) {
  const std::string text = text_of(axes);
  std::int64_t product = 1;
  MeshAxis* open = nullptr;
  for (MeshAxis& axis : axes) {
    if (axis.size != kAutoSize) {
      product *= axis.size;
    } else if (std::exchange(open, &axis) != nullptr) {
      refuse(text, "expected one axis of size auto at most");
    }
  }
  if (open != nullptr && ranks % product == 0) {
    open->size = static_cast<int>(ranks / product);
  } else if (open != nullptr || product != ranks) {
    refuse(text, fmt::format("expected {} {} ranks, got {}", open != nullptr ? "a multiple of" : "exactly",
                             product, ranks));
  }
  return axes;
}

}  // namespace

std::vector<MeshAxis> parse_mesh(std::string_view text) {
  std::vector<MeshAxis> axes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    MeshAxis axis = parse_axis(text.substr(begin, end - begin), text);
    if (std::any_of(axes.begin(), axes.end(), [&](const MeshAxis& other) { return other.name == axis.name; }))
      refuse(text, fmt::format("axis {} comes twice", axis.name));
    axes.push_back(std::move(axis));
    begin = end + 1;
  }
  return axes;
}

std::string text_of(std::span<const MeshAxis> axes) {
  std::string text;
  for (const MeshAxis& axis : axes) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", axis.name,
                        axis.size == kAutoSize ? "auto" : std::to_string(axis.size));
  }
  return text;
}

MeshShape::MeshShape(std::vector<MeshAxis> axes, int ranks)
    : axes_(complete(std::move(axes), ranks)), strides_(axes_.size(), 1) {
  for (std::size_t i = axes_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * axes_[i].size;
}

bool MeshShape::has(std::string_view axis) const noexcept {
  return std::any_of(axes_.begin(), axes_.end(), [&](const MeshAxis& one) { return one.name == axis; });
}

int MeshShape::size(std::string_view axis) const noexcept {
  for (const MeshAxis& one : axes_) {
    if (one.name == axis) return one.size;
  }
  return 1;
}

int MeshShape::coordinate(int rank, std::string_view axis) const noexcept {
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].name == axis) return rank / strides_[i] % axes_[i].size;
  }
  return 0;
}

std::vector<int> MeshShape::ranks_along(int rank, std::span<const std::string> axes) const {
  int all = 1;
  for (const MeshAxis& axis : axes_) all *= axis.size;
  std::vector<int> found;
  for (int other = 0; other < all; ++other) {
    const bool alike = std::all_of(axes_.begin(), axes_.end(), [&](const MeshAxis& axis) {
      return std::find(axes.begin(), axes.end(), axis.name) != axes.end() ||
             coordinate(other, axis.name) == coordinate(rank, axis.name);
    });
    if (alike) found.push_back(other);
  }
  return found;
}

Mesh::Mesh(Communicator& world, std::vector<MeshAxis> axes, const Deadline& deadline)
    : world_(world), shape_(std::move(axes), world.size()) {
  // Ranks that want different meshes are shown both, instead of waiting in groups that never form.
  world_.barrier("mesh " + text_of(shape_.axes()))->wait(deadline);
  for (const MeshAxis& axis : shape_.axes())
    groups_.emplace(axis.name, make_group(std::span(&axis.name, 1), deadline));
}

Communicator& Mesh::group(std::string_view axis) const {
  const auto found = groups_.find(axis);
  if (found != groups_.end()) return *found->second;
  throw UsageError(fmt::format("mesh '{}': has no axis '{}'", text_of(shape_.axes()), axis));
}

std::unique_ptr<Communicator> Mesh::make_group(std::span<const std::string> axes,
                                               const Deadline& deadline) const {
  // The lowest of its ranks stands for a group.
  const std::vector<int> members = shape_.ranks_along(world_.rank(), axes);
  return world_.split(members.front(), world_.rank(), deadline);
}

}  // namespace dtrain
