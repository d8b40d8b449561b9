# Installs the CMake package `dtrain`: one component a library, each with only the dependencies that it links.
#
#   find_package(dtrain REQUIRED COMPONENTS runtime)    # neither Gloo nor OpenSSL is looked for
#   target_link_libraries(mine PRIVATE dtrain::runtime)
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY DTRAIN_LIBRARIES)  # in the order of their dependencies
get_property(programs GLOBAL PROPERTY DTRAIN_PROGRAMS)
get_property(modules GLOBAL PROPERTY DTRAIN_MODULES)
set(DTRAIN_PACKAGE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/dtrain")

# --- headers ---------------------------------------------------------------------------------------------------
# Everything in the rooms of exported libraries is public but what these patterns match. A public header that includes
# one that is not fails the installation.
set(DTRAIN_INTERNAL_HEADERS
  ".*_impl\\.h"
  "cluster/detect/(command|detect_reader|program_note|slurm_node)\\.h"
  "cluster/mpi/.*"
  "cluster/net/(acceptor|bytes|cipher|connector|frames|handshake|mac|secure_stream)\\.h"
  "cluster/quorum/.*"
  "cluster/rendezvous/.*"
  "cluster/store/(fields|store_(barrier|connection|table|wire))\\.h"
  "collectives/(backends|mpi_module|nccl_module)\\.h"
  "collectives/(gloo|mpi|nccl|p2p|self|shm|tcp|threads)/.*"
  "parallel/server/(message_link|protocol|purpose|server_channels|table)\\.h"
  "runtime/autograd/(backward_pass\\.h|functions/.*)"
  "runtime/base/(blocked_signals|check|start_thread|terminal|files/(durable_file|module_file|needed_libraries))\\.h"
  "runtime/checkpoint/(checkpoint_files|checksum|input_file|safetensors_header|shard_index|taken_snapshot|writer_lock|json/.*)\\.h"
  "runtime/data/(cache/.*|formats/.*|sources/(class_labels|csv_source|idx_source|npy_source|open_files|pixels|source_spec)\\.h)"
  "runtime/data/images/(formats|passes|files/(kept_index|wds_index))\\.h"
  "runtime/data/tokens/(patterns|tokenizer_files|train_bpe|unicode|shards/.*)\\.h"
  "runtime/device/(cpu|cuda)/.*"
  "runtime/device/(checked_kernels|dtype_dispatch|elementary|functors|kernel_checks|kernel_flops|optimizer_rules|philox|timed_kernels)\\.h"
  "runtime/metrics/(protobuf\\.h|report/.*)"
  "runtime/nn/sequences/row_lengths\\.h"
  "runtime/onnx/(builder|graph|trace_device|translator|values|wire)\\.h"
  "training/use/(name_map|output_file|predict_input|predict_output)\\.h")

set(DTRAIN_PUBLIC_HEADERS dtrain.h)
foreach(library IN LISTS libraries)
  string(REGEX REPLACE "^dtrain_(base|runtime)$" "dtrain_runtime" room "${library}")
  string(REPLACE "dtrain_" "" room "${room}")
  file(GLOB_RECURSE headers RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${room}/*.h"
       "${PROJECT_SOURCE_DIR}/${room}/*.def")
  list(APPEND DTRAIN_PUBLIC_HEADERS ${headers})
endforeach()
list(REMOVE_DUPLICATES DTRAIN_PUBLIC_HEADERS)
foreach(internal IN LISTS DTRAIN_INTERNAL_HEADERS)
  list(FILTER DTRAIN_PUBLIC_HEADERS EXCLUDE REGEX "^${internal}$")
endforeach()
install(CODE "
  set(source_dir \"${PROJECT_SOURCE_DIR}\")
  set(include_dir \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")
  set(public_headers \"${DTRAIN_PUBLIC_HEADERS}\")
  cmake_policy(SET CMP0011 NEW)
  include(\"${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake\")")

# --- libraries and programs ------------------------------------------------------------------------------------
# What find_package() has to be asked for, by the target that a library links. A library of files alone (headers, or a
# plain archive member) is not listed here: link it with $<BUILD_INTERFACE:…>.
set(package_of_fmt::fmt fmt)
set(package_of_gloo Gloo)
set(package_of_OpenMP::OpenMP_CXX OpenMP)
set(package_of_OpenSSL::Crypto OpenSSL)
set(package_of_Threads::Threads Threads)
set(package_of_ZLIB::ZLIB ZLIB)
set(package_of_dtrain::onednn dtrain_onednn)
set(package_of_dtrain::pcre2 dtrain_pcre2)
set(package_of_dtrain::utf8proc dtrain_utf8proc)
set(package_of_dtrain::jpeg dtrain_jpeg)
set(package_of_dtrain::png dtrain_png)
set(package_of_dtrain::webp dtrain_webp)

set(DTRAIN_COMPONENTS "")
set(DTRAIN_COMPONENT_NEEDS "")
foreach(library IN LISTS libraries)
  string(REPLACE "dtrain_" "" component "${library}")
  set(components "")
  set(packages "")
  get_target_property(linked ${library} LINK_LIBRARIES)
  foreach(item IN LISTS linked)
    string(REGEX REPLACE "^\\$<INSTALL_INTERFACE:(.*)>$" "\\1" item "${item}")
    # "::@": where CMake notes from which folder an item was added.
    if(item MATCHES "^(\\$<BUILD_INTERFACE:|::@)" OR item STREQUAL "${CMAKE_DL_LIBS}")
      continue()
    elseif(DEFINED package_of_${item})
      list(APPEND packages ${package_of_${item}})
    elseif(item MATCHES "^dtrain::([a-z_]+)$")
      list(APPEND components ${CMAKE_MATCH_1})
    else()
      message(FATAL_ERROR "${library} links ${item}; say in cmake/DtrainInstall.cmake how its users find that")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES components)
  list(REMOVE_DUPLICATES packages)
  list(APPEND DTRAIN_COMPONENTS ${component})
  string(APPEND DTRAIN_COMPONENT_NEEDS "set(dtrain_${component}_components ${components})\n"
                                       "set(dtrain_${component}_packages ${packages})\n")
  install(TARGETS ${library} EXPORT dtrain-${component}-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT dtrain-${component}-targets NAMESPACE dtrain:: DESTINATION "${DTRAIN_PACKAGE_DIR}")
endforeach()
if(programs)
  install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
foreach(module IN LISTS modules)
  get_target_property(component ${module} DTRAIN_COMPONENT)
  if(DTRAIN_PACKAGE_BUILD)
    set_target_properties(${module} PROPERTIES INSTALL_RPATH_USE_LINK_PATH OFF)
  endif()
  install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component})
endforeach()

set(DTRAIN_SHARE_DIR "${CMAKE_INSTALL_DATADIR}")
include(DtrainShare)
if(DTRAIN_HAVE_EMULATED_CUDA)
  install(FILES cmake/dtrain-emulated-kernels.cmake DESTINATION "${DTRAIN_PACKAGE_DIR}" COMPONENT dtrain-emulated-gpus)
  install(PROGRAMS emulation/compile.py DESTINATION "${DTRAIN_SHARE_DIR}/dtrain/emulation" COMPONENT dtrain-emulated-gpus)
  install(DIRECTORY emulation/include DESTINATION "${DTRAIN_SHARE_DIR}/dtrain/emulation" COMPONENT dtrain-emulated-gpus)
endif()

list(REVERSE DTRAIN_COMPONENTS)
set(DTRAIN_COMPONENTS_LAST_FIRST ${DTRAIN_COMPONENTS})
list(REVERSE DTRAIN_COMPONENTS)
string(REPLACE ";" " " DTRAIN_COMPONENTS "${DTRAIN_COMPONENTS}")
string(REPLACE ";" " " DTRAIN_COMPONENTS_LAST_FIRST "${DTRAIN_COMPONENTS_LAST_FIRST}")

# --- the package -----------------------------------------------------------------------------------------------
set(DTRAIN_PACKAGE_FEATURES "")
foreach(feature CUDA NCCL CUDNN ONEDNN GLOO MPI)
  if(DTRAIN_HAVE_${feature})
    list(APPEND DTRAIN_PACKAGE_FEATURES ${feature})
  endif()
endforeach()
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/dtrain-config.cmake.in"
  "${PROJECT_BINARY_DIR}/dtrain-config.cmake" INSTALL_DESTINATION "${DTRAIN_PACKAGE_DIR}"
  PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_DATADIR NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor release may change interfaces.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/dtrain-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/dtrain-config.cmake" "${PROJECT_BINARY_DIR}/dtrain-config-version.cmake"
        DESTINATION "${DTRAIN_PACKAGE_DIR}")

include(DtrainDebian)
