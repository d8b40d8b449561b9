# Finds what the CUDA module is made of and enables the CUDA language where that works; half a toolkit is "not found",
# never an error, unless DTRAIN_WITH_CUDA=ON. NCCL and cuDNN are parts of the module and mean nothing without it.

# Compiles and links nothing but an empty kernel: nvcc, its host compiler and the architectures agree.
function(dtrain_try_nvcc nvcc result)
  set(folder "${PROJECT_BINARY_DIR}/CMakeFiles/dtrain_try_nvcc")
  file(WRITE "${folder}/try.cu" "__global__ void nothing() {}\n")
  execute_process(COMMAND "${nvcc}" -std=c++20 -arch=sm_90 -c try.cu -o try.o WORKING_DIRECTORY "${folder}"
                  RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    file(WRITE "${folder}/error.txt" "${text}")
    message(STATUS "nvcc cannot compile C++20 for sm_90; see ${folder}/error.txt")
  endif()
  set(${result} ${code} PARENT_SCOPE)
endfunction()

set(found_cuda OFF)
if(NOT DTRAIN_WITH_CUDA STREQUAL "OFF")
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND NOT TARGET CUDA::cublasLt)
    # A toolkit without its libraries beside PyTorch's wheels, which have them.
    find_path(CUBLAS_INCLUDE_DIR cublasLt.h HINTS ${CUBLAS_ROOT} ENV CUBLAS_ROOT PATH_SUFFIXES include)
    find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12 HINTS ${CUBLAS_ROOT} ENV CUBLAS_ROOT
                 PATH_SUFFIXES lib lib64)
    mark_as_advanced(CUBLAS_INCLUDE_DIR CUBLASLT_LIBRARY)
    if(CUBLAS_INCLUDE_DIR AND CUBLASLT_LIBRARY)
      add_library(CUDA::cublasLt UNKNOWN IMPORTED)
      set_target_properties(CUDA::cublasLt PROPERTIES IMPORTED_LOCATION "${CUBLASLT_LIBRARY}"
                            INTERFACE_INCLUDE_DIRECTORIES "${CUBLAS_INCLUDE_DIR}")
    endif()
  endif()
  if(CUDAToolkit_FOUND AND TARGET CUDA::cublasLt AND TARGET CUDA::cudart_static AND CUDAToolkit_NVCC_EXECUTABLE
     AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.2)
    # The answer is kept: configuring again costs nothing, and another compiler is asked anew.
    if(NOT DTRAIN_NVCC_WORKS STREQUAL "${CUDAToolkit_NVCC_EXECUTABLE} ${CUDAToolkit_VERSION}")
      dtrain_try_nvcc("${CUDAToolkit_NVCC_EXECUTABLE}" code)
      if(code EQUAL 0)
        set(DTRAIN_NVCC_WORKS "${CUDAToolkit_NVCC_EXECUTABLE} ${CUDAToolkit_VERSION}" CACHE INTERNAL "")
      endif()
    endif()
    if(DTRAIN_NVCC_WORKS)
      set(found_cuda ON)
    endif()
  endif()
endif()
dtrain_settle(CUDA "${found_cuda}" "${CUDAToolkit_VERSION}" "training on NVIDIA GPUs"
              "CUDA Toolkit 12.2 or later (nvcc, cuBLAS): developer.nvidia.com/cuda-downloads")

set(found_cudnn OFF)
set(found_nccl OFF)
if(DTRAIN_HAVE_CUDA)
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90-real)
    if(CMAKE_BUILD_TYPE STREQUAL "Release")
      set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES} CACHE STRING "GPU architectures the CUDA module is built for")
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${CUDAToolkit_NVCC_EXECUTABLE}")
  endif()
  if(DTRAIN_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER "${DTRAIN_CCACHE}")
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc has C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
  endif()
  if(NOT DTRAIN_WITH_CUDNN STREQUAL "OFF")
    find_package(CUDNN QUIET)
    set(found_cudnn ${CUDNN_FOUND})
  endif()
  if(NOT DTRAIN_WITH_NCCL STREQUAL "OFF")
    find_package(NCCL QUIET)
    set(found_nccl ${NCCL_FOUND})
  endif()
endif()
dtrain_settle(CUDNN "${found_cudnn}" "${CUDNN_VERSION}" "fast convolution on GPUs" "apt install libcudnn9-dev-cuda-13, or CUDNN_ROOT")
dtrain_settle(NCCL "${found_nccl}" "${NCCL_VERSION}" "collectives between GPUs" "apt install libnccl-dev, or NCCL_ROOT")

# The module: runtime/device/cuda and collectives/nccl add their files. It is loaded when a GPU is asked for, so that
# no program links the libraries behind it; see docs/decisions/012-cuda-module.md.
if(DTRAIN_HAVE_CUDA)
  add_library(dtrain_cuda MODULE)
  set_property(GLOBAL APPEND PROPERTY DTRAIN_MODULES dtrain_cuda)
  set_target_properties(dtrain_cuda PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    DTRAIN_COMPONENT dtrain-cuda INSTALL_RPATH "\$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
  dtrain_compile_by_folder(dtrain_cuda)
  target_include_directories(dtrain_cuda PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_features(dtrain_cuda PRIVATE cxx_std_20)
  target_compile_options(dtrain_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--extended-lambda;-Xcompiler=-Wall;--display-error-number>
    $<$<AND:$<BOOL:${DTRAIN_WERROR}>,$<COMPILE_LANGUAGE:CUDA>>:--Werror=all-warnings>)
  target_compile_definitions(dtrain_cuda PRIVATE DTRAIN_VERSION="${PROJECT_VERSION}"
    DTRAIN_HAVE_CUDNN=$<BOOL:${DTRAIN_HAVE_CUDNN}> $<$<COMPILE_LANGUAGE:CUDA>:DTRAIN_KERNELS>)
  target_link_libraries(dtrain_cuda PRIVATE dtrain_compile_settings)
  # Static libraries inside stay inside: the program has its own copies.
  target_link_options(dtrain_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,--no-undefined)
endif()
