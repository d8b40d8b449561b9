# What is installed beside programs and libraries, the same in a prefix, in Debian packages and in a wheel: manual pages
# and completion, from what the programs say of themselves; documentation, licence, templates of jobs; and, with
# DTRAIN_PACKAGE_BUILD, the bill of materials. Below DTRAIN_SHARE_DIR.
set(manual "${PROJECT_BINARY_DIR}/manual")
if(NOT CMAKE_CROSSCOMPILING AND TARGET dtrain AND TARGET dtrain-launch)
  add_custom_command(
    OUTPUT "${manual}/made"
    COMMAND bash "${PROJECT_SOURCE_DIR}/cmake/make_manual.sh" "$<TARGET_FILE_DIR:dtrain>" "${manual}"
    COMMAND ${CMAKE_COMMAND} -E touch "${manual}/made"
    DEPENDS dtrain dtrain-launch "${PROJECT_SOURCE_DIR}/cmake/make_manual.sh"
    COMMENT "Making manual pages and completion scripts"
    VERBATIM)
  add_custom_target(dtrain_manual ALL DEPENDS "${manual}/made")
  install(DIRECTORY "${manual}/man/" DESTINATION "${DTRAIN_SHARE_DIR}/man")
  install(DIRECTORY "${manual}/bash-completion" "${manual}/zsh" "${manual}/fish" DESTINATION "${DTRAIN_SHARE_DIR}")
endif()

foreach(package IN ITEMS dtrain dtrain-cuda dtrain-emulated-gpus)
  set(DTRAIN_FILES_OF_${package} "")
endforeach()
foreach(program IN LISTS programs)
  list(APPEND DTRAIN_FILES_OF_dtrain "$<TARGET_FILE:${program}>")
endforeach()
foreach(module IN LISTS modules)
  get_target_property(package ${module} DTRAIN_COMPONENT)
  list(APPEND DTRAIN_FILES_OF_${package} "$<TARGET_FILE:${module}>")
endforeach()
set(DTRAIN_PACKAGES "")  # with files
foreach(package IN ITEMS dtrain dtrain-cuda dtrain-emulated-gpus)
  if(DTRAIN_FILES_OF_${package})
    list(APPEND DTRAIN_PACKAGES ${package})
    install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${DTRAIN_SHARE_DIR}/doc/${package}" RENAME copyright
            COMPONENT ${package})
  endif()
endforeach()

file(GLOB pages CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/docs/*.md" "${PROJECT_SOURCE_DIR}/docs/*.schema.json")
install(FILES CHANGELOG.md README.md SECURITY.md ${pages} DESTINATION "${DTRAIN_SHARE_DIR}/doc/dtrain")
set(templates "${DTRAIN_SHARE_DIR}/dtrain/templates")
install(FILES cluster/slurm/launcher_per_node.sbatch cluster/slurm/task_per_gpu.sbatch DESTINATION "${templates}/slurm")
install(FILES cluster/kubernetes/job.yaml cluster/kubernetes/jobset.yaml cluster/kubernetes/kubeflow_trainer.yaml DESTINATION "${templates}/kubernetes")
install(FILES cluster/mpi/hostfile DESTINATION "${templates}/mpi")
install(PROGRAMS cluster/mpi/run.sh DESTINATION "${templates}/mpi")

# A wheel has the libraries inside and is one package; Debian's name those they need.
if(DTRAIN_PACKAGE_BUILD)
  find_package(Python3 3.8 COMPONENTS Interpreter)
  if(NOT Python3_Interpreter_FOUND)
    message(FATAL_ERROR "DTRAIN_PACKAGE_BUILD=ON needs Python for the bill of materials. Get it with: apt install python3")
  endif()
  set(bills "${PROJECT_BINARY_DIR}/bills")
  set(made "")
  # dtrain_add_bill(NAME OUTPUT TARGETS FILES OPTIONS…)
  function(dtrain_add_bill name files)
    add_custom_command(
      OUTPUT "${bills}/${name}.cdx.json"
      COMMAND ${Python3_EXECUTABLE} "${PROJECT_SOURCE_DIR}/cmake/make_sbom.py" --build "${PROJECT_BINARY_DIR}" --name ${name}
              --version ${PROJECT_VERSION} --output "${bills}/${name}.cdx.json" ${ARGN} ${files}
      DEPENDS ${programs} ${modules} "${PROJECT_SOURCE_DIR}/cmake/make_sbom.py"
      COMMENT "Making the bill of materials of ${name}"
      COMMAND_EXPAND_LISTS VERBATIM)
    set_property(GLOBAL APPEND PROPERTY DTRAIN_BILLS "${bills}/${name}.cdx.json")
  endfunction()
  if(SKBUILD)
    set(all "")
    foreach(package IN LISTS DTRAIN_PACKAGES)
      list(APPEND all ${DTRAIN_FILES_OF_${package}})
    endforeach()
    dtrain_add_bill(dtrain "${all}" --bundles --outside "${DTRAIN_LIBRARIES_OUTSIDE}" --licenses "${bills}/licenses")
    install(FILES "${bills}/dtrain.cdx.json" DESTINATION "${SKBUILD_METADATA_DIR}/sboms")
    install(DIRECTORY "${bills}/licenses/" DESTINATION "${SKBUILD_METADATA_DIR}/licenses/libraries")
  else()
    foreach(package IN LISTS DTRAIN_PACKAGES)
      dtrain_add_bill(${package} "${DTRAIN_FILES_OF_${package}}")
      install(FILES "${bills}/${package}.cdx.json" DESTINATION "${DTRAIN_SHARE_DIR}/doc/${package}" COMPONENT ${package})
    endforeach()
  endif()
  get_property(made GLOBAL PROPERTY DTRAIN_BILLS)
  add_custom_target(dtrain_bills ALL DEPENDS ${made})
endif()
