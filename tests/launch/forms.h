// The forms of parallelism as rows of a table: what each is compared with, and how equal it must be.
#pragma once

#include <string>
#include <vector>

namespace dtrain::test {

using Arguments = std::vector<std::string>;

/// What a row is compared with. `one`: one worker that trains the whole batch with `arguments`; `two`: two of
/// them; `workers`: as many workers as the row has, data parallel.
struct Reference {
  enum class Kind { one, two, workers } kind = Kind::one;
  Arguments arguments = {};
};

struct Form {
  std::string name;
  int processes = 1;
  Arguments arguments;
  Arguments launcher = {};  ///< options of dtrain-launch
  Reference bits = {};      ///< whose bits it gives, where `exact`
  bool exact = false;
  Reference near = {};  ///< what it agrees with within rounding
};

/// The forms, and pairs of them, that `model` can be trained in with W workers (or devices), those with one
/// process on several devices included. Over NCCL, gradients of more than two workers are added in an order
/// of its own, which servers and replicas do not share.
std::vector<Form> forms_of(const std::string& model, int workers, bool over_nccl);

}  // namespace dtrain::test
