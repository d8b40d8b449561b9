// The groups in which the stages of a pipeline send to each other, so that no message waits behind one that
// has nothing to do with it.
#pragma once

#include <memory>
#include <vector>

#include "parallel/mesh.h"

namespace dtrain {

/// Whether the last stage sends to the first, too (interleaved stages).
enum class PipelineShape { line, ring };

/// One rank's. Calls of one communicator run in order, and a send may wait for its receiver; so in each group
/// here a stage only sends or only receives, and what it receives comes from one stage, in the order in which
/// that one sends. Neighbouring cuts have different groups, and so have the two directions.
class PipelineLinks {
 public:
  /// Collective over mesh.world(); `mesh` outlives the links. The stages are the ranks along axis `pp`.
  PipelineLinks(const Mesh& mesh, PipelineShape shape, const Deadline& deadline);

  /// All stages of this pipeline, in order: for what concerns all of them.
  Communicator& stages() const { return mesh_.group("pp"); }
  /// Where stage `from` sends activations to the stage behind it.
  Communicator& activations(int from) const { return *forwards_[color(from)]; }
  /// Where stage `from` gets gradients from the stage behind it.
  Communicator& gradients(int from) const { return *backwards_[color(from)]; }

 private:
  /// Of the cut behind stage `from`: neighbouring cuts have different colors.
  std::size_t color(int from) const;

  const Mesh& mesh_;
  PipelineShape shape_;
  std::vector<std::unique_ptr<Communicator>> forwards_, backwards_;  ///< by color
};

}  // namespace dtrain
