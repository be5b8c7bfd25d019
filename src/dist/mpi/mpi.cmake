# SPDX-License-Identifier: Apache-2.0
# libsnug_mpi.so is opened at run time, so that one build runs with and without MPI. AUTO builds it if there is an MPI
# library; ON fails without one.
set(SNUG_MPI AUTO CACHE STRING "the MPI plug-in, for several ranks on CPUs: AUTO, ON or OFF")
if(SNUG_MPI STREQUAL OFF)
  return()
endif()
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI 3.0 QUIET COMPONENTS C)
if(NOT MPI_C_FOUND)
  if(SNUG_MPI STREQUAL ON)
    message(FATAL_ERROR "SNUG_MPI is ON and there is no MPI: install libopenmpi-dev or libmpich-dev, or set MPI_HOME")
  endif()
  message(STATUS "no MPI: the MPI plug-in is not built")
  return()
endif()
# The plug-in has its own copy of core, as that of CUDA.
add_library(snug_mpi MODULE ${CMAKE_SOURCE_DIR}/src/dist/mpi/mpi.c $<TARGET_OBJECTS:snug_core>)
target_include_directories(snug_mpi PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(snug_mpi PRIVATE MPI::MPI_C Threads::Threads m ${CMAKE_DL_LIBS})
set(map ${CMAKE_SOURCE_DIR}/src/dist/mpi/plugin.map)
target_link_options(snug_mpi PRIVATE LINKER:--version-script=${map})
if(NOT SNUG_SANITIZE AND NOT SNUG_COVERAGE) # their run time is in the program
  target_link_options(snug_mpi PRIVATE LINKER:-z,defs)
endif()
set_property(TARGET snug_mpi PROPERTY LINK_DEPENDS ${map})
