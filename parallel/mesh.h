// Ranks as a grid with named axes: which of them hold copies of the same, which a part each.
//
//     Mesh mesh(world, parse_mesh("dp=2,tp=2"), deadline);
//     mesh.group("tp").all_reduce(…);      // among the ranks that differ from this one along tp alone
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace dtrain {

struct MeshAxis {
  std::string name;
  int size = 1;  ///< kAutoSize: what is left of the ranks, in one axis at most
};

inline constexpr int kAutoSize = 0;

/// "dp=2,pp=2,tp=2", "dp=auto,tp=2". Throws UsageError for text that is not such a list, a name that comes
/// twice and sizes below 1.
std::vector<MeshAxis> parse_mesh(std::string_view text);

/// "dp=2,tp=2"
std::string text_of(std::span<const MeshAxis> axes);

/// The place of one rank in a grid, row-major as in torch's init_device_mesh: the last axis varies fastest.
/// Pure arithmetic.
class MeshShape {
 public:
  /// `axes` cover `ranks` ranks. Throws UsageError, with the numbers, where their product is not that.
  MeshShape(std::vector<MeshAxis> axes, int ranks);

  const std::vector<MeshAxis>& axes() const noexcept { return axes_; }
  bool has(std::string_view axis) const noexcept;
  /// 1 for an axis that the mesh does not have.
  int size(std::string_view axis) const noexcept;
  /// 0 for an axis that the mesh does not have.
  int coordinate(int rank, std::string_view axis) const noexcept;
  /// The ranks that differ from `rank` along `axes` alone, `rank` included, in row-major order.
  std::vector<int> ranks_along(int rank, std::span<const std::string> axes) const;

 private:
  std::vector<MeshAxis> axes_;
  std::vector<int> strides_;
};

/// One rank's.
class Mesh {
 public:
  /// Collective over `world`, which outlives the mesh: a group is split off for each axis. Throws UsageError
  /// as MeshShape, and PeerError where ranks want different meshes (both are shown) or `deadline` passes.
  Mesh(Communicator& world, std::vector<MeshAxis> axes, const Deadline& deadline);

  const MeshShape& shape() const noexcept { return shape_; }
  int size(std::string_view axis) const noexcept { return shape_.size(axis); }
  /// This rank's place along `axis`, which is its rank in group(axis).
  int coordinate(std::string_view axis) const noexcept { return shape_.coordinate(world_.rank(), axis); }
  Communicator& world() const noexcept { return world_; }
  /// The ranks that differ from this one along `axis` alone, in order. Throws UsageError for an axis that the
  /// mesh does not have.
  Communicator& group(std::string_view axis) const;
  /// Collective over the world. A further group, of the ranks that differ along `axes` alone: all replicas of
  /// what a stage holds, say. The caller's; it must be gone before the world is.
  std::unique_ptr<Communicator> make_group(std::span<const std::string> axes, const Deadline& deadline) const;

 private:
  Communicator& world_;
  MeshShape shape_;
  std::map<std::string, std::unique_ptr<Communicator>, std::less<>> groups_;
};

}  // namespace dtrain
