# What a Python wheel brings (pyproject.toml): the programs themselves, which pip puts beside `python`, and below lib/dtrain
# all libraries that they need but the C library's own. Nothing of it is Python, and nothing else of the system is used, but
# MPI and NVIDIA's libraries by jobs that ask for them.
get_property(programs GLOBAL PROPERTY DTRAIN_PROGRAMS)
get_property(modules GLOBAL PROPERTY DTRAIN_MODULES)
# RPATH and not RUNPATH: it holds for what the libraries themselves load.
set_target_properties(${programs} PROPERTIES INSTALL_RPATH "\$ORIGIN/../lib/dtrain")
foreach(program IN LISTS programs)
  target_link_options(${program} PRIVATE LINKER:--disable-new-dtags)
  list(APPEND files "$<TARGET_FILE:${program}>")
endforeach()
# Modules lie beside the libraries, where the programs' run path leads. What they stand on is the machine's own: an MPI is
# part of its machine, cuBLAS, cuDNN and NCCL (a gigabyte) come as NVIDIA's wheels, and a job that uses none needs none.
foreach(module IN LISTS modules)
  list(APPEND module_files "$<TARGET_FILE:${module}>")
endforeach()
if(modules)
  set_target_properties(${modules} PROPERTIES INSTALL_RPATH "\$ORIGIN" INSTALL_RPATH_USE_LINK_PATH OFF)
  list(PREPEND module_files MODULES)
  install(TARGETS ${modules} LIBRARY DESTINATION "${SKBUILD_DATA_DIR}/lib/dtrain")
endif()
install(TARGETS ${programs} RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}")
set(DTRAIN_LIBRARIES_OUTSIDE "^(ld-linux.*|lib(c|m|dl|rt|pthread|mpi|cublas|cublasLt|cudnn|nccl))\\.so")
# A wheel has no symbolic links: each library lies there once, under the name it is loaded by.
string(REPLACE "\\" "\\\\" outside "${DTRAIN_LIBRARIES_OUTSIDE}")
install(CODE "
  set(libraries_dir \"${SKBUILD_DATA_DIR}/lib/dtrain\")
  cmake_policy(SET CMP0057 NEW)
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${files} ${module_files} RESOLVED_DEPENDENCIES_VAR libraries
       PRE_EXCLUDE_REGEXES \"${outside}\")
  file(MAKE_DIRECTORY \"\${libraries_dir}\")
  foreach(library IN LISTS libraries)
    get_filename_component(name \"\${library}\" NAME)
    file(REAL_PATH \"\${library}\" real)
    file(COPY_FILE \"\${real}\" \"\${libraries_dir}/\${name}\")
  endforeach()")
set(DTRAIN_SHARE_DIR "${SKBUILD_DATA_DIR}/share")
include(DtrainShare)
