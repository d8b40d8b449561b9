#include "runtime/metrics/report/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/metrics/report/thin.h"
#include "runtime/metrics/report/words.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// As many points as the width of a picture has pixels; fewer of each run where there are many.
constexpr std::size_t kMostPoints = 800, kFewestPoints = 100, kPointsOfAll = 8000;
constexpr std::size_t kMostEpochRows = 200;

/// With so many digits a picture shows no difference.
ordered_json rounded(double value, int digits = 6) {
  if (!std::isfinite(value)) return nullptr;
  return std::strtod(fmt::format("{:.{}g}", value, digits).c_str(), nullptr);
}

ordered_json curve_json(const Curve& curve, std::size_t most) {
  if (curve.empty()) return nullptr;
  const bool thinned = curve.size() > most;
  ordered_json json = {
      {"x", ordered_json::array()}, {"t", ordered_json::array()}, {"y", ordered_json::array()}};
  if (thinned) json["low"] = json["high"] = ordered_json::array();
  for (const ThinPoint& point : thin_out(curve, most)) {
    json["x"].push_back(static_cast<std::int64_t>(point.step));
    json["t"].push_back(rounded(point.seconds, 8));
    json["y"].push_back(rounded(point.mean));
    if (!thinned) continue;
    json["low"].push_back(rounded(point.low));
    json["high"].push_back(rounded(point.high));
  }
  return json;
}

ordered_json curves_json(const RunMetrics& metrics, std::size_t most) {
  ordered_json evaluations = ordered_json::array();
  for (const auto& [name, curve] : metrics.eval_metrics)
    evaluations.push_back({{"id", name}, {"name", name_in_words(name)}, {"curve", curve_json(curve, most)}});
  return {{"train_loss", curve_json(metrics.train_loss, most)},
          {"eval_loss", curve_json(metrics.eval_loss, most)},
          {"evaluations", evaluations},
          {"rate", curve_json(metrics.samples_per_second, most)},
          {"allocated", curve_json(metrics.allocated_bytes, most)},
          {"resident", curve_json(metrics.resident_bytes, most)},
          {"learning_rate", curve_json(metrics.learning_rate, most)}};
}

ordered_json epochs_json(const RunMetrics& metrics) {
  ordered_json rows = ordered_json::array();
  std::size_t skip = metrics.epochs.size() - std::min(metrics.epochs.size(), kMostEpochRows);
  for (const auto& [epoch, row] : metrics.epochs) {
    if (skip > 0 && skip--) continue;
    ordered_json found = ordered_json::object();
    for (const auto& [name, value] : row.metrics) found[name] = rounded(value);
    rows.push_back({{"epoch", epoch + 1},
                    {"seconds", row.seconds ? rounded(*row.seconds) : ordered_json()},
                    {"whole", row.whole},
                    {"loss", row.loss ? rounded(*row.loss) : ordered_json()},
                    {"metrics", found}});
  }
  return rows;
}

const PhaseTimes& phases_of(const RunFollower& run) {
  if (!run.metrics().phases.empty()) return run.metrics().phases;
  return run.report().phases.empty() ? run.report().summary.phases : run.report().phases;
}

// Ranks of a large job: the page shows those that differ most in what they take.
ordered_json phases_json(const PhaseTimes& phases) {
  ordered_json ranks = ordered_json::array();
  for (std::size_t i = 0; i < phases.ranks.size(); ++i) {
    ordered_json parts = ordered_json::array();
    for (const double milliseconds : phases.milliseconds[i]) parts.push_back(rounded(milliseconds));
    ranks.push_back({{"rank", phases.ranks[i]}, {"milliseconds", parts}});
  }
  return {{"parts", phases.parts}, {"measured", phases.measured}, {"ranks", ranks}};
}

ordered_json facts_json(const std::vector<Fact>& facts) {
  ordered_json json = ordered_json::array();
  for (const Fact& fact : facts) {
    ordered_json one = {{"id", fact.id}, {"name", fact.name}, {"text", fact.text}};
    if (fact.value) one["value"] = rounded(*fact.value, 12);
    if (fact.better != 0) one["better"] = fact.better;
    json.push_back(std::move(one));
  }
  return json;
}

/// The mean of the epochs whose time is known.
std::optional<double> seconds_per_epoch(const RunMetrics& metrics) {
  double sum = 0;
  int count = 0;
  for (const auto& [epoch, row] : metrics.epochs) {
    if (!row.seconds || !row.whole) continue;
    sum += *row.seconds;
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

bool has(const std::vector<Fact>& facts, std::string_view id) {
  return std::ranges::find(facts, id, &Fact::id) != facts.end();
}

const double* last_number(const Curve& curve) {
  const auto found =
      std::find_if(curve.rbegin(), curve.rend(), [](const auto& point) { return !std::isnan(point.value); });
  return found == curve.rend() ? nullptr : &found->value;
}

void add_unless_there(std::vector<Fact>& facts, Fact fact) {
  if (!has(facts, fact.id)) facts.push_back(std::move(fact));
}

/// What only the metrics know, or what a run without a summary has come to.
std::vector<Fact> results_of(const RunFollower& run, const std::string& samples) {
  const RunMetrics& metrics = run.metrics();
  std::vector<Fact> facts = run.report().summary.results;
  const auto accuracy = metrics.eval_metrics.find("accuracy");
  if (accuracy != metrics.eval_metrics.end() && !accuracy->second.empty()) {
    const Curve& curve = accuracy->second;
    const auto best = std::ranges::max_element(curve, {}, &CurvePoint::value);
    add_unless_there(
        facts, {"test.accuracy", "Test accuracy", percent_text(curve.back().value), curve.back().value, 1});
    facts.push_back({"best_accuracy", "Best test accuracy",
                     fmt::format("{}, step {}", percent_text(best->value),
                                 count_text(static_cast<std::int64_t>(best->step))),
                     best->value, 1});
  }
  if (const double* loss = last_number(metrics.eval_loss))
    add_unless_there(facts, {"test.loss", "Test loss", number_text(*loss), *loss, -1});
  if (const double* rate = last_number(metrics.samples_per_second))
    add_unless_there(facts, {"samples_per_second", samples + " per second", number_text(*rate), *rate, 1});
  if (const auto seconds = seconds_per_epoch(metrics))
    facts.push_back({"seconds_per_epoch", "Seconds per epoch", seconds_text(*seconds), *seconds, -1});
  if (const double* loss = last_number(metrics.train_loss))
    add_unless_there(facts, {"loss", "Last training loss", number_text(*loss), *loss, -1});
  add_unless_there(
      facts, {"steps", "Steps", count_text(metrics.last_step), static_cast<double>(metrics.last_step), 0});
  if (metrics.first_time)
    facts.push_back(
        {"span", "Time between first and last step", seconds_text(*metrics.last_time - *metrics.first_time)});
  return facts;
}

std::vector<std::string> notes_of(const RunFollower& run) {
  const RunMetrics& metrics = run.metrics();
  std::vector<std::string> notes = run.report().notes;
  if (metrics.lines_left_out > 0) {
    notes.push_back(fmt::format(
        "{} of {} lines of metrics.jsonl could not be read and {} left out; the first is line {}.",
        count_text(metrics.lines_left_out), count_text(metrics.lines),
        metrics.lines_left_out == 1 ? "is" : "are", metrics.first_line_left_out));
  }
  if (metrics.losses_not_finite > 0) {
    notes.push_back(fmt::format(
        "The training loss was not a finite number in {} of the recorded steps, first in step {}.",
        count_text(metrics.losses_not_finite), metrics.first_loss_not_finite));
  }
  return notes;
}

/// A summary that is older than the last steps is an earlier start's.
ordered_json status_json(const RunFollower& run) {
  const RunSummaryFacts& summary = run.report().summary;
  const auto last = static_cast<double>(run.metrics().last_step);
  if (summary.status.empty() || (summary.steps >= 0 && last > summary.steps)) {
    if (run.metrics().last_step == 0) return {{"kind", "empty"}, {"text", "No step recorded yet"}};
    return {{"kind", "unfinished"}, {"text", "Not finished"}};
  }
  if (summary.status == "finished") return {{"kind", "finished"}, {"text", "Finished"}};
  if (summary.status == "stopped") return {{"kind", "stopped"}, {"text", "Stopped by a signal"}};
  return {{"kind", "other"}, {"text", name_in_words(summary.status)}};
}

std::string text_of(const std::vector<Fact>& facts, std::string_view id) {
  const auto found = std::ranges::find(facts, id, &Fact::id);
  return found == facts.end() ? std::string() : found->text;
}

std::string subtitle_of(const RunFollower& run, const std::vector<Fact>& results) {
  const RunConfig& config = run.report().config;
  std::string text = config.option("model");
  const auto add = [&](std::string_view between, const std::string& part) {
    if (!part.empty()) text += (text.empty() ? "" : std::string(between)) + part;
  };
  add(" on ", config.option("dataset"));
  const std::string workers = text_of(results, "world_size");
  if (!workers.empty()) {
    add(" · ", workers + (workers == "1" ? " worker" : " workers"));
    add(" · ", text_of(config.machine, "device"));
  } else if (!run.report().log.starts.empty()) {
    add(" · ", run.report().log.starts.back());
  }
  return text;
}

ordered_json run_json(const RunFollower& run, const std::string& name, std::size_t most) {
  const RunReport& report = run.report();
  const std::string samples = samples_word(report.config);
  const std::vector<Fact> results = results_of(run, samples);
  ordered_json options = ordered_json::array();
  for (const RunOption& option : report.config.options)
    options.push_back({{"name", option.name}, {"value", option.value}, {"source", option.source}});
  ordered_json json = {
      {"name", name},
      {"path", fs::absolute(run.run().path()).lexically_normal().string()},
      {"status", status_json(run)},
      {"subtitle", subtitle_of(run, results)},
      {"samples", samples},
      {"last_step", run.metrics().last_step},
      {"last_time", run.metrics().last_time ? rounded(*run.metrics().last_time, 14) : ordered_json()}};
  json["curves"] = curves_json(run.metrics(), most);
  json["epochs"] = epochs_json(run.metrics());
  json["epochs_left_out"] = run.metrics().epochs.size() - json["epochs"].size();
  json["phases"] = phases_json(phases_of(run));
  json["results"] = facts_json(results);
  json["settings"] = facts_json(report.config.settings);
  json["machine"] = facts_json(report.config.machine);
  json["options"] = std::move(options);
  json["starts"] = report.log.starts;
  json["troubles"] = report.log.troubles;
  json["notes"] = notes_of(run);
  return json;
}

}  // namespace

std::vector<std::string> distinct_names(const std::vector<fs::path>& paths) {
  std::vector<std::vector<std::string>> parts;
  for (const fs::path& path : paths) {
    parts.emplace_back();
    for (const fs::path& part : fs::absolute(path).lexically_normal()) {
      if (!part.empty() && part != "/") parts.back().push_back(part.string());
    }
  }
  const auto name_of = [](const std::vector<std::string>& all, std::size_t count) {
    fs::path name;
    for (std::size_t i = all.size() - std::min(all.size(), count); i < all.size(); ++i) name /= all[i];
    return name.empty() ? std::string("/") : name.string();
  };
  std::vector<std::string> names;
  for (const auto& own : parts) {
    std::size_t count = 1;
    const auto taken = [&](const auto& other) {
      return &other != &own && name_of(other, count) == name_of(own, count);
    };
    while (count < own.size() && std::ranges::any_of(parts, taken)) ++count;
    names.push_back(name_of(own, count));
  }
  return names;
}

std::string page_data(std::span<const RunFollower> runs, bool live) {
  std::vector<fs::path> paths;
  for (const RunFollower& run : runs) paths.push_back(run.run().path());
  const std::vector<std::string> names = distinct_names(paths);
  const std::size_t most =
      std::clamp(kPointsOfAll / std::max<std::size_t>(runs.size(), 1), kFewestPoints, kMostPoints);
  ordered_json page = {{"live", live}, {"runs", ordered_json::array()}};
  for (std::size_t i = 0; i < runs.size(); ++i) page["runs"].push_back(run_json(runs[i], names[i], most));
  std::string text = page.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  // Nothing in it may end the element it stands in, or begin a comment there.
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) c == '<' ? safe += "\\u003c" : safe += c;
  return safe;
}

}  // namespace dtrain
