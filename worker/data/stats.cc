// `dtrain data stats`: what the pictures of a folder or of shards are.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>

#include "runtime/data/images/files/survey.h"
#include "runtime/data/sources/open_files.h"
#include "worker/data/data.h"

namespace dtrain {
namespace {

// clang-format off
constexpr OptionSpec kOptions[] = {
    {"dataset", "What to describe", "NAME", "", "folder:DIR, or shards:PATTERN with its settings label, classes and index"},
    {"data-dir", "What to describe", "DIR", "", "folder of relative names; unset: the current one"},
    {"threads", "Machine", "N", "", "reading threads; unset: one per core"},
    {"help", "Output", "", "", "print this text"},
};
// clang-format on

constexpr std::size_t kMostLines = 20;  // of pictures that are named one by one
constexpr std::string_view kFormats[] = {"JPEG", "PNG", "WebP"};

/// Of the pictures that can be read.
class Stats {
 public:
  Stats(const PictureFiles& files, const std::vector<PictureFacts>& facts) : files_(files), facts_(facts) {
    for (const PictureFacts& one : facts) {
      if (one.bad.empty()) good_.push_back(&one);
    }
  }

  void print() const {
    print_formats();
    print_classes();
    if (!good_.empty()) print_sizes();
    if (!good_.empty()) print_colors();
    print_mistyped();
    print_duplicates();
    print_bad();
  }
  bool all_good() const noexcept { return good_.size() == facts_.size(); }

 private:
  void print_formats() const {
    std::int64_t bytes = 0, progressive = 0;
    std::map<PictureFormat, std::int64_t> counts;
    for (const PictureFacts* one : good_) {
      bytes += one->bytes;
      progressive += one->progressive ? 1 : 0;
      ++counts[one->format];
    }
    std::string text;
    for (const auto& [format, count] : counts) {
      text += fmt::format(", {} {}", count, kFormats[static_cast<std::size_t>(format)]);
      if (format == PictureFormat::jpeg && progressive > 0)
        text += fmt::format(" ({} progressive)", progressive);
    }
    fmt::print("pictures    {} in {} classes, {:.1f} MB{}\n", files_.size(), files_.classes().size(),
               1e-6 * static_cast<double>(bytes), text);
  }

  void print_classes() const {
    std::vector<std::int64_t> counts(files_.classes().size());
    for (std::int64_t i = 0; i < files_.size(); ++i) ++counts[static_cast<std::size_t>(files_.label(i))];
    std::vector<std::int64_t> sorted = counts;
    std::ranges::sort(sorted);
    fmt::print("a class     {} to {} pictures, median {}\n", sorted.front(), sorted.back(),
               sorted[sorted.size() / 2]);
    std::vector<std::size_t> order(counts.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) { return counts[i]; });
    for (std::size_t i = 0; i < std::min(order.size(), kMostLines); ++i)
      fmt::print("  {:>8}  {}\n", counts[order[i]], files_.classes()[order[i]]);
    print_more(order.size());
  }

  void print_range(const char* name, int PictureSize::*side) const {
    std::vector<int> values;
    for (const PictureFacts* one : good_) values.push_back(one->size.*side);
    std::ranges::sort(values);
    fmt::print("{:<10}  {} to {} pixels, median {}\n", name, values.front(), values.back(),
               values[values.size() / 2]);
  }
  void print_sizes() const {
    print_range("width", &PictureSize::width);
    print_range("height", &PictureSize::height);
  }

  /// Over all pixels of all pictures.
  void print_colors() const {
    std::array<double, 3> means{}, deviations{};
    std::uint64_t pixels = 0;
    for (const PictureFacts* one : good_)
      pixels += static_cast<std::uint64_t>(one->size.width) * static_cast<std::uint64_t>(one->size.height);
    for (std::size_t c = 0; c < 3; ++c) {
      std::uint64_t sum = 0, squares = 0;
      for (const PictureFacts* one : good_) {
        sum += one->sums[c];
        squares += one->squares[c];
      }
      const double count = static_cast<double>(pixels);
      const double mean = static_cast<double>(sum) / count;
      means[c] = mean / 255;
      deviations[c] = std::sqrt(std::max(static_cast<double>(squares) / count - mean * mean, 0.0)) / 255;
    }
    fmt::print("mean        {:.4f} {:.4f} {:.4f} (red, green, blue; 0 to 1)\n", means[0], means[1], means[2]);
    fmt::print("deviation   {:.4f} {:.4f} {:.4f}\n", deviations[0], deviations[1], deviations[2]);
  }

  /// Whose content is of another format than their names say.
  void print_mistyped() const {
    std::vector<std::string> lines;
    for (std::int64_t i = 0; i < files_.size(); ++i) {
      const PictureFacts& one = facts_[static_cast<std::size_t>(i)];
      std::string name = std::filesystem::path(files_.place(i)).extension().string();
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      constexpr std::array<std::string_view, 3> kNames = {".jpg", ".png", ".webp"};
      const bool fits = one.format == PictureFormat::jpeg && name == ".jpeg";
      const bool is_picture = std::ranges::find(kNames, name) != kNames.end() || name == ".jpeg";
      if (one.bad.empty() && is_picture && !fits && name != kNames[static_cast<std::size_t>(one.format)])
        lines.push_back(
            fmt::format("{} is {}", files_.place(i), kFormats[static_cast<std::size_t>(one.format)]));
    }
    print_list("mistyped", lines);
  }

  void print_duplicates() const {
    std::vector<std::string> lines;
    for (const auto& group : duplicates(files_, facts_)) {
      std::string text;
      bool other_class = false;
      for (const std::int64_t index : group) {
        text += (text.empty() ? "" : " = ") + files_.place(index);
        other_class = other_class || files_.label(index) != files_.label(group.front());
      }
      lines.push_back(text + (other_class ? " (of different classes)" : ""));
    }
    print_list("duplicates", lines);
  }

  void print_bad() const {
    std::vector<std::string> lines;
    for (const PictureFacts& one : facts_) {
      if (!one.bad.empty()) lines.push_back(one.bad);
    }
    print_list("bad", lines);
  }

  static void print_list(std::string_view what, const std::vector<std::string>& lines) {
    fmt::print("{:<10}  {}\n", what, lines.empty() ? "none" : std::to_string(lines.size()));
    for (std::size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) fmt::print("  {}\n", lines[i]);
    print_more(lines.size());
  }
  static void print_more(std::size_t count) {
    if (count > kMostLines) fmt::print("  and {} more\n", count - kMostLines);
  }

  const PictureFiles& files_;
  const std::vector<PictureFacts>& facts_;
  std::vector<const PictureFacts*> good_;
};

}  // namespace

ExitCode run_data_stats(const Invocation& invocation) {
  const Options options =
      resolve_options("dtrain data stats", kOptions, invocation.arguments, invocation.environment);
  if (const auto help = asked_help(options,
                                   "usage: dtrain data stats --dataset NAME [options]\n\nExamples:\n  dtrain "
                                   "data stats --dataset folder:pictures",
                                   kOptions)) {
    fmt::print("{}", *help);
    return ExitCode::ok;
  }
  const auto files = open_picture_files(required(options, "dataset"),
                                        options.has("data-dir") ? options.text("data-dir") : "");
  const auto facts = survey(*files, threads_of(options));
  const Stats stats(*files, facts);
  stats.print();
  return stats.all_good() ? ExitCode::ok : ExitCode::data;
}

}  // namespace dtrain
