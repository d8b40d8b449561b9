// One step of recurrent layers. `gates` [N, G · H] is what the step's input contributes, linear(x, w_ih,
// b_ih), so that a layer computes it for all steps at once; `h` and `c` [N, H] are the states before; w [G ·
// H, H] and bias [G · H] (or undefined) are what the state is multiplied with. PyTorch's formulas and order
// of gates.
#pragma once

#include "runtime/tensor/tensor.h"

namespace dtrain {

/// The states after a step.
struct LstmState {
  Tensor h, c;
};

/// Gates input, forget, cell, output (Hochreiter and Schmidhuber 1997).
LstmState lstm_cell(const Tensor& gates, const LstmState& before, const Tensor& w, const Tensor& bias);
/// Gates reset, update, new; the reset gate is applied behind the product (Cho et al. 2014).
Tensor gru_cell(const Tensor& gates, const Tensor& h, const Tensor& w, const Tensor& bias);
/// tanh or relu of the sum.
Tensor rnn_tanh_cell(const Tensor& gates, const Tensor& h, const Tensor& w, const Tensor& bias);
Tensor rnn_relu_cell(const Tensor& gates, const Tensor& h, const Tensor& w, const Tensor& bias);

}  // namespace dtrain
