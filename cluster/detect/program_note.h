// How a launcher tells a program that is made with this library from any other before it starts it: the
// program's file carries an ELF note.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain {

/// The note's contents, as <elf.h> lays them out. `version` changes when launchers and workers of different
/// versions could not work together.
struct ProgramNote {
  std::uint32_t name_bytes = 7, description_bytes = 4, type = 1;
  char name[8] = "dtrain";
  std::uint32_t version = 1;
};

/// Whether the file at `path` is a program (ELF, of this machine's word size) that carries the note. False
/// for everything else, also for what cannot be read.
bool has_program_note(const std::string& path);

}  // namespace dtrain

/// Puts the note into the program. For one source file that every program links.
#define DTRAIN_PROGRAM_NOTE()                                         \
  namespace {                                                         \
  [[gnu::section(".note.dtrain"), gnu::used,                          \
    gnu::aligned(4)]] constexpr ::dtrain::ProgramNote kProgramNote{}; \
  }
