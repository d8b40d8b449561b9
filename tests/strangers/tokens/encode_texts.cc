// Encodes texts for tokens.py, which compares: reads from standard input, each a length (u32) and as many
// bytes, and writes to standard output for each a count (u32), as many tokens (i32), and whether they decode
// to it (u32).
//
// usage: dtrain_encode_texts TOKENIZER [parsed]
//        dtrain_encode_texts TOKENIZER time FILE ROUNDS    prints bytes per second of CPU, a line a round
//        dtrain_encode_texts train TOKENS THREADS FILE     prints the tokenizer.json that is learned from
//        FILE
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>

#include "runtime/base/error.h"
#include "runtime/data/tokens/shards/train_tokenizer.h"
#include "runtime/data/tokens/tokenizer.h"
#include "runtime/data/tokens/tokenizer_files.h"

namespace {

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

void put(std::uint32_t value) { std::fwrite(&value, sizeof value, 1, stdout); }

void encode_all(dtrain::Encoder& encoder, dtrain::SpecialTokens specials) {
  std::string text;
  std::vector<std::int32_t> tokens;
  for (std::uint32_t size = 0; std::fread(&size, sizeof size, 1, stdin) == 1;) {
    text.resize(size);
    if (std::fread(text.data(), 1, size, stdin) != size) throw dtrain::Error("standard input: cut short");
    tokens.clear();
    encoder.encode(text, tokens, specials);
    put(static_cast<std::uint32_t>(tokens.size()));
    std::fwrite(tokens.data(), sizeof tokens[0], tokens.size(), stdout);
    put(encoder.tokenizer().decode(tokens) == text ? 1 : 0);
  }
}

void time_rounds(dtrain::Encoder& encoder, const char* path, int rounds) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::int32_t> tokens;
  for (int round = 0; round < rounds; ++round) {
    tokens.clear();
    const double before = cpu_seconds();
    encoder.encode(text, tokens);
    fmt::print("{}\n", static_cast<double>(text.size()) / (cpu_seconds() - before));
  }
}

void train(const char* tokens, const char* threads, const char* path) {
  const double before = cpu_seconds();
  const auto learned = dtrain::train_tokenizer(
      {.inputs = {path}, .vocabulary = std::atoi(tokens), .threads = std::atoi(threads)});
  fmt::print(stderr, "learned {} tokens in {:.3f} s of CPU\n", learned.tokens.size(), cpu_seconds() - before);
  fmt::print("{}", dtrain::write_tokenizer_json(learned));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw dtrain::UsageError("expected a tokenizer, got nothing");
  if (argc == 5 && std::string_view(argv[1]) == "train") {
    train(argv[2], argv[3], argv[4]);
    return 0;
  }
  const double before = cpu_seconds();
  dtrain::Encoder encoder(dtrain::open_tokenizer(argv[1]));
  fmt::print(stderr, "opened {} in {:.3f} s of CPU\n", argv[1], cpu_seconds() - before);
  if (argc == 5) {
    time_rounds(encoder, argv[3], std::atoi(argv[4]));
  } else {
    encode_all(encoder, argc > 2 ? dtrain::SpecialTokens::parsed : dtrain::SpecialTokens::as_text);
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "dtrain_encode_texts: {}\n", error.what());
  return 1;
}
