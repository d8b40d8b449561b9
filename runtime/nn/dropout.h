// Dropout (Srivastava et al. 2014) whose masks do not depend on which rank computes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/autograd/ops/attention.h"
#include "runtime/nn/module.h"

namespace dtrain {

/// Where the masks of a network's dropout layers come from. An element's fate is a function of the seed, the
/// step, its layer, the sample it belongs to and its place in the sample, and of nothing else: no stream of
/// random numbers runs from step to step. So a run gives the same masks for any number of workers and after
/// any restart, provided that the training loop says before each forward pass which step it is and which
/// samples the rows are:
///
///     const auto key = std::make_shared<DropoutKey>(seed, device);
///     Sequential net({…, std::make_shared<Dropout>(0.1, key), …});
///     for (std::int64_t step = 0; …; ++step) {
///       key->set_step(step);
///       key->set_rows(indices);      // of the samples in this rank's batch, i64 [N]
///       …
///     }
///
/// Without set_step() each layer counts its own training passes instead: enough for a script, but a restart
/// begins at 0 again. Without set_rows() the rows are numbered from 0. Both are read on the device, so a
/// recorded step (Device::record) has new masks each time if their memory gets new content. Belongs to one
/// thread, and to the layers on one device: a network that is built once on each of several has a key on
/// each.
class DropoutKey {
 public:
  /// `device` is where the layers compute.
  DropoutKey(std::uint64_t seed, std::shared_ptr<Device> device) : seed_(seed), device_(std::move(device)) {}

  /// From now on the layers compute on `device`.
  void move_to(const std::shared_ptr<Device>& device);
  /// The step of the passes to come. Its memory stays where it is from one call to the next.
  void set_step(std::int64_t step);
  /// The samples in the rows of the passes to come: i64 [N], which are brought to the device, or undefined.
  /// Dimension 0 of what Dropout gets has then a multiple of N rows, those of a sample side by side.
  void set_rows(const Tensor& rows);

  std::uint64_t seed() const noexcept { return seed_; }
  const std::shared_ptr<Device>& device() const noexcept { return device_; }
  const Tensor& step() const noexcept { return step_; }  ///< i64 [1]; undefined before set_step()
  const Tensor& rows() const noexcept { return rows_; }
  /// Numbers the layers in the order in which they are made.
  std::uint64_t add_layer() noexcept { return layers_++; }

 private:
  std::uint64_t seed_, layers_ = 0;
  std::shared_ptr<Device> device_;
  Tensor step_, rows_;
};

/// Where the numbers of a call come from, on the host: those of row `i` of `rows` are for the places `first`
/// to before `first + each` of that sample.
struct MaskPlace {
  std::uint64_t seed = 0, layer = 0, step = 0;
  std::vector<std::int64_t> rows = {};
  std::int64_t first = 0, each = 0;
};

/// Base of modules that draw numbers by a DropoutKey: which numbers a call has, and that a module which is
/// computed again for backward (set_recompute) has those of its first run. A plain function (recomputed())
/// has them only with set_step(), and throws UsageError without.
///
/// Where ranks hold parts of each sample (a divided sequence), each is told which part it has, and its
/// numbers are its part of the whole sample's.
class KeyedDraws : public Module {
 public:
  /// Which numbers a call had.
  struct Draw {
    Tensor step, rows;
  };
  /// The draws of a run, collected in the first and repeated in the second.
  struct Draws {
    std::vector<Draw> draws;
    std::size_t next = 0;  ///< to be repeated
    bool repeats = false;
  };

  const std::shared_ptr<DropoutKey>& key() const noexcept { return key_; }

  /// For recomputed(): calls between the two are collected in `draws`, or repeat what is there. Nests.
  void begin_run(std::shared_ptr<Draws> draws) { runs_.push_back(std::move(draws)); }
  void end_run() noexcept { runs_.pop_back(); }

 protected:
  /// `key` is shared with the network's other places. `part`: of samples [L, …] that are cut along L into
  /// parts of one length, the one that comes here, from 0. Throws UsageError, naming `module`, for no key and
  /// for a part below 0.
  KeyedDraws(std::string_view module, std::shared_ptr<DropoutKey> key, int part);

  /// Moves the key, too.
  void on_move(const std::shared_ptr<Device>& device) override;
  Draw next_draw(const Tensor& x);
  MaskNumbers numbers_of(const Draw& draw, const Tensor& x) const;
  std::int64_t part() const noexcept { return part_; }
  /// The same on the host, which waits for the device. Throws UsageError where `x` has not as many rows as
  /// samples, or a multiple.
  MaskPlace place_of(const Draw& draw, const Tensor& x) const;

 private:
  Draw new_draw(const Tensor& x);

  std::shared_ptr<DropoutKey> key_;
  std::int64_t part_;
  std::uint64_t layer_;
  Tensor passes_;  ///< i64 [1], counted on the device; undefined until it is needed
  std::vector<std::shared_ptr<Draws>> runs_;
};

/// In training, zeroes each element with `probability` and multiplies the others by 1 / (1 - probability); in
/// evaluation the identity. Samples are along the first dimension. With a step that was set, a layer that is
/// called twice in a pass has one mask: give each place a layer of its own.
class Dropout : public KeyedDraws {
 public:
  /// Throws UsageError for a probability outside [0, 1], and as KeyedDraws.
  Dropout(double probability, std::shared_ptr<DropoutKey> key, int part = 0)
      : Dropout("Dropout", probability, std::move(key), part) {}
  Tensor forward(const Tensor& x) override { return dropped(x, x.shape()); }
  std::string extra_repr() const override;

 protected:
  Dropout(std::string_view module, double probability, std::shared_ptr<DropoutKey> key, int part);
  /// With one draw for each element of `shape`, which begins as x's and broadcasts over it with ones behind.
  Tensor dropped(const Tensor& x, const Dims& shape);
  double probability() const noexcept { return probability_; }

 private:
  double probability_;
};

/// Drops whole channels of x [N, C, …] (Tompson et al. 2015): torch.nn.Dropout1d, 2d and 3d.
class Dropout2d final : public Dropout {
 public:
  Dropout2d(double probability, std::shared_ptr<DropoutKey> key)
      : Dropout("Dropout2d", probability, std::move(key), 0) {}
  /// Throws UsageError for fewer than two dimensions.
  Tensor forward(const Tensor& x) override;
};

/// Drops whole samples of x [N, …], in front of a shortcut that keeps them (stochastic depth, Huang et al.
/// 2016): timm's DropPath.
class DropPath final : public Dropout {
 public:
  DropPath(double probability, std::shared_ptr<DropoutKey> key)
      : Dropout("DropPath", probability, std::move(key), 0) {}
  /// Throws UsageError for no dimensions.
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;
};

/// Dropout of attention's weights, which are never in memory: gives what AttentionOptions::dropout wants.
/// Samples are along the first dimension of queries; heads that are split among ranks are cut into parts.
class AttentionDropout final : public KeyedDraws {
 public:
  /// Throws UsageError for a probability that is not at least 0 and below 1, and as KeyedDraws.
  AttentionDropout(double probability, std::shared_ptr<DropoutKey> key, int part = 0);
  /// The draws of the attention of `query` [B, H, L, E], one call for each; nothing in evaluation.
  std::optional<DroppedWeights> next(const Tensor& query);
  std::string extra_repr() const override;
  /// Of weights [B, H, L, S] that are in memory: what the kernel would have dropped.
  Tensor forward(const Tensor& weights) override;

 private:
  double probability_;
};

/// The keys of the dropout and noise layers below `module`, each once.
std::vector<std::shared_ptr<DropoutKey>> dropout_keys(Module& module);

}  // namespace dtrain
