#include "parallel/schedule/links.h"

#include <algorithm>
#include <string>

namespace dtrain {
namespace {

// The last cut of a ring of an odd number of stages lies between two of either color.
int color_of(int from, int stages, PipelineShape shape) {
  const bool closes = shape == PipelineShape::ring && from + 1 == stages;
  return closes && stages % 2 == 1 ? 2 : from % 2;
}

int colors_of(int stages, PipelineShape shape) {
  int colors = 0;
  const int cuts = shape == PipelineShape::ring ? stages : stages - 1;
  for (int from = 0; from < cuts; ++from) colors = std::max(colors, color_of(from, stages, shape) + 1);
  return colors;
}

}  // namespace

PipelineLinks::PipelineLinks(const Mesh& mesh, PipelineShape shape, const Deadline& deadline)
    : mesh_(mesh), shape_(shape) {
  const int stages = mesh.size("pp");
  if (stages == 1) return;
  // NCCL connects a group at its first call, which waits for all of its ranks; a message is between two.
  const std::string axes[] = {"pp"};
  const auto connected = [&] {
    auto group = mesh.make_group(axes, deadline);
    group->barrier("stages connect")->wait(deadline);
    return group;
  };
  for (int color = 0; color < colors_of(stages, shape); ++color) {
    forwards_.push_back(connected());
    backwards_.push_back(connected());
  }
}

std::size_t PipelineLinks::color(int from) const {
  return static_cast<std::size_t>(color_of(from, mesh_.size("pp"), shape_));
}

}  // namespace dtrain
