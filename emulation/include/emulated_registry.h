// Kernels by their address: what nvcc's generated code tells the runtime of every kernel, so that functions
// that take a kernel as `const void*` (cudaLaunchKernel, nodes of graphs) know its parameters. compile.py
// writes a registration behind each kernel; a source of one's own can do the same. Included by
// emulated_cuda.h.
#pragma once

#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

namespace emulation {

/// From the addresses of a kernel's arguments, whose values are copied: what one thread does.
using Binding = std::function<std::function<void()>(void** arguments)>;

/// Makes the kernel at `address` known under `name`, which must live as long as the program. Another
/// registration of the same kernel changes nothing. Always true.
bool register_kernel(const void* address, const char* name, Binding binding);

template <class... Args, std::size_t... I>
Binding binding_of(void (*kernel)(Args...), std::index_sequence<I...>) {
  return [kernel](void** arguments) -> std::function<void()> {
    static_cast<void>(arguments);  // a kernel may have none
    return [kernel, kept = std::tuple<std::remove_cv_t<Args>...>(
                        *static_cast<std::remove_cv_t<Args>*>(arguments[I])...)] {
      std::apply([&](const auto&... each) { kernel(each...); }, kept);
    };
  };
}

template <class... Args>
bool register_kernel(void (*kernel)(Args...), const char* name) {
  return register_kernel(reinterpret_cast<const void*>(kernel), name,
                         binding_of(kernel, std::index_sequence_for<Args...>()));
}

}  // namespace emulation
