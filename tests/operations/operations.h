// The table of operations: what every suite runs by name. Random cases beside PyTorch (differential.py), the
// cases of cases.jsonl (operations_test.cc: gradients, PyTorch's answers, other dtypes and layouts) and the
// same cases on GPUs (tests/gpu/operations_test.cc) all go through it. reference.py has PyTorch's side under
// the same names.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "runtime/autograd/ops.h"
#include "tests/operations/case.h"

namespace dtrain::test {

enum class Kind {
  function,  ///< of its arguments: differentiable, in every floating dtype
  layer,     ///< of float32 alone: with weights of its own, or under autocast
  update,    ///< changes its arguments; nothing flows back
};

struct Operation {
  std::function<Results(const Case&)> run;
  Kind kind = Kind::function;
};
/// By the name of the function: a suffix tells overloads apart (add, add_number).
using Table = std::map<std::string, Operation>;

const Table& operations();

/// The parts of the table, one a file.
void add_functions(Table& table);
void add_functions_of_layers(Table& table);
void add_composed_functions(Table& table);
void add_layers(Table& table);
void add_updates(Table& table);

inline LossReduction reduction_of(const Case& c) {
  return static_cast<LossReduction>(c.integer("reduction", 0));  // mean, sum, none, batch_mean
}
inline int dim_of(const Case& c, int otherwise = 0) { return static_cast<int>(c.integer("dim", otherwise)); }

/// One result.
inline Results y(Tensor result) { return {{"y", std::move(result)}}; }
/// "y", "z", then "y2", "y3" …
Results several(const std::vector<Tensor>& results);

}  // namespace dtrain::test
