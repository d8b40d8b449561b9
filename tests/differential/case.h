// One case of the differential test: an operation with its arguments, as differential.py writes it, one JSON
// object a line:
//
//   {"id": 7, "op": "add", "tensors": {"a": T, "b": T}, "options": {"dims": [0, 1]}, "seeds": {"y": T},
//    "changed": "a"}
//   T: {"dtype": "float32", "shape": [2, 3], "values": "1 -0 nan inf …", "views": [["slice", 0, 0, 2, 2]],
//       "grad": true}
//
// Values are row-major, of the base; the operation gets what the views make of it. Gradients are those of the
// base; `changed` (there in some cases) is what is filled with ones between forward and backward. A replayed
// case has "expected" too: what each result is to be, and how far it may be off.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runtime/autograd/number.h"
#include "runtime/tensor/tensor.h"

namespace dtrain::differential {

/// Results under their names, in order.
using Results = std::vector<std::pair<std::string, Tensor>>;

class Case {
 public:
  /// Keeps `json`, which outlives it, and makes its tensors on `device`. Throws Error for views that do not
  /// fit.
  Case(const nlohmann::json& json, const std::shared_ptr<Device>& device);

  const std::string& operation() const { return json_["op"].get_ref<const std::string&>(); }
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
  bool flag(const std::string& option) const;
  Dims dims(const std::string& option) const;

  /// Writes to the argument or result that the case wants changed in place between forward and backward.
  void change(const Results& results) const;
  /// Runs backward from those of `results` that the case has a seed for: the gradients of the bases as
  /// "grad NAME".
  Results gradients(const Results& results) const;

 private:
  struct Argument {
    Tensor base, used;
  };
  Tensor made(const nlohmann::json& json) const;

  const nlohmann::json& json_;
  std::shared_ptr<Device> device_;
  std::map<std::string, Argument> arguments_;
};

/// {"dtype": …, "shape": …, "values": …}
nlohmann::json to_json(const Tensor& tensor);
/// The numbers of `text`, separated by spaces.
std::vector<double> parse_values(const std::string& text);

}  // namespace dtrain::differential
