# SPDX-License-Identifier: Apache-2.0
# libsnug_mpi_openmpi.so and libsnug_mpi_mpich.so are opened at run time, so that one build runs without MPI and with that of
# the launcher: the MPI that CMake finds, and the other one if pkg-config knows it. AUTO builds what there is; ON fails
# without any.
set(SNUG_MPI AUTO CACHE STRING "the MPI plug-ins, for several ranks on CPUs: AUTO, ON or OFF")
set(SNUG_MPI_PLUGINS)
if(SNUG_MPI STREQUAL OFF)
  return()
endif()
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI 3.0 QUIET COMPONENTS C)
if(NOT MPI_C_FOUND)
  if(SNUG_MPI STREQUAL ON)
    message(FATAL_ERROR "SNUG_MPI is ON and there is no MPI: install libopenmpi-dev or libmpich-dev, or set MPI_HOME")
  endif()
  message(STATUS "no MPI: the MPI plug-ins are not built")
  return()
endif()

function(snug_mpi_plugin name library)
  # The plug-in has its own copy of core, as that of CUDA.
  add_library(${name} MODULE ${CMAKE_SOURCE_DIR}/src/dist/mpi/mpi.c $<TARGET_OBJECTS:snug_core>)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE ${library} Threads::Threads m ${CMAKE_DL_LIBS})
  set(map ${CMAKE_SOURCE_DIR}/src/dist/mpi/plugin.map)
  target_link_options(${name} PRIVATE LINKER:--version-script=${map})
  if(NOT SNUG_SANITIZE AND NOT SNUG_COVERAGE) # their run time is in the program
    target_link_options(${name} PRIVATE LINKER:-z,defs)
  endif()
  set_property(TARGET ${name} PROPERTY LINK_DEPENDS ${map})
  set(SNUG_MPI_PLUGINS ${SNUG_MPI_PLUGINS} ${name} PARENT_SCOPE)
endfunction()

# MPICH's relatives (Intel MPI, MVAPICH) have its variables, and its place.
include(CheckCSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_C)
check_c_source_compiles("#include <mpi.h>\n#ifndef OPEN_MPI\n#error MPICH\n#endif\nint main(void) { return 0; }"
                        SNUG_MPI_IS_OPEN_MPI)
unset(CMAKE_REQUIRED_LIBRARIES)
if(SNUG_MPI_IS_OPEN_MPI)
  snug_mpi_plugin(snug_mpi_openmpi MPI::MPI_C)
  pkg_check_modules(MPICH QUIET IMPORTED_TARGET mpich>=3.0)
  if(MPICH_FOUND)
    snug_mpi_plugin(snug_mpi_mpich PkgConfig::MPICH)
  endif()
else()
  snug_mpi_plugin(snug_mpi_mpich MPI::MPI_C)
  pkg_check_modules(OPENMPI QUIET IMPORTED_TARGET ompi-c>=1.8)
  if(OPENMPI_FOUND)
    snug_mpi_plugin(snug_mpi_openmpi PkgConfig::OPENMPI)
  endif()
endif()
