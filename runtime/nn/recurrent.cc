#include "runtime/nn/recurrent.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/autograd/ops/recurrent.h"
#include "runtime/base/error.h"
#include "runtime/nn/print.h"
#include "runtime/nn/sequences/row_lengths.h"

namespace dtrain {

Recurrent::Recurrent(std::string_view name, std::int64_t gates, std::size_t states, std::int64_t in,
                     std::int64_t hidden, Generator& generator, const std::shared_ptr<Device>& device,
                     const RecurrentOptions& options)
    : name_(name), state_count_(states), in_(in), hidden_(hidden), options_(options) {
  if (in < 1 || hidden < 1 || options.layers < 1) {
    throw UsageError(std::string(name) + ": expected at least one input, hidden unit and layer, got " +
                     std::to_string(in) + ", " + std::to_string(hidden) + " and " +
                     std::to_string(options.layers));
  }
  const auto bound = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hidden)));
  const std::int64_t directions = options.bidirectional ? 2 : 1;
  for (std::int64_t layer = 0; layer < options.layers; ++layer) {
    for (std::int64_t direction = 0; direction < directions; ++direction) {
      const std::string suffix = "_l" + std::to_string(layer) + (direction == 1 ? "_reverse" : "");
      const auto add = [&](const std::string& kind, const Dims& shape) {
        return add_parameter(kind + suffix, Tensor::rand(shape, generator, device, -bound, bound));
      };
      const std::int64_t rows = gates * hidden;
      Weights weights;
      weights.input = add("weight_ih", {rows, layer == 0 ? in : hidden * directions});
      weights.hidden = add("weight_hh", {rows, hidden});
      if (options.bias) {
        weights.input_bias = add("bias_ih", {rows});
        weights.hidden_bias = add("bias_hh", {rows});
      }
      weights_.push_back(std::move(weights));
    }
  }
  for (std::int64_t layer = 0; options.dropout != 0 && layer + 1 < options.layers; ++layer) {
    dropout_.push_back(add_module("dropout_l" + std::to_string(layer),
                                  std::make_shared<Dropout>(options.dropout, options.dropout_key)));
  }
}

std::string Recurrent::extra_repr() const {
  std::string text = std::to_string(in_) + ", " + std::to_string(hidden_);
  if (options_.layers != 1) text += ", num_layers=" + std::to_string(options_.layers);
  if (!options_.bias) text += ", bias=False";
  if (options_.batch_first) text += ", batch_first=True";
  if (options_.dropout != 0) text += ", dropout=" + repr::number(options_.dropout);
  return text + (options_.bidirectional ? ", bidirectional=True" : "");
}

/// Dropout behind a layer. Its masks go by sample, so samples come first there.
Tensor Recurrent::between_layers(std::size_t layer, const Tensor& sequence, const RowLengths* lengths) const {
  if (layer >= dropout_.size()) return sequence;
  const Tensor padded = lengths == nullptr ? sequence : lengths->padded(sequence);
  const Tensor dropped = (*dropout_[layer])(padded.transpose(0, 1)).transpose(0, 1);
  return lengths == nullptr ? dropped : lengths->packed(dropped);
}

void Recurrent::check_sequence(const Tensor& x) const {
  if ((x.rank() == 2 || x.rank() == 3) && x.size(-1) == in_ && x.numel() > 0) return;
  throw UsageError(std::string(name_) + ": expected a sequence [" + (options_.batch_first ? "N, L" : "L, N") +
                   ", " + std::to_string(in_) + "] or [L, " + std::to_string(in_) + "], not empty, got " +
                   x.describe());
}

/// The given states, [layers · directions, N, hidden] each, or zeros.
Tensors Recurrent::start_states(const Tensors& inputs, const Tensor& sequence) const {
  const Dims shape{static_cast<std::int64_t>(weights_.size()), sequence.size(1), hidden_};
  Tensors states;
  for (std::size_t i = 0; i < state_count_; ++i) {
    Tensor state = i + 1 < inputs.size() ? inputs[i + 1] : Tensor();
    if (!state.defined()) {
      state = Tensor::zeros(shape, sequence.shared_device(), sequence.dtype());
    } else if (inputs[0].rank() == 2 && state.rank() == 2) {
      state = state.unsqueeze(1);
    }
    if (state.shape() != shape) {
      throw UsageError(std::string(name_) + ": expected a state of shape " + shape.to_string() + ", got " +
                       inputs[i + 1].describe());
    }
    states.push_back(state);
  }
  return states;
}

/// One direction of a layer over sequence [L, N, …], or packed rows → its outputs, laid out alike; `states`
/// become those after. Of packed rows the longest sequences come first, so that those which have a step are
/// the first of all.
Tensor Recurrent::run_layer(const Tensor& sequence, const Weights& weights, bool backwards,
                            const RowLengths* lengths, Tensors& states) const {
  // What the inputs contribute is one product for all steps.
  const Tensor all = linear(sequence, weights.input, weights.input_bias);
  Tensors gates = lengths == nullptr ? unbind(all) : split(all, lengths->rows_by_step());
  if (backwards) std::reverse(gates.begin(), gates.end());
  const Tensors start = states;
  std::vector<Tensors> ended(states.size());  // those of rows without more steps, the shortest first
  Tensors outputs;
  for (const Tensor& gate : gates) {
    const std::int64_t rows = gate.size(0);
    for (std::size_t i = 0; i < states.size(); ++i) {
      const std::int64_t before = outputs.empty() && backwards ? 0 : states[i].size(0);
      if (before > rows) ended[i].push_back(states[i].slice(0, rows, before));
      if (before < rows && before > 0) {
        states[i] = cat({states[i], start[i].slice(0, before, rows)});
      } else if (states[i].size(0) > rows) {
        states[i] = states[i].slice(0, 0, rows);
      }
    }
    states = step(gate, states, weights);
    outputs.push_back(states[0]);
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (ended[i].empty()) continue;
    ended[i].push_back(states[i]);
    std::reverse(ended[i].begin(), ended[i].end());
    states[i] = cat(ended[i]);
  }
  if (backwards) std::reverse(outputs.begin(), outputs.end());
  return lengths == nullptr ? stack(outputs) : cat(outputs);
}

Tensors Recurrent::with_lengths(Tensors inputs, const Tensor& lengths) {
  inputs.resize(std::max(inputs.size(), 1 + state_count_));
  inputs.push_back(lengths);
  return forward_all(inputs);
}

Tensors Recurrent::forward_packed(Tensors inputs, const std::vector<std::int64_t>& lengths) {
  check_inputs(name_, inputs, 1, 1 + state_count_);
  const auto count = static_cast<std::int64_t>(lengths.size());
  return with_lengths(std::move(inputs), Tensor::from_data(lengths, {count}, make_device("cpu")));
}

Tensors Recurrent::forward_all(const Tensors& inputs) {
  check_inputs(name_, inputs, 1, 2 + state_count_);
  check_sequence(inputs[0]);
  const bool single = inputs[0].rank() == 2;
  Tensor sequence = inputs[0];
  if (single) {
    sequence = sequence.unsqueeze(1);
  } else if (options_.batch_first) {
    sequence = sequence.transpose(0, 1);
  }
  Tensors start = start_states(inputs, sequence);
  std::unique_ptr<RowLengths> lengths;
  if (inputs.size() == 2 + state_count_ && inputs.back().defined())
    lengths = RowLengths::of(name_, inputs.back(), sequence);
  if (lengths != nullptr) {
    sequence = lengths->packed(sequence);
    for (Tensor& state : start) state = lengths->sorted(state);
  }
  std::vector<Tensors> ends(state_count_);
  const std::size_t directions = options_.bidirectional ? 2 : 1;
  for (std::size_t set = 0; set < weights_.size(); set += directions) {
    Tensors outputs;
    for (std::size_t direction = 0; direction < directions; ++direction) {
      Tensors states;
      for (const Tensor& all : start)
        states.push_back(all.select(0, static_cast<std::int64_t>(set + direction)));
      outputs.push_back(
          run_layer(sequence, weights_[set + direction], direction == 1, lengths.get(), states));
      for (std::size_t i = 0; i < state_count_; ++i) ends[i].push_back(states[i]);
    }
    sequence =
        between_layers(set / directions, directions == 1 ? outputs[0] : cat(outputs, -1), lengths.get());
  }
  if (lengths != nullptr) sequence = lengths->padded(sequence);
  Tensors results{single ? sequence.squeeze(1) : options_.batch_first ? sequence.transpose(0, 1) : sequence};
  for (const Tensors& end : ends) {
    const Tensor states = lengths == nullptr ? stack(end) : lengths->unsorted(stack(end));
    results.push_back(single ? states.squeeze(1) : states);
  }
  return results;
}

Tensors RNN::step(const Tensor& gates, const Tensors& states, const Weights& weights) const {
  const auto cell = function_ == RnnFunction::relu ? rnn_relu_cell : rnn_tanh_cell;
  return {cell(gates, states[0], weights.hidden, weights.hidden_bias)};
}

Tensors LSTM::step(const Tensor& gates, const Tensors& states, const Weights& weights) const {
  const LstmState after = lstm_cell(gates, {states[0], states[1]}, weights.hidden, weights.hidden_bias);
  return {after.h, after.c};
}

Tensors GRU::step(const Tensor& gates, const Tensors& states, const Weights& weights) const {
  return {gru_cell(gates, states[0], weights.hidden, weights.hidden_bias)};
}

}  // namespace dtrain
