// One case of an operation: its arguments and options. Those of cases.jsonl are fixed, one a line; others are
// drawn at random (draw.py) and sent by differential.py:
//
//   {"name": "conv2d strided", "op": "conv2d", "tensors": {"x": [1, 2, 6, 6], "weight": [4, 2, 3, 3]},
//    "options": {"stride": [2, 2]}, "range": [-1, 1]}
//   {"id": "add/7", "op": "add", "tensors": {"a": T, "b": T}, "options": {}, "seeds": {"y": T},
//    "changed": "a"}
//   T: {"dtype": "float32", "shape": [2, 3], "values": "1 -0 nan inf …",
//       "views": [["slice", 0, 0, 2, 2]], "grad": true}
//
// A list of extents is a leaf of the dtype under test, drawn from "range" (torch.manual_seed(7 + its place
// among the names) and uniform_ draw the same); so is a T without "values", which may have a "range" of its
// own. Values are row-major, of the base; the dtype "float" is float32, or float64 where that is under test;
// the operation gets what the views make of it. Gradients are those of the base. "changed" is what is filled
// with ones between forward and backward. A replayed case has "expected" too: what each result is to be, and
// how far it may be off. Fixed cases may say "large" ("any", or "cpu" for extents that only its kernels treat
// specially), "rough", "orders" and "ties": see FixedCase in suite.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tensor/number.h"
#include "runtime/tensor/tensor.h"
#include "tests/support/json.h"

namespace dtrain::test {

/// Results under their names, in order.
using Results = std::vector<std::pair<std::string, Tensor>>;

/// The dtype of what a case does not give a dtype, and whether images are channels-last in memory.
struct Form {
  DType dtype = DType::f32;
  std::optional<DType> rounded = std::nullopt;  ///< values are first rounded to this
  bool channels_last = false;
};

class Case {
 public:
  /// Makes the tensors of `json` on `device`. Throws Error for views that do not fit.
  Case(const Json& json, const std::shared_ptr<Device>& device, const Form& form = {});

  std::string operation() const { return json_["op"].text(); }
  /// What the operation gets as `name`; undefined where the case has none.
  Tensor tensor(const std::string& name) const;
  /// The memory below it, without its views.
  Tensor base(const std::string& name) const;
  std::int64_t integer(const std::string& option, std::int64_t otherwise) const;
  /// Nothing where the case has none.
  std::optional<std::int64_t> maybe_integer(const std::string& option) const;
  std::optional<Number> maybe_number(const std::string& option) const;
  /// As it is written: 2 is a whole number, 2.0 is not. The case has it.
  Number any_number(const std::string& option) const;
  double number(const std::string& option, double otherwise) const;
  /// The case has it.
  std::string text(const std::string& option) const;
  bool flag(const std::string& option, bool otherwise = false) const;
  /// `otherwise` where the case has none; one number stands for as many as that has.
  Dims dims(const std::string& option, const Dims& otherwise = {}) const;

  const std::shared_ptr<Device>& device() const { return device_; }
  /// The bases that want gradients, by name in order.
  std::vector<Tensor> leaves() const;
  /// The same case of other leaves.
  Case with(const std::vector<Tensor>& leaves) const;

  /// Writes to the argument or result that the case wants changed in place between forward and backward.
  void change(const Results& results) const;
  /// Runs backward from those of `results` that the case has a seed for, or drawn ones where it has none at
  /// all: the gradients of the bases as "grad NAME".
  Results gradients(const Results& results) const;

 private:
  struct Argument {
    Json given;
    Tensor base, used;
  };
  /// `place`: of the name, for what is drawn.
  Tensor made(const Json& given, std::size_t place) const;
  Tensor seen(const Tensor& base, const Json& given) const;
  Tensor laid_out(const Tensor& image) const;

  Json json_, options_;
  std::shared_ptr<Device> device_;
  Form form_;
  std::map<std::string, Argument> arguments_;
};

/// What starts backward from the result at `place` where a case has no seeds: drawn as arguments are, from
/// [-1, 1).
Tensor drawn_seed(const Tensor& result, std::size_t place, std::optional<DType> rounded = std::nullopt);
/// The numbers of `text`, separated by spaces.
std::vector<double> parse_values(const std::string& text);

}  // namespace dtrain::test
