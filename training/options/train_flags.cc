#include "training/options/train_flags.h"

namespace dtrain {

// Options::read() finds these by the type of the field; Options::check() has seen the words.
static void parse_value(const std::string& text, Compression& value) { value = compression_named(text); }
static void parse_value(const std::string& text, StageCut& value) { value = parse_stages(text); }
static void parse_value(const std::string& text, Precision& value) { value = precision_named(text); }
static void parse_value(const std::string& text, Backend& value) { value = backend_named(text); }
static void parse_value(const std::string& text, Augmentation& value) { value = augmentation_named(text); }
static void parse_value(const std::string& text, OnBadSample& value) {
  value = text == "skip" ? OnBadSample::skip : OnBadSample::stop;
}
static void parse_value(const std::string& text, AllReduceAlgorithm& value) {
  value = all_reduce_algorithm_named(text);
}
static void parse_value(const std::string& text, LrKind& value) { value = parse_lr_kind(text); }
static void parse_value(const std::string& text, ServerUpdate& value) {
  value = text == "async" ? ServerUpdate::async : ServerUpdate::sync;
}
static void parse_value(const std::string& text, GraphUse& value) {
  value = text == "on" ? GraphUse::on : text == "off" ? GraphUse::off : GraphUse::automatic;
}
static void parse_value(const std::string& text, PipelineSchedule& value) {
  value = text == "gpipe"         ? PipelineSchedule::gpipe
          : text == "interleaved" ? PipelineSchedule::interleaved
                                  : PipelineSchedule::one_forward_one_backward;
}
static void parse_value(const std::string& text, std::optional<ShardStage>& value) {
  if (text == "optimizer") value = ShardStage::optimizer;
  if (text == "gradients") value = ShardStage::gradients;
  if (text == "parameters") value = ShardStage::parameters;
}
static void parse_value(const std::string& text, ResumeFrom& value) {
  value.kind = text == "auto"    ? ResumeFrom::Kind::newest
               : text == "never" ? ResumeFrom::Kind::nothing
                                 : ResumeFrom::Kind::path;
  if (value.kind == ResumeFrom::Kind::path) value.path = text;
}

namespace {

using namespace option_rows;

constexpr OptionSpec kTrainOptions[] = {
#define DTRAIN_OPTION(values, agreement, ...) row(values, Agreement::agreement, {__VA_ARGS__}),
#include "training/options/train_flags.def"
};

}  // namespace

std::span<const OptionSpec> train_options() { return kTrainOptions; }

void read_train_flags(const Options& options, TrainFlags& flags) {
#define DTRAIN_FLAG(type, field, values, agreement, name, ...) options.read(name, flags.field);
#include "training/options/train_flags.def"
}

}  // namespace dtrain
