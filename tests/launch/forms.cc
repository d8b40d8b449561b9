#include "tests/launch/forms.h"

#include <fmt/format.h>

namespace dtrain::test {
namespace {

using Kind = Reference::Kind;

constexpr int kMicroBatches = 4;

class Forms {
 public:
  Forms(const std::string& model, int workers)
      : model_(model), workers_(workers), even_((workers & (workers - 1)) == 0) {}

  std::vector<Form> all() {
    whole_networks();
    sharded();
    if (workers_ > 1) devices();
    pipelines();
    if (model_ == "transformer") divided();
    return std::move(forms_);
  }

 private:
  /// Batch norm takes the statistics of a worker's samples: one worker then runs the same parts.
  Reference one() const {
    if (model_ != "resnet18" || workers_ == 1) return {};
    return {Kind::one, {"--virtual-workers", std::to_string(workers_)}};
  }
  static Reference workers() { return {Kind::workers, {}}; }
  static Reference accumulated() { return {Kind::one, {"--accumulate", std::to_string(kMicroBatches)}}; }

  /// How many parts its chain has.
  int parts() const { return model_ == "mlp" ? 3 : model_ == "resnet18" ? 10 : 4; }
  bool has_batch_norm() const { return model_ == "resnet18"; }

  std::string device_list() const {
    std::string list;
    for (int i = 0; i < workers_; ++i) list += fmt::format("{}cpu:{}", i == 0 ? "" : ",", i);
    return list;
  }

  void whole_networks() {
    forms_.push_back({"data parallel", workers_, {}, {}, {}, workers_ == 1, one()});
    if (!has_batch_norm())
      forms_.push_back({"local SGD, H = 1", workers_, {"--sync-every", "1"}, {}, {}, false, one()});
    const Arguments parts = {"--virtual-workers", "8"};
    if (workers_ <= 8)
      forms_.push_back(
          {"virtual workers, V = 8", workers_, parts, {}, {Kind::one, parts}, true, {Kind::one, parts}});
    if (workers_ > 1) {
      forms_.push_back({"parameter server", workers_, {}, {"--servers=1"}, workers(), true, one()});
    }
  }

  void sharded() {
    for (const char* what : {"optimizer", "gradients", "parameters"}) {
      if (workers_ > 1)
        forms_.push_back(
            {fmt::format("shard {}", what), workers_, {"--shard", what}, {}, workers(), true, one()});
    }
    if (workers_ % 2 == 0 && workers_ > 2) {
      forms_.push_back({"shard parameters, groups of 2",
                        workers_,
                        {"--shard", "parameters", "--shard-group", "2"},
                        {},
                        {},
                        false,
                        one()});
    }
  }

  void devices() {
    const std::string list = device_list();
    forms_.push_back(
        {"replicas on devices", 1, {"--devices", list}, {}, workers(), even_ && !has_batch_norm(), one()});
    if (workers_ % 2 == 0) {
      forms_.push_back(
          {"replicas x data parallel", workers_ / 2, {"--devices", "cpu:0,cpu:1"}, {}, {}, false, one()});
      forms_.push_back({"replicas x shard optimizer",
                        workers_ / 2,
                        {"--devices", "cpu:0,cpu:1", "--shard", "optimizer"},
                        {},
                        {},
                        false,
                        one()});
      if (!has_batch_norm()) {
        forms_.push_back({"replicas x local SGD, H = 1",
                          workers_ / 2,
                          {"--devices", "cpu:0,cpu:1", "--sync-every", "1"},
                          {},
                          {},
                          false,
                          one()});
      }
    }
    if (workers_ <= parts()) {
      forms_.push_back({"parts on devices", 1, {"--devices", list, "--place", "auto"}, {}, {}, true, {}});
      forms_.push_back({"parts on 2 devices x data parallel",
                        workers_,
                        {"--devices", "cpu:0,cpu:1", "--place", "auto"},
                        {},
                        workers(),
                        true,
                        one()});
    }
  }

  void pipelines() {
    const auto stages = [&](const std::string& name, int processes, Arguments arguments) {
      arguments.insert(arguments.end(), {"--micro-batches", std::to_string(kMicroBatches)});
      forms_.push_back({name, processes, arguments, {}, accumulated(), true, accumulated()});
    };
    const std::string count = std::to_string(workers_);
    if (workers_ > 1 && workers_ <= parts()) {
      stages("pipeline, gpipe", workers_, {"--pipeline", count, "--schedule", "gpipe"});
      stages("pipeline, 1f1b", workers_, {"--pipeline", count});
      stages("pipeline over devices", 1, {"--pipeline", count, "--devices", device_list()});
      const Reference halves = {Kind::one,
                                {"--accumulate", std::to_string(kMicroBatches), "--precision", "fp16"}};
      forms_.push_back(
          {"pipeline, float16",
           workers_,
           {"--pipeline", count, "--micro-batches", std::to_string(kMicroBatches), "--precision", "fp16"},
           {},
           halves,
           true,
           halves});
      stages("pipeline, cut by time", workers_, {"--pipeline", count, "--stages", "auto"});
      if (2 * workers_ <= parts() && kMicroBatches % workers_ == 0)
        stages("pipeline, interleaved", workers_, {"--pipeline", count, "--schedule", "interleaved"});
    }
    if (workers_ == 4 && !has_batch_norm()) {
      forms_.push_back({"pipeline x data parallel",
                        workers_,
                        {"--mesh", "dp=2,pp=2", "--micro-batches", "4"},
                        {},
                        {},
                        false,
                        {}});
      forms_.push_back({"pipeline x shard optimizer",
                        workers_,
                        {"--mesh", "dp=2,pp=2", "--micro-batches", "4", "--shard", "optimizer"},
                        {},
                        {},
                        false,
                        {}});
    } else if (workers_ == 4) {
      forms_.push_back({"pipeline x data parallel, sync batch norm",
                        workers_,
                        {"--mesh", "dp=2,pp=2", "--micro-batches", "4", "--sync-batch-norm"},
                        {},
                        {},
                        false,
                        accumulated()});
    }
  }

  void divided() {
    const std::string count = std::to_string(workers_);
    const auto add = [&](const std::string& name, Arguments arguments) {
      forms_.push_back({name, workers_, std::move(arguments), {}, {}, false, {}});
    };
    if (workers_ == 2 || workers_ == 4) {
      add("tensor", {"--tensor", count});
      add("tensor, sequence", {"--tensor", count, "--sequence-parallel"});
    }
    if (workers_ == 4) {
      add("tensor x data parallel", {"--mesh", "dp=2,tp=2"});
      for (const char* what : {"optimizer", "gradients", "parameters"}) {
        const auto shared = [&](const std::string& name, const Arguments& mesh) {
          Arguments arguments = mesh;
          arguments.insert(arguments.end(), {"--shard", what});
          forms_.push_back({fmt::format("{} x shard {}", name, what),
                            workers_,
                            arguments,
                            {},
                            {Kind::workers, mesh},
                            true,
                            {}});
        };
        shared("tensor", {"--mesh", "dp=2,tp=2"});
        shared("tensor, sequence", {"--mesh", "dp=2,tp=2", "--sequence-parallel"});
      }
      add("tensor x pipeline", {"--mesh", "pp=2,tp=2", "--micro-batches", "4"});
      add("tensor x pipeline, interleaved", {"--mesh", "pp=2,tp=2", "--micro-batches", "4", "--schedule",
                                             "interleaved", "--sequence-parallel"});
    }
    if (workers_ == 8)
      add("tensor x pipeline x data parallel", {"--mesh", "dp=2,pp=2,tp=2", "--micro-batches", "4"});
  }

  std::string model_;
  int workers_;
  bool even_;
  std::vector<Form> forms_;
};

}  // namespace

std::vector<Form> forms_of(const std::string& model, int workers) { return Forms(model, workers).all(); }

}  // namespace dtrain::test
