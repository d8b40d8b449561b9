// Recurrent layers: torch.nn.RNN, LSTM and GRU with PyTorch's formulas, parameter names and initial values.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/nn/dropout.h"
#include "runtime/tensor/defaults.h"

namespace dtrain {

class RowLengths;

struct RecurrentOptions {
  std::int64_t layers = 1;
  bool bias = true;
  /// Sequences are [N, L, …] instead of [L, N, …]; states are not concerned.
  bool batch_first = false;
  /// A second set of layers reads the sequence backwards; its outputs stand beside those of the first.
  bool bidirectional = false;
  /// Dropout on the outputs of every layer but the last, with masks from `dropout_key`.
  double dropout = 0;
  std::shared_ptr<DropoutKey> dropout_key = nullptr;
};

/// What the three have in common. Inputs: the sequence [L, N, in] (or one without N), then the states the
/// layers start from, each [layers · directions, N, hidden] (zeros if left out or undefined), then the
/// lengths of the N sequences (below). Results: the last layer's outputs [L, N, hidden · directions], then
/// each state after the last step. forward(x) gives the outputs alone.
///
/// Lengths, int64 [N] of 1 to L, are for sequences that are padded to one length: what is behind a row's end
/// is not looked at, outputs there are 0, the last states are those of the row's last step, and the second
/// direction starts there: torch's pack_padded_sequence(…, enforce_sorted=False). Only steps that a row has
/// are computed. Lengths on a GPU are waited for.
///
///     const Tensors results = lstm.forward_packed({x}, {5, 2, 7});      // x [L, 3, in]
///
/// Parameters, for layer k: weight_ih_lk [gates · hidden, in], weight_hh_lk [gates · hidden, hidden],
/// bias_ih_lk and bias_hh_lk [gates · hidden]; those of the second direction end in _reverse. All are drawn
/// from U(±1 / √hidden) in this order.
class Recurrent : public MultiModule {
 public:
  Tensors forward_all(const Tensors& inputs) override;
  /// forward_all() of `inputs`, the sequence and maybe states, with the lengths behind them.
  Tensors forward_packed(Tensors inputs, const std::vector<std::int64_t>& lengths);
  /// The same of lengths as a tensor. (A template, so that braces are numbers.)
  template <std::same_as<Tensor> T>
  Tensors forward_packed(Tensors inputs, const T& lengths) {
    return with_lengths(std::move(inputs), lengths);
  }
  std::string extra_repr() const override;

 protected:
  /// A layer's parameters in one direction; the biases are undefined without bias.
  struct Weights {
    Tensor input, hidden, input_bias, hidden_bias;
  };

  Recurrent(std::string_view name, std::int64_t gates, std::size_t states, std::int64_t in,
            std::int64_t hidden, Generator& generator, const std::shared_ptr<Device>& device,
            const RecurrentOptions& options);

  /// One step: `gates` [N, gates · hidden] is what the input contributes, bias included; `states` [N, hidden]
  /// each are those before. Returns those after, the output first.
  virtual Tensors step(const Tensor& gates, const Tensors& states, const Weights& weights) const = 0;

 private:
  Tensors with_lengths(Tensors inputs, const Tensor& lengths);
  Tensors start_states(const Tensors& inputs, const Tensor& sequence) const;
  Tensor between_layers(std::size_t layer, const Tensor& sequence, const RowLengths* lengths) const;
  Tensor run_layer(const Tensor& sequence, const Weights& weights, bool backwards, const RowLengths* lengths,
                   Tensors& states) const;
  void check_sequence(const Tensor& x) const;

  std::string_view name_;
  std::size_t state_count_;
  std::int64_t in_, hidden_;
  RecurrentOptions options_;
  std::vector<Weights> weights_;                   ///< layer by layer, its directions side by side
  std::vector<std::shared_ptr<Dropout>> dropout_;  ///< behind each layer but the last; or none
};

enum class RnnFunction { tanh, relu };

/// h = tanh(W_ih · x + b_ih + W_hh · h + b_hh), or relu. State: h.
class RNN : public Recurrent {
 public:
  RNN(std::int64_t in, std::int64_t hidden, Generator& generator = default_generator(),
      const std::shared_ptr<Device>& device = default_device(), const RecurrentOptions& options = {},
      RnnFunction function = RnnFunction::tanh)
      : Recurrent("RNN", 1, 1, in, hidden, generator, device, options), function_(function) {}

 protected:
  Tensors step(const Tensor& gates, const Tensors& states, const Weights& weights) const override;

 private:
  RnnFunction function_;
};

/// Hochreiter and Schmidhuber 1997, gates in the order input, forget, cell, output. States: h, c.
class LSTM : public Recurrent {
 public:
  LSTM(std::int64_t in, std::int64_t hidden, Generator& generator = default_generator(),
       const std::shared_ptr<Device>& device = default_device(), const RecurrentOptions& options = {})
      : Recurrent("LSTM", 4, 2, in, hidden, generator, device, options) {}

 protected:
  Tensors step(const Tensor& gates, const Tensors& states, const Weights& weights) const override;
};

/// Cho et al. 2014, with the reset gate applied behind the product as in PyTorch; gates in the order reset,
/// update, new. State: h.
class GRU : public Recurrent {
 public:
  GRU(std::int64_t in, std::int64_t hidden, Generator& generator = default_generator(),
      const std::shared_ptr<Device>& device = default_device(), const RecurrentOptions& options = {})
      : Recurrent("GRU", 3, 1, in, hidden, generator, device, options) {}

 protected:
  Tensors step(const Tensor& gates, const Tensors& states, const Weights& weights) const override;
};

}  // namespace dtrain
