# Kernels of one's own for emulated GPUs (docs/gpu.md). With the package dtrain:
#
#   find_package(dtrain REQUIRED COMPONENTS training)
#   add_executable(mine main.cc)
#   target_link_libraries(mine PRIVATE dtrain::training)
#   dtrain_add_emulated_kernels(mine kernels.cu)
#
# compiles the CUDA sources, unchanged, with the host compiler, and links the module of the emulated machine, on which the
# program's kernels then run beside dtrain's. CUDA's headers are needed (CUDA_PATH, /usr/local/cuda, or
# -Ddtrain_CUDA_INCLUDE_DIR=), and Python. Such a program uses GPUs only with DTRAIN_EMULATED_GPUS set; for real ones give
# the sources to CMake's own language CUDA.
function(dtrain_add_emulated_kernels target)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  find_path(dtrain_CUDA_INCLUDE_DIR cuda_runtime.h HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES include)
  mark_as_advanced(dtrain_CUDA_INCLUDE_DIR)
  if(NOT dtrain_CUDA_INCLUDE_DIR)
    message(FATAL_ERROR "dtrain_add_emulated_kernels: expected CUDA's headers, found no cuda_runtime.h. They come with the CUDA "
                        "toolkit or with pip install nvidia-cuda-runtime; -Ddtrain_CUDA_INCLUDE_DIR= says where they are")
  endif()
  foreach(file IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE source)
    cmake_path(GET source FILENAME name)
    set(object "${CMAKE_CURRENT_BINARY_DIR}/emulated_kernels/${target}/${name}.o")
    add_custom_command(OUTPUT "${object}" DEPENDS "${source}" VERBATIM
      COMMAND ${CMAKE_COMMAND} -E make_directory "${CMAKE_CURRENT_BINARY_DIR}/emulated_kernels/${target}"
      COMMAND ${Python3_EXECUTABLE} "${dtrain_EMULATION_DIR}/compile.py" --cxx "${CMAKE_CXX_COMPILER}"
              --include "${dtrain_CUDA_INCLUDE_DIR}" -c "${source}" -o "${object}"
      COMMENT "Compiling ${name} for emulated GPUs")
    set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
    target_sources(${target} PRIVATE "${object}")
  endforeach()
  target_link_libraries(${target} PRIVATE "${dtrain_EMULATED_MODULE}")
endfunction()
