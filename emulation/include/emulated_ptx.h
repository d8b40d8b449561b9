// For programs that compile.py compiles: what stands in place of PTX in their sources. It knows a few
// instructions; any other loses the context, with its name, when a thread comes to it.
#pragma once

namespace emulation::device {

/// The running kernel fails: it came to `instruction`, which no emulated GPU has.
void no_such_instruction(const char* instruction);

}  // namespace emulation::device

#undef __launch_bounds__
#define __launch_bounds__(...)
