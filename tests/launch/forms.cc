#include "tests/launch/forms.h"

#include <fmt/format.h>

#include <set>

namespace dtrain::test {
namespace {

using Kind = Reference::Kind;

constexpr int kMicroBatches = 4;

class Forms {
 public:
  Forms(const std::string& model, int workers, bool over_nccl)
      : model_(model),
        workers_(workers),
        even_((workers & (workers - 1)) == 0),
        one_order_(!over_nccl || workers == 2) {}

  std::vector<Form> all() {
    whole_networks();
    sharded();
    if (workers_ > 1) options_beside();
    if (workers_ > 1) devices();
    pipelines();
    if (is_text()) tensor_parallel();
    if (model_ == "transformer") dropping();
    if (is_tied()) tying();
    if (model_ == "branches") {
      gathering();
      freezing();
    }
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
  bool is_text() const { return model_ == "transformer" || has_masks(); }
  /// Whether samples differ in how many of their tokens count: replicas share one mean, workers each have one
  /// and a weight.
  bool has_masks() const { return model_.ends_with("-tiny"); }
  bool is_tied() const { return model_ == "gpt2-tiny"; }
  bool has_blocks() const { return model_ == "resnet18" || is_text(); }
  bool has_batch_norm() const { return model_ == "resnet18"; }

  std::string device_list() const {
    std::string list;
    for (int i = 0; i < workers_; ++i) list += fmt::format("{}cpu:{}", i == 0 ? "" : ",", i);
    return list;
  }

  void whole_networks() {
    forms_.push_back({"data parallel", workers_, {}, {}, {}, workers_ == 1, one()});
    if (!has_batch_norm()) {
      forms_.push_back({"local SGD, H = 1", workers_, {"--sync-every", "1"}, {}, {}, false, one()});
      const Arguments mean = {"--sync-every", "1", "--outer-lr", "1", "--outer-momentum", "0"};
      forms_.push_back({"DiLoCo, H = 1, the mean", workers_, mean, {}, {}, false, one()});
    }
    const Arguments parts = {"--virtual-workers", "8"};
    if (workers_ <= 8)
      forms_.push_back(
          {"virtual workers, V = 8", workers_, parts, {}, {Kind::one, parts}, true, {Kind::one, parts}});
    if (workers_ > 1 && workers_ <= 4) {
      forms_.push_back({"virtual workers x shard optimizer",
                        workers_,
                        {"--virtual-workers", "8", "--shard", "optimizer"},
                        {},
                        {Kind::one, parts},
                        true,
                        {Kind::one, parts}});
    }
    if (workers_ > 1) {
      forms_.push_back({"parameter server", workers_, {}, {"--servers=1"}, workers(), one_order_, one()});
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

  /// The same option with and without a form.
  void options_beside() {
    const std::pair<std::string, Arguments> options[] = {{"accumulation", {"--accumulate", "2"}},
                                                         {"bfloat16", {"--precision", "bf16"}},
                                                         {"float16", {"--precision", "fp16"}}};
    for (const auto& [name, option] : options) {
      for (const std::string what : {"optimizer", "gradients", "parameters"}) {
        Arguments arguments = option;
        arguments.insert(arguments.end(), {"--shard", what});
        // Gradients that are not kept whole are added up over the workers first, then over the passes.
        const bool exact = name != "accumulation" || what == "optimizer";
        const Reference same{Kind::workers, option};
        forms_.push_back(
            {fmt::format("shard {} x {}", what, name), workers_, arguments, {}, same, exact, same});
      }
    }
    if (!has_blocks()) return;
    const auto again = [&](const std::string& name, const Arguments& arguments) {
      forms_.push_back({name, workers_, arguments, {}, workers(), true, one()});
    };
    again("data parallel x recomputation", {"--recompute"});
    again("shard parameters x recomputation", {"--recompute", "--shard", "parameters"});
  }

  void devices() {
    const std::string list = device_list();
    const bool exact_replicas = even_ && one_order_ && !has_batch_norm() && !has_masks();
    forms_.push_back({"replicas on devices", 1, {"--devices", list}, {}, workers(), exact_replicas, one()});
    if (has_blocks()) {
      forms_.push_back({"replicas on devices x recomputation",
                        1,
                        {"--devices", list, "--recompute"},
                        {},
                        workers(),
                        exact_replicas,
                        one()});
    }
    if (workers_ % 2 == 0) {
      forms_.push_back(
          {"replicas x data parallel", workers_ / 2, {"--devices", "cpu:0,cpu:1"}, {}, {}, false, one()});
      for (const char* what : {"optimizer", "gradients"}) {
        forms_.push_back({fmt::format("replicas x shard {}", what),
                          workers_ / 2,
                          {"--devices", "cpu:0,cpu:1", "--shard", what},
                          {},
                          {},
                          false,
                          one()});
      }
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
      const Arguments places = {"--devices", list, "--place", "auto"};
      forms_.push_back({"parts on devices", 1, places, {}, {}, true, {}});
      if (has_blocks()) {
        Arguments arguments = places;
        arguments.push_back("--recompute");
        forms_.push_back({"parts on devices x recomputation", 1, arguments, {}, {}, true, {}});
      }
      forms_.push_back({"parts on 2 devices x data parallel",
                        workers_,
                        {"--devices", "cpu:0,cpu:1", "--place", "auto"},
                        {},
                        workers(),
                        true,
                        one()});
      parts_beside();
    }
  }

  /// Parts of the network on devices, in forms of several workers.
  void parts_beside() {
    const Reference parts = {Kind::one, {"--virtual-workers", "8"}};
    const auto add = [&](const std::string& name, const Arguments& beside, const Reference& bits) {
      Arguments arguments = {"--devices", "cpu:0,cpu:1", "--place", "auto"};
      arguments.insert(arguments.end(), beside.begin(), beside.end());
      const Reference near = bits.kind == Kind::one ? bits : one();
      forms_.push_back({name, workers_, arguments, {}, bits, true, near});
    };
    add("virtual workers x parts on devices", {"--virtual-workers", "8"}, parts);
    add("parts on devices x shard optimizer", {"--shard", "optimizer"}, workers());
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
      if (has_blocks()) {
        stages("pipeline x recomputation", workers_, {"--pipeline", count, "--recompute"});
        stages("pipeline over devices x recomputation", 1,
               {"--pipeline", count, "--devices", device_list(), "--recompute"});
      }
      if (2 * workers_ <= parts() && kMicroBatches % workers_ == 0)
        stages("pipeline, interleaved", workers_, {"--pipeline", count, "--schedule", "interleaved"});
    }
    if (workers_ > 1 && workers_ <= 4 && !has_batch_norm()) {
      Arguments stages_here = {"--pipeline", "2", "--devices", "cpu:0,cpu:1", "--micro-batches", "4"};
      const Reference without{Kind::workers, stages_here};
      stages_here.insert(stages_here.end(), {"--shard", "optimizer"});
      forms_.push_back(
          {"pipeline over devices x shard optimizer", workers_, stages_here, {}, without, true, {}});
    }
    if (workers_ == 2 || workers_ == 4) {
      const Reference one_of_parts{Kind::one, {"--virtual-workers", "8"}};
      for (const char* schedule : {"gpipe", "1f1b"}) {
        forms_.push_back({fmt::format("pipeline, {} x virtual workers", schedule),
                          workers_,
                          {"--pipeline", "2", "--schedule", schedule, "--virtual-workers", "8"},
                          {},
                          one_of_parts,
                          true,
                          one_of_parts});
      }
    }
    if (workers_ == 4 && !has_batch_norm()) {
      forms_.push_back({"pipeline x data parallel",
                        workers_,
                        {"--mesh", "dp=2,pp=2", "--micro-batches", "4"},
                        {},
                        {},
                        false,
                        {}});
      forms_.push_back({"pipeline over devices x data parallel",
                        2,
                        {"--pipeline", "2", "--devices", "cpu:0,cpu:1", "--micro-batches", "4"},
                        {},
                        {},
                        false,
                        {}});
      for (const char* what : {"optimizer", "gradients", "parameters"}) {
        forms_.push_back({fmt::format("pipeline x shard {}", what),
                          workers_,
                          {"--mesh", "dp=2,pp=2", "--micro-batches", "4", "--shard", what},
                          {},
                          {},
                          false,
                          {}});
      }
    } else if (workers_ == 4) {
      forms_.push_back({"pipeline x data parallel, sync batch norm",
                        workers_,
                        {"--mesh", "dp=2,pp=2", "--micro-batches", "4", "--sync-batch-norm"},
                        {},
                        {},
                        false,
                        accumulated()});
      for (const char* what : {"optimizer", "gradients", "parameters"}) {
        forms_.push_back(
            {fmt::format("pipeline x shard {}, sync batch norm", what),
             workers_,
             {"--mesh", "dp=2,pp=2", "--micro-batches", "4", "--sync-batch-norm", "--shard", what},
             {},
             {},
             false,
             accumulated()});
      }
    }
  }

  void tensor_parallel() {
    const std::string count = std::to_string(workers_);
    const auto add = [&](const std::string& name, Arguments arguments) {
      forms_.push_back({name, workers_, std::move(arguments), {}, {}, false, {}});
    };
    if (workers_ == 2 || (workers_ == 4 && model_ != "llama-tiny")) {  // which has two heads of keys
      add("tensor", {"--tensor", count});
      add("tensor, sequence", {"--tensor", count, "--sequence-parallel"});
      forms_.push_back({"tensor, sequence x recomputation",
                        workers_,
                        {"--tensor", count, "--sequence-parallel", "--recompute"},
                        {},
                        {Kind::workers, {"--tensor", count, "--sequence-parallel"}},
                        true,
                        {}});
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
    if (workers_ == 4 || workers_ == 8) {
      const Arguments parts = {"--tensor", "2", "--virtual-workers", "8"};
      const Reference one_copy{Kind::two, parts}, near{Kind::one, {"--virtual-workers", "8"}};
      forms_.push_back({"tensor x virtual workers", workers_, parts, {}, one_copy, true, near});
    }
    if (workers_ == 8) {
      const Arguments parts = {"--mesh", "dp=2,pp=2,tp=2", "--virtual-workers", "8"};
      const Reference one_copy{Kind::two, {"--tensor", "2", "--virtual-workers", "8"}};
      forms_.push_back({"tensor x pipeline x virtual workers",
                        workers_,
                        parts,
                        {},
                        one_copy,
                        true,
                        {Kind::one, {"--virtual-workers", "8"}}});
    }
    if (workers_ != 8) return;
    const Arguments mesh = {"--mesh", "dp=2,pp=2,tp=2", "--micro-batches", "4"};
    add("tensor x pipeline x data parallel", mesh);
    for (const char* what : {"optimizer", "gradients", "parameters"}) {
      Arguments arguments = mesh;
      arguments.insert(arguments.end(), {"--shard", what});
      add(fmt::format("tensor x pipeline x shard {}", what), arguments);
    }
  }

  /// Forms from above once more with dropout: the masks are those of one process with the same option, which
  /// recomputation meets again.
  void dropping() {
    const std::set<std::string> again = {"data parallel",
                                         "virtual workers, V = 8",
                                         "shard parameters",
                                         "shard parameters x recomputation",
                                         "replicas on devices",
                                         "replicas on devices x recomputation",
                                         "parts on devices",
                                         "parts on devices x recomputation",
                                         "pipeline, 1f1b",
                                         "pipeline x recomputation",
                                         "pipeline over devices",
                                         "pipeline over devices x recomputation",
                                         "tensor",
                                         "tensor, sequence",
                                         "tensor, sequence x recomputation",
                                         "tensor x pipeline, interleaved"};
    const std::vector<Form> without = forms_;
    for (Form form : without) {
      if (!again.contains(form.name)) continue;
      form.name += " x dropout";
      for (Arguments* arguments : {&form.arguments, &form.bits.arguments, &form.near.arguments})
        arguments->insert(arguments->end(), {"--dropout", "0.1"});
      forms_.push_back(std::move(form));
    }
  }

  /// The first part and the last one have a weight in common: both are on one device, and stages add up their
  /// gradients of it in an order of their own, which in 16 bits shows.
  void tying() {
    std::erase_if(forms_, [](const Form& form) {
      return form.name.find("parts on") != std::string::npos ||
             form.name.find("pipeline over devices") != std::string::npos || form.name == "pipeline, float16";
    });
    for (Form& form : forms_) {
      if (form.name.find("pipeline") != std::string::npos) form.exact = false;
    }
  }

  /// Where parameters come and go all workers compute with the same modules: no worker may leave a branch
  /// out.
  void gathering() {
    for (Form& form : forms_) {
      if (form.name.find("shard parameters") == std::string::npos) continue;
      for (Arguments* arguments : {&form.arguments, &form.bits.arguments, &form.near.arguments})
        arguments->push_back("--always");
    }
  }

  /// All forms once more with the first layers frozen: of a pipeline of two stages all of the first one.
  void freezing() {
    const std::vector<Form> without = forms_;
    for (Form form : without) {
      form.name += " x frozen";
      for (Arguments* arguments : {&form.arguments, &form.bits.arguments, &form.near.arguments})
        arguments->insert(arguments->end(), {"--freeze", "first.*,second.*"});
      forms_.push_back(std::move(form));
    }
  }

  std::string model_;
  int workers_;
  bool even_;
  bool one_order_;  ///< whether gradients of workers are added as servers and replicas add them
  std::vector<Form> forms_;
};

}  // namespace

std::vector<Form> forms_of(const std::string& model, int workers, bool over_nccl) {
  return Forms(model, workers, over_nccl).all();
}

}  // namespace dtrain::test
