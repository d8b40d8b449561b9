// The table of known data sets. A new one adds its row with its own opener.
#include "runtime/data/sources/open_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <filesystem>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/data/cache/data_cache.h"
#include "runtime/data/sources/cifar10_source.h"
#include "runtime/data/sources/idx_source.h"
#include "runtime/data/sources/open_files.h"
#include "runtime/data/sources/synthetic_source.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

struct KnownSource {
  const char* name;
  const char* default_dir;
  const char* remedy;
  std::shared_ptr<const Source> (*open)(const KnownSource& known, const fs::path& dir, Split split,
                                        DataCache& cache);
};

// The file as the package has it, gunzipped by hand, or where torchvision puts it; the first that exists,
// plain before gzip because it is read as it is. The package's own name when there is none, for the
// message.
std::string find_idx(const fs::path& dir, const std::string& stem, const char* inner) {
  const fs::path choices[] = {dir / stem, dir / (stem + ".gz"), dir / inner / "raw" / stem};
  std::error_code ignored;
  for (const fs::path& choice : choices) {
    if (fs::exists(choice, ignored)) return choice.string();
  }
  return choices[1].string();
}

std::shared_ptr<const Source> open_mnist(const KnownSource& known, const fs::path& dir, Split split,
                                         DataCache& cache) {
  if (dir.empty()) {
    throw UsageError(
        fmt::format("dataset {}: expected data_dir, the folder of its IDX files, got none", known.name));
  }
  const char* const inner = std::string_view(known.name) == "mnist" ? "MNIST" : "FashionMNIST";
  const std::string prefix = split == Split::train ? "train" : "t10k";
  IdxSourceFiles files;
  files.name = fmt::format("{} {} ({})", known.name, name_of(split), dir.string());
  files.images = find_idx(dir, prefix + "-images-idx3-ubyte", inner);
  files.labels = find_idx(dir, prefix + "-labels-idx1-ubyte", inner);
  files.remedy = known.remedy;
  return std::make_shared<IdxSource>(files, cache);
}

std::shared_ptr<const Source> open_cifar10(const KnownSource& known, const fs::path& dir, Split split,
                                           DataCache&) {
  if (dir.empty()) {
    throw UsageError("dataset cifar10: expected data_dir, the folder of its binary files, got none");
  }
  std::error_code ignored;
  const fs::path inner = dir / "cifar-10-batches-bin";  // as the archive unpacks
  const fs::path folder = fs::is_directory(inner, ignored) ? inner : dir;
  std::vector<std::string> files;
  for (int i = 1; split == Split::train && i <= 5; ++i) {
    files.push_back((folder / fmt::format("data_batch_{}.bin", i)).string());
  }
  if (split == Split::test) files.push_back((folder / "test_batch.bin").string());
  return std::make_shared<Cifar10Source>(fmt::format("cifar10 {} ({})", name_of(split), folder.string()),
                                         files, known.remedy);
}

constexpr std::string_view kSyntheticPrefix = "synthetic:", kCsvPrefix = "csv:", kNpyPrefix = "npy:",
                           kIdxPrefix = "idx:", kTextPrefix = "text:", kTokensPrefix = "tokens:",
                           kFolderPrefix = "folder:", kShardsPrefix = "shards:";

constexpr std::array kKnownSources = {
    KnownSource{"fashion-mnist", "/usr/share/datasets/fashion-mnist",
                "install it with `apt install dataset-fashion-mnist`, or give its folder as data_dir",
                open_mnist},
    KnownSource{
        "mnist", "",
        "its files are train-images-idx3-ubyte and so on, plain or .gz; give their folder as data_dir",
        open_mnist},
    KnownSource{"cifar10", "", "unpack cifar-10-binary.tar.gz and give its folder as data_dir", open_cifar10},
};

fs::path cache_directory(const std::string& option) {
  if (option == "off") return {};
  if (option == "auto") return default_data_cache_directory();
  if (option.empty()) throw UsageError("cache_dir: expected a folder, \"auto\" or \"off\", got nothing");
  return fs::absolute(option);
}

// The user's own files; nothing for other names.
std::optional<Splits> open_own_files(std::string_view name, const OpenSourceOptions& options) {
  const std::string& data_dir = options.data_dir;
  const auto how = [&] {
    return OpenPictureOptions{options.augment, options.on_bad_sample, options.log,
                              cache_directory(options.cache_dir), options.picture_cache_bytes};
  };
  if (name.starts_with(kFolderPrefix)) return open_folder(name.substr(kFolderPrefix.size()), data_dir, how());
  if (name.starts_with(kShardsPrefix)) return open_shards(name.substr(kShardsPrefix.size()), data_dir, how());
  if (options.augment != Augmentation{}) {
    throw UsageError(fmt::format(
        "augment: expected none, or pictures in files (folder:..., shards:...), got \"{}\" for {}",
        name_of(options.augment), name));
  }
  if (options.picture_cache_bytes > 0) {
    throw UsageError(fmt::format(
        "image cache: expected none, or pictures in files (folder:..., shards:...), got {} bytes for {}",
        options.picture_cache_bytes, name));
  }
  if (name.starts_with(kCsvPrefix)) return open_csv(name.substr(kCsvPrefix.size()), data_dir, options.log);
  if (name.starts_with(kNpyPrefix)) return open_npy(name.substr(kNpyPrefix.size()), data_dir);
  if (name.starts_with(kIdxPrefix)) {
    NullLog silence;
    DataCache cache(cache_directory(options.cache_dir), options.log != nullptr ? *options.log : silence);
    return open_idx(name.substr(kIdxPrefix.size()), data_dir, cache);
  }
  if (name.starts_with(kTextPrefix)) return open_text(name.substr(kTextPrefix.size()), data_dir);
  if (name.starts_with(kTokensPrefix)) return open_tokens(name.substr(kTokensPrefix.size()), data_dir);
  return std::nullopt;
}

}  // namespace

std::shared_ptr<const Source> open_source(std::string_view name, Split split,
                                          const OpenSourceOptions& options) {
  if (const auto splits = open_own_files(name, options))
    return split == Split::train ? splits->train : splits->test;
  if (name.starts_with(kSyntheticPrefix)) {
    const SyntheticSpec spec = parse_synthetic(name.substr(kSyntheticPrefix.size()));
    return std::make_shared<SyntheticSource>(fmt::format("{} {}", name, name_of(split)), spec,
                                             split == Split::train ? 1 : 2);
  }
  for (const KnownSource& known : kKnownSources) {
    if (known.name != name) continue;
    NullLog silence;
    DataCache cache(cache_directory(options.cache_dir), options.log != nullptr ? *options.log : silence);
    return known.open(known,
                      options.data_dir.empty() ? fs::path(known.default_dir) : fs::path(options.data_dir),
                      split, cache);
  }
  throw UsageError(fmt::format(
      "dataset: expected one of {}, synthetic:CxHxW,classes,N, csv:FILE,..., npy:NAME=FILE,..., "
      "idx:NAME=FILE,..., text:FILE,..., tokens:PATTERN,..., folder:DIR,... or shards:PATTERN,..., "
      "got \"{}\"",
      fmt::join(source_names(), ", "), name));
}

Splits open_splits(std::string_view name, const OpenSourceOptions& options) {
  if (auto splits = open_own_files(name, options)) return *std::move(splits);
  return {open_source(name, Split::train, options), open_source(name, Split::test, options)};
}

std::vector<std::string> source_names() {
  std::vector<std::string> names;
  names.reserve(kKnownSources.size());
  for (const KnownSource& known : kKnownSources) names.emplace_back(known.name);
  return names;
}

}  // namespace dtrain
