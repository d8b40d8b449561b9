# The MPI module: cluster/mpi and collectives/mpi add their files. It is loaded when a job uses MPI, so that no program
# links it; see docs/decisions/034-mpi-module.md.
if(DTRAIN_HAVE_MPI)
  add_library(dtrain_mpi MODULE)
  set_property(GLOBAL APPEND PROPERTY DTRAIN_MODULES dtrain_mpi)
  set_target_properties(dtrain_mpi PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib"
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    DTRAIN_COMPONENT dtrain INSTALL_RPATH "\$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
  dtrain_compile_by_folder(dtrain_mpi)
  target_include_directories(dtrain_mpi PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_features(dtrain_mpi PRIVATE cxx_std_20)
  target_compile_definitions(dtrain_mpi PRIVATE DTRAIN_VERSION="${PROJECT_VERSION}")
  target_link_libraries(dtrain_mpi PRIVATE dtrain::base fmt::fmt MPI::MPI_CXX ${CMAKE_DL_LIBS} dtrain_compile_settings)
  # Static libraries inside stay inside: the program has its own copies. MPI's old C++ bindings are not called.
  target_link_options(dtrain_mpi PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed)
  if(NOT DTRAIN_SANITIZE)
    target_link_options(dtrain_mpi PRIVATE -Wl,--no-undefined)
  endif()
endif()
