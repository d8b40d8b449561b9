// Every row of the table of options that do not go together is refused as it says, and nothing else is.
#include "training/options/combinations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "runtime/base/error.h"

namespace dtrain {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::int64_t kWorkers = 4;

std::string refusal_of(const std::string& line, const Environment& environment = {},
                       const TaskTraits& traits = {}) {
  std::istringstream in(line);
  std::vector<std::string> arguments;
  for (std::string word; in >> word;) arguments.push_back(word);
  try {
    make_train_config(resolve_options("dtrain train", train_options(), arguments, environment), "lenet",
                      kWorkers, traits);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

/// The options of `line` break the row that refuses `option` beside `other`.
struct Breach {
  std::string line, option, other;
};

const Breach kBreaches[] = {
    {"--batch-size 8 --global-batch-size 8", "batch-size", "--global-batch-size"},
    {"--accumulate 2 --virtual-workers 4", "accumulate", "--virtual-workers"},
    {"--accumulate 2 --pipeline 2", "accumulate", "--pipeline"},
    {"--accumulate 2 --pipeline 2 --devices cpu:0,cpu:1", "accumulate", "--pipeline"},
    {"--sync-batch-norm --virtual-workers 4", "sync-batch-norm", "--virtual-workers"},
    {"--sync-batch-norm --devices cpu:0,cpu:1", "sync-batch-norm", "--devices"},
    {"--sync-batch-norm --servers 1 --update async", "sync-batch-norm", "--update async"},
    {"--shard gradients --virtual-workers 4", "shard", "--virtual-workers"},
    {"--shard parameters --virtual-workers 4", "shard", "--virtual-workers"},
    {"--shard gradients --place conv1=cpu:0,fc1=cpu:1", "shard", "--place"},
    {"--shard parameters --pipeline 2 --devices cpu:0,cpu:1", "shard", "--pipeline over --devices"},
    {"--shard optimizer --sync-every 2", "shard", "--sync-every without --outer-lr"},
    {"--shard optimizer --servers 1", "shard", "--servers"},
    {"--shard optimizer --shard-group 2 --tensor 2", "shard-group", "--tensor"},
    {"--shard optimizer --shard-group 2 --pipeline 2", "shard-group", "--pipeline"},
    {"--shard optimizer --shard-group 2 --virtual-workers 4", "shard-group", "--shard optimizer"},
    {"--shard optimizer --shard-group 2 --place conv1=cpu:0,fc1=cpu:1", "shard-group", "--shard optimizer"},
    {"--compress fp16 --virtual-workers 4", "compress", "--virtual-workers"},
    {"--compress powersgd:2 --shard parameters", "compress", "--shard gradients or parameters"},
    {"--compress bf16 --shard gradients --tensor 2", "compress", "--shard gradients or parameters"},
    {"--compress bf16 --shard optimizer", "compress", "--shard"},
    {"--compress bf16 --pipeline 2 --devices cpu:0,cpu:1", "compress", "--pipeline over --devices"},
    {"--compress bf16 --sync-every 2", "compress", "--sync-every"},
    {"--compress bf16 --servers 1", "compress", "--servers"},
    {"--micro-batches 4 --pipeline 2 --virtual-workers 4", "micro-batches", "--virtual-workers"},
    {"--tensor 2 --pipeline 2 --devices cpu:0,cpu:1", "tensor", "--pipeline over --devices"},
    {"--mesh dp=4 --pipeline 2 --devices cpu:0,cpu:1", "mesh", "--pipeline over --devices"},
    {"--sequence-parallel --pipeline 2 --devices cpu:0,cpu:1", "sequence-parallel",
     "--pipeline over --devices"},
    {"--schedule interleaved --pipeline 2 --virtual-workers 4", "schedule", "--virtual-workers"},
    {"--virtual-workers 4 --sync-every 2", "virtual-workers", "--sync-every"},
    {"--virtual-workers 4 --servers 1", "virtual-workers", "--servers"},
    {"--sync-every 2 --servers 1", "sync-every", "--servers"},
    {"--sync-every 2 --tensor 2", "sync-every", "--tensor or --pipeline"},
    {"--sync-every 2 --mesh dp=2,pp=2", "sync-every", "--tensor or --pipeline"},
    {"--sync-every 2 --place conv1=cpu:0,fc1=cpu:1", "sync-every", "--place"},
    {"--sync-every 2 --pipeline 2 --devices cpu:0,cpu:1", "sync-every", "--pipeline over --devices"},
    {"--devices cpu:0,cpu:1 --servers 1", "devices", "--servers"},
    {"--place conv1=cpu:0,fc1=cpu:1 --servers 1", "place", "--servers"},
    {"--peer-snapshots 2 --servers 1", "peer-snapshots", "--servers"},
    {"--allreduce ring --servers 1", "allreduce", "--servers"},
    {"--allreduce tree --backend nccl", "allreduce", "--backend nccl"},
    {"--servers 1 --tensor 2", "servers", "--tensor or --pipeline"},
    {"--precision fp16 --sync-every 2", "precision", "--sync-every"},
    {"--precision fp16 --servers 1", "precision", "--servers"},
    {"--clip-grad-norm 1 --servers 2", "clip-grad-norm", "--servers above 1"},
    {"--lr-of head.*=0.1 --servers 1", "lr-of", "--servers"},
    {"--weight-decay-of head.*=0.1 --servers 1", "weight-decay-of", "--servers"},
    {"--ema 0.9 --servers 1", "ema", "--servers"},
    {"--ema 0.9 --sync-every 2 --outer-lr 0.7", "ema", "--outer-lr"},
    {"--swa-from 1 --servers 1", "swa-from", "--servers"},
    {"--swa-from 1 --sync-every 2 --outer-lr 0.7", "swa-from", "--outer-lr"},
    {"--swa-from 1 --ema 0.9", "swa-from", "--ema"},
    {"--check-replicas 2 --servers 1 --update async", "check-replicas", "--update async"},
    {"--place auto --pipeline 2 --devices cpu:0,cpu:1", "place", "--pipeline over --devices"},
    {"--update-on host --place conv1=cpu:0,fc1=cpu:1", "update-on", "--place"},
    {"--update-on host --pipeline 2 --devices cpu:0,cpu:1", "update-on", "--pipeline over --devices"},
    {"--device cpu --devices cpu:0,cpu:1", "device", "--devices"},
    {"--device cpu --place conv1=cpu:0,fc1=cpu:1", "device", "--place"},
    {"--devices cpu:0,cpu:1 --pipeline 2 --virtual-workers 4", "devices", "--virtual-workers"},
    {"--devices cpu:0,cpu:1 --virtual-workers 4", "devices", "--virtual-workers"},
    {"--devices cpu:0,cpu:1 --tensor 2", "devices", "--tensor or --pipeline"},
    {"--place conv1=cpu:0,fc1=cpu:1 --tensor 2", "place", "--tensor or --pipeline"},
    {"--devices cpu:0,cpu:1 --shard parameters", "devices", "--shard parameters"},
    {"--cuda-graph on --devices cpu:0,cpu:1", "cuda-graph", "--devices"},
    {"--cuda-graph on --optimizer lars", "cuda-graph", "--optimizer lars, lamb or muon"},
    {"--optimizer lamb --shard optimizer", "optimizer", "--shard"},
    {"--optimizer lars --tensor 2", "optimizer", "--tensor"},
    {"--optimizer muon --tensor 2", "optimizer", "--tensor"},
    {"--optimizer muon --shard gradients", "optimizer", "--shard"},
    {"--optimizer muon --servers 1", "optimizer", "--servers"},
    {"--optimizer lamb --sync-every 2 --outer-lr 0.7", "optimizer", "--outer-lr"},
    {"--optimizer lars --servers 2", "optimizer", "--servers above 1"},
    {"--backend gloo --thread-workers 2", "backend", "--thread-workers"},
    {"--lr-schedule step --lr-decay-at 3,5.5 --lr-decay-every 5", "lr-decay-at", "--lr-decay-every"},
    {"--lr-schedule plateau --servers 1 --update async", "lr-schedule", "--update async"},
    {"--early-stopping 3 --servers 1 --update async", "early-stopping", "--update async"},
    {"--train-metrics --servers 1 --update async", "train-metrics", "--update async"},
    {"--train-metrics --tensor 2", "train-metrics", "--tensor"},
    {"--train-metrics --cuda-graph on", "train-metrics", "--cuda-graph on"},
    {"--eval-first --servers 1 --update async", "eval-first", "--update async"},
    {"--keep-best --servers 1 --update async", "keep-best", "--update async"},
    {"--warmup-epochs 0.5 --warmup-steps 5", "warmup-epochs", "--warmup-steps"},
    {"--peer-snapshots 2 --thread-workers 2", "peer-snapshots", "--thread-workers"},
};

// With a task that has something of its own.
const std::string kOptimizer = "a task that makes its optimizer",
                  kGroups = "a task with groups of parameters", kPhases = "a task of several phases",
                  kAfter = "a task with an after_update()", kStepLoss = "a task with a step_loss()",
                  kGroupLoss = "a task with a group_loss()";

TaskTraits traits_of(const std::string& task) {
  return {.phases = task == kPhases ? 2U : 0U,
          .has_groups = task == kGroups,
          .has_optimizer = task == kOptimizer,
          .has_after_update = task == kAfter,
          .has_step_loss = task == kStepLoss,
          .has_group_loss = task == kGroupLoss};
}

const Breach kTaskBreaches[] = {
    {"--optimizer adam", "optimizer", kOptimizer},
    {"--lr 0.1", "lr", kOptimizer},
    {"--lr-of head.*=0.1", "lr-of", kOptimizer},
    {"--weight-decay 0.1", "weight-decay", kOptimizer},
    {"--weight-decay-of head.*=0.1", "weight-decay-of", kOptimizer},
    {"--servers 1", "servers", kOptimizer},
    {"--servers 1", "servers", kGroups},
    {"--servers 1", "servers", kPhases},
    {"--servers 1", "servers", kAfter},
    {"--tensor 2", "tensor", kPhases},
    {"--tensor 2", "tensor", kAfter},
    {"--tensor 2", "tensor", kStepLoss},
    {"--tensor 2", "tensor", kGroupLoss},
    {"--pipeline 2", "pipeline", kGroupLoss},
    {"--virtual-workers 4", "virtual-workers", kGroupLoss},
    {"--sync-every 2", "sync-every", kGroupLoss},
    {"--servers 1", "servers", kGroupLoss},
    {"--pipeline 2", "pipeline", kPhases},
    {"--pipeline 2 --devices cpu:0,cpu:1", "devices", kPhases},
    {"--pipeline 2", "pipeline", kAfter},
    {"--devices cpu:0,cpu:1", "devices", kAfter},
    {"--place conv1=cpu:0,fc1=cpu:1", "place", kPhases},
    {"--place conv1=cpu:0,fc1=cpu:1", "place", kAfter},
    {"--shard parameters", "shard", kPhases},
    {"--shard parameters", "shard", kAfter},
    {"--sync-every 2", "sync-every", kPhases},
    {"--sync-every 2", "sync-every", kAfter},
    {"--virtual-workers 4", "virtual-workers", kPhases},
    {"--compress fp16", "compress", kPhases},
    {"--ema 0.9", "ema", kPhases},
    {"--swa-from 1", "swa-from", kPhases},
    {"--train-metrics", "train-metrics", kPhases},
    {"--precision fp16", "precision", kPhases},
};

TEST(Combinations, EveryRowIsRefusedInItsWords) {
  std::set<std::string> broken;
  for (const auto& [line, option, other] : kBreaches) {
    const std::string refusal = refusal_of(line);
    EXPECT_THAT(refusal, StartsWith("--" + option + " (from command line): expected ")) << line;
    EXPECT_THAT(refusal, HasSubstr(" with " + other)) << line;
    broken.insert("| `--" + option + "` | `" + other + "` |");
  }
  for (const auto& [line, option, other] : kTaskBreaches) {
    const std::string refusal = refusal_of(line, {}, traits_of(other));
    EXPECT_THAT(refusal, StartsWith("--" + option + " (from command line): expected ")) << line;
    EXPECT_THAT(refusal, HasSubstr(" with " + other)) << line;
    EXPECT_EQ(refusal_of(line), "") << "without such a task";
    broken.insert("| `--" + option + "` | `" + other + "` |");
  }
  std::istringstream table(combinations_markdown());
  for (std::string row; std::getline(table, row);) {
    if (!row.starts_with("| `") || row.find("| |") != row.npos) continue;
    const std::string pair = row.substr(0, row.find(" |", row.find(" | `") + 3) + 2);
    EXPECT_TRUE(broken.contains(pair)) << "no command line here breaks the row " << pair;
  }
}

TEST(Combinations, WhatNeedsAnotherSaysWhich) {
  EXPECT_THAT(refusal_of("--shard-group 2"), HasSubstr("expected only with --shard"));
  EXPECT_THAT(refusal_of("--outer-lr 0.7"), HasSubstr("expected only with --sync-every H"));
  EXPECT_THAT(refusal_of("--sync-every 2 --outer-momentum 0.5"),
              HasSubstr("expected only with --outer-lr X"));
  EXPECT_THAT(refusal_of("--outer-momentum 0.9"),
              HasSubstr("expected only with --outer-lr X"));  // its default
  EXPECT_THAT(refusal_of("", {{"DTRAIN_OUTER_MOMENTUM", "0.5"}}),
              AllOf(StartsWith("--outer-momentum (from DTRAIN_OUTER_MOMENTUM)"), HasSubstr("--outer-lr X")));
  EXPECT_THAT(refusal_of("--micro-batches 2"), HasSubstr("expected only with --pipeline N"));
  EXPECT_THAT(refusal_of("--schedule gpipe"), HasSubstr("expected only with --pipeline N"));
  EXPECT_THAT(refusal_of("--chunks 2 --pipeline 2"), HasSubstr("expected only with --schedule interleaved"));
  EXPECT_THAT(refusal_of("--stages auto"), HasSubstr("expected even without --pipeline N"));
  EXPECT_THAT(refusal_of("--sequence-parallel"), HasSubstr("expected only with --tensor N"));
  EXPECT_THAT(refusal_of("--update async"), HasSubstr("expected only with --servers N"));
  EXPECT_THAT(refusal_of("--max-staleness 1 --servers 1"), HasSubstr("expected only with --update async"));
  EXPECT_THAT(refusal_of("--place auto"), HasSubstr("expected --devices with auto"));
  EXPECT_THAT(refusal_of("--update-on host"), HasSubstr("expected only with --devices"));
  EXPECT_THAT(refusal_of("--nesterov --momentum 0.9 --dampening 0.1"),
              HasSubstr("only with --momentum above 0 and --dampening 0"));
  EXPECT_THAT(refusal_of("--lr-schedule step"), HasSubstr("expected only with --lr-decay-every N"));
  for (const char* line : {"--lr-decay-every 5", "--lr-gamma 0.5", "--lr-gamma 0.1 --lr-schedule cosine"})
    EXPECT_THAT(refusal_of(line), HasSubstr("expected only with --lr-schedule step")) << line;
  EXPECT_THAT(refusal_of("--lr-schedule exponential"), HasSubstr("expected only with --lr-decay-every N"));
  for (const char* kind : {"one-cycle", "inverse-sqrt"})
    EXPECT_THAT(refusal_of(std::string("--lr-schedule ") + kind),
                HasSubstr("expected only with --warmup-epochs"))
        << kind;
  EXPECT_THAT(refusal_of("--lr-cooldown 0.1 --lr-schedule cosine"),
              HasSubstr("expected only with --lr-schedule wsd"));
  EXPECT_THAT(refusal_of("--lr-patience 3"), HasSubstr("expected only with --lr-schedule plateau"));
  EXPECT_THAT(refusal_of("--monitor accuracy"),
              HasSubstr("expected only with --early-stopping, --keep-best or"));
  for (const char* line : {"--early-stopping 3", "--keep-best", "--lr-schedule plateau"})
    EXPECT_THAT(refusal_of(std::string(line) + " --eval-every 0"),
                HasSubstr("with --eval-every 0, which never evaluates"))
        << line;
  EXPECT_THAT(refusal_of("--lr-decay-at 30"), HasSubstr("expected only with --lr-schedule step"));
  EXPECT_THAT(refusal_of("--lr-schedule step --lr-decay-at 30,30"), HasSubstr("in ascending order"));
  EXPECT_THAT(refusal_of("--lr-power 3"), HasSubstr("expected only with --lr-schedule polynomial"));
  EXPECT_THAT(refusal_of("--warmup-from 0.1"), HasSubstr("expected only with --warmup-epochs or"));
  for (const char* line : {"--min-lr 0.01", "--min-lr 0 --lr-schedule step --lr-decay-every 5"})
    EXPECT_THAT(refusal_of(line), HasSubstr("expected only with --lr-schedule linear, polynomial, cosine"))
        << line;
  EXPECT_THAT(refusal_of("--base-batch-size 512"), HasSubstr("expected only with --scale-lr linear or sqrt"));
  EXPECT_THAT(refusal_of("--trace-steps 1:2"), HasSubstr("expected only with --trace FILE"));
}

// As torch.optim, whose optimizers refuse what they do not have.
TEST(Combinations, AnOptionOfAnotherOptimizerIsRefused) {
  const std::pair<std::string, std::set<std::string>> options[] = {
      {"--momentum 0.9", {"sgd", "rmsprop", "lars", "muon"}},
      {"--dampening 0.1", {"sgd"}},
      {"--nesterov --momentum 0.9", {"sgd"}},
      {"--betas 0.9,0.95", {"adam", "adamw", "lamb", "lion", "muon"}},
      {"--eps 1e-8", {"adam", "adamw", "lamb", "rmsprop", "adagrad", "muon"}},
      {"--alpha 0.9", {"rmsprop"}},
      {"--centered", {"rmsprop"}},
      {"--lr-decay 0.1", {"adagrad"}},
      {"--initial-accumulator 1", {"adagrad"}},
      {"--trust 0.1", {"lars"}},
      {"--adamw-for head.*", {"muon"}},
      {"--muon-scale original", {"muon"}},
  };
  for (const auto& [line, optimizers] : options) {
    for (const char* optimizer :
         {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "lars", "lamb", "muon"}) {
      const std::string refusal = refusal_of(line + " --optimizer " + optimizer);
      if (optimizers.contains(optimizer)) {
        EXPECT_EQ(refusal, "") << line << " " << optimizer;
      } else {
        EXPECT_THAT(refusal, HasSubstr("expected only with --optimizer ")) << line << " " << optimizer;
      }
    }
  }
}

TEST(Combinations, OthersGoTogether) {
  for (const char* line :
       {"--virtual-workers 4 --shard optimizer",
        "--virtual-workers 4 --pipeline 2 --tensor 2",
        "--virtual-workers 4 --place conv1=cpu:0,fc1=cpu:1 --optimizer lars --shard optimizer",
        "--compress fp16 --tensor 2 --shard optimizer --sync-batch-norm",
        "--compress powersgd:2 --pipeline 2",
        "--shard gradients --pipeline 2 --schedule interleaved",
        "--shard parameters --shard-group 2",
        "--devices cpu:0,cpu:1 --shard gradients --update-on host",
        "--devices cpu:0,cpu:1 --sync-every 2",
        "--sync-every 2 --sync-batch-norm",
        "--sync-every 2 --outer-lr 0.7",
        "--sync-every 2 --outer-lr 0.7 --shard optimizer --shard-group 2",
        "--sync-every 2 --outer-lr 0.7 --shard parameters",
        "--sync-every 2 --outer-lr 0.7 --outer-momentum 0",
        "--servers 1 --clip-grad-norm 1 --optimizer lars",
        "--optimizer muon --pipeline 2 --shard optimizer",
        "--optimizer muon --virtual-workers 4 --adamw-for head.* --muon-scale original --momentum 0.9",
        "--servers 2 --update async --max-staleness 2",
        "--pipeline 2 --devices cpu:0,cpu:1 --shard optimizer",
        "--thread-workers 4 --mesh dp=2,pp=2",
        "--nesterov --momentum 0.9",
        "--momentum 0 --dampening 0 --lr-decay 0 --optimizer adamw",
        "--lr-schedule step --lr-decay-every 5 --lr-gamma 0.5",
        "--lr-schedule cosine --min-lr 0.01",
        "--lr-schedule exponential --lr-decay-every 5 --lr-gamma 0.5",
        "--lr-schedule one-cycle --warmup-epochs 1 --min-lr 0.001",
        "--lr-schedule inverse-sqrt --warmup-steps 10",
        "--lr-schedule wsd --lr-cooldown 0.1 --warmup-steps 10",
        "--lr-schedule plateau --lr-patience 2 --monitor accuracy --early-stopping 5 --keep-best",
        "--lr-of head.*=0.1 --weight-decay-of *.bias=0 --shard parameters",
        "--scale-lr sqrt --base-batch-size 512"})
    EXPECT_EQ(refusal_of(line), "") << line;
}

TEST(Combinations, TheHelpNamesThePartners) {
  const std::string help = combinations_help();
  EXPECT_THAT(help, HasSubstr("--clip-grad-norm"));
  EXPECT_THAT(help, HasSubstr("not with --servers above 1"));
  EXPECT_THAT(help, HasSubstr("needs --trace\n"));
  // Of an option that is refused with some of its values, the others are not spoken of.
  EXPECT_THAT(help, HasSubstr("--lr-decay-every or --lr-decay-at; exponential:\n"));
  EXPECT_THAT(help, HasSubstr("lars, lamb or muon: not with --shard, "));
  EXPECT_THAT(help, HasSubstr("on: not with --devices, --optimizer lars, lamb"));
}

}  // namespace
}  // namespace dtrain
