# SPDX-License-Identifier: Apache-2.0
# libsnug_cuda.so, opened at run time, so that one build serves machines with and without a driver. AUTO builds it where
# there is a CUDA compiler; ON insists.
set(SNUG_CUDA AUTO CACHE STRING "the CUDA plug-in: AUTO, ON or OFF")
# Machine code for Ampere and Hopper, and PTX for what comes after. "80-virtual" alone tests what older code runs as.
set(SNUG_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "what the CUDA plug-in is compiled for")
if(SNUG_CUDA STREQUAL OFF)
  return()
elseif(SNUG_CUDA STREQUAL EMULATE) # for tools/cuda-emulate: tests of kernels without a GPU
  include(tests/emulate/emulate.cmake)
  return()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  if(SNUG_CUDA STREQUAL ON)
    message(FATAL_ERROR "SNUG_CUDA is ON and there is no CUDA compiler: put nvcc on the PATH, or set CUDACXX")
  endif()
  message(STATUS "no CUDA compiler: the CUDA plug-in is not built")
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${SNUG_CUDA_ARCHITECTURES})
endif()
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.c ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
list(APPEND sources ${CMAKE_SOURCE_DIR}/src/optim/code_book.c ${CMAKE_SOURCE_DIR}/src/optim/codes.c)
add_library(snug_cuda MODULE ${sources} $<TARGET_OBJECTS:snug_core>)
set_target_properties(snug_cuda PROPERTIES CUDA_STANDARD 17 CUDA_ARCHITECTURES "${SNUG_CUDA_ARCHITECTURES}"
                                           CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden)
target_include_directories(snug_cuda PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_include_directories(snug_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(snug_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -Xcompiler=-Wall>)
target_link_libraries(snug_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt Threads::Threads m)
