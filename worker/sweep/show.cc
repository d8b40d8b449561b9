#include "worker/sweep/show.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/base/files/durable_file.h"
#include "runtime/metrics/run_directory.h"

namespace dtrain::sweep {
namespace {

constexpr std::streamoff kTail = 4096;  // of metrics.jsonl: a few lines

}  // namespace

Progress last_step(const std::filesystem::path& metrics) {
  std::ifstream in(metrics, std::ios::binary | std::ios::ate);
  if (!in) return {};
  const std::streamoff size = in.tellg();
  in.seekg(std::max<std::streamoff>(0, size - kTail));
  Progress last;
  for (std::string line; std::getline(in, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, false);  // the first and the last may be torn
    if (!record.is_object() || record.value("event", "") != "step") continue;
    last.step = record.value("step", std::int64_t{0});
    last.epoch = record.value("epoch", std::int64_t{0});
    if (const auto loss = record.find("loss"); loss != record.end() && loss->is_number()) last.loss = *loss;
    if (const auto rate = record.find("samples_per_second"); rate != record.end() && rate->is_number())
      last.samples_per_second = *rate;
  }
  return last;
}

Show::Show(int fd, const Environment& environment, std::size_t runs)
    : fd_(fd), options_(progress_options_for(fd, environment)), runs_(runs) {}

Show::~Show() { erase(); }

void Show::say(const std::string& text) {
  erase();
  write(text + "\n");
  draw();
}

void Show::begin(int place, const std::string& name, const std::filesystem::path& run_dir) {
  lines_[place] = {name, run_dir, steady_clock().now()};
}

void Show::end(int place) { lines_.erase(place); }

void Show::draw() {
  if (!options_.terminal) return;
  erase();
  const int width = options_.width ? options_.width() : 80;
  std::string text;
  for (const auto& [place, line] : lines_) text += text_of(line, width) + "\n";
  text += fmt::format("{} of {} runs done\n", done_, runs_);
  drawn_ = lines_.size() + 1;
  write(text);
}

std::string Show::text_of(const Line& line, int width) const {
  const auto room = static_cast<std::size_t>(std::max(width - 1, 20));
  std::string text = line.name.substr(0, room / 2) + "  ";
  const Progress progress = last_step(RunDirectory(line.run_dir).metrics());
  if (progress.step > 0)
    text += format_progress(progress, static_cast<int>(room - text.size()), false, options_.colour);
  else
    text += "starting, " + format_duration(steady_clock().now() - line.since);
  return text;
}

// Up to the first of the lines that were drawn, and everything from there.
void Show::erase() {
  if (drawn_ > 0) write(fmt::format("\x1b[{}A\r\x1b[J", drawn_));
  drawn_ = 0;
}

void Show::write(const std::string& text) const {
  try {
    write_all(fd_, text, "the terminal");
  } catch (const SystemError&) {
    // Nobody watches any more; the sweep continues.
  }
}

}  // namespace dtrain::sweep
