# SPDX-License-Identifier: Apache-2.0
# libsnug_cuda.so is opened at run time, so that one build runs with and without a driver. AUTO builds it if there is a
# CUDA compiler; ON fails without one.
set(SNUG_CUDA AUTO CACHE STRING "the CUDA plug-in: AUTO, ON or OFF")
# Machine code for Turing, Ampere and Hopper, and PTX for later GPUs. "75-virtual" or "80-virtual" alone tests that PTX.
set(SNUG_CUDA_ARCHITECTURES "75-real;80-real;90" CACHE STRING "what the CUDA plug-in is compiled for")
if(SNUG_CUDA STREQUAL OFF)
  return()
endif()
# The plug-in has its own copy of these rooms. The program's functions that need other rooms (those that read and write
# tensors through the offload file) are not used in it: the linker drops them.
set(SNUG_CUDA_ROOMS $<TARGET_OBJECTS:snug_core> $<TARGET_OBJECTS:snug_program> $<TARGET_OBJECTS:snug_program_ops>
                    $<TARGET_OBJECTS:snug_optim_optimizers> $<TARGET_OBJECTS:snug_backend_cuda_sizes>)
target_compile_options(snug_program PRIVATE -ffunction-sections -fdata-sections)
if(SNUG_CUDA STREQUAL EMULATE) # for tools/cuda-emulate: tests of kernels without a GPU
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
list(APPEND sources ${CMAKE_SOURCE_DIR}/src/optim/quantization_map.c ${CMAKE_SOURCE_DIR}/src/optim/quantization_table.c
                    ${CMAKE_SOURCE_DIR}/src/dist/nccl/nccl.c)
# Updates have the same bits on every processor (optim/formulas/formula.h).
foreach(update adafactor adagrad adam adam_8bit lion rmsprop sgd)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cuda/${update}.cu PROPERTIES COMPILE_OPTIONS --fmad=false)
endforeach()
# Kernels for Hopper need sm_90a, which runs on no other GPU. Without it Hopper uses the general kernels.
set(hopper ${CMAKE_SOURCE_DIR}/src/backend/cuda/attention_wgmma.cu
           ${CMAKE_SOURCE_DIR}/src/backend/cuda/attention_wgmma_backward.cu)
list(REMOVE_ITEM sources ${hopper})
add_library(snug_cuda MODULE ${sources} ${SNUG_CUDA_ROOMS})
set_target_properties(snug_cuda PROPERTIES CUDA_ARCHITECTURES "${SNUG_CUDA_ARCHITECTURES}")
set(targets snug_cuda)
if("${SNUG_CUDA_ARCHITECTURES}" MATCHES "(^|;)90a?(-real)?(;|$)")
  add_library(snug_cuda_hopper OBJECT ${hopper})
  set_target_properties(snug_cuda_hopper PROPERTIES CUDA_ARCHITECTURES 90a-real POSITION_INDEPENDENT_CODE ON)
  target_sources(snug_cuda PRIVATE $<TARGET_OBJECTS:snug_cuda_hopper>)
  target_compile_definitions(snug_cuda PRIVATE SNUG_CUDA_HOPPER)
  target_compile_definitions(snug_cuda_hopper PRIVATE SNUG_CUDA_HOPPER)
  list(APPEND targets snug_cuda_hopper)
endif()
set(host -Wall ${SNUG_HARDENING_FLAGS}) # the linker's flags are for all targets
list(JOIN host "," host)
foreach(target ${targets})
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 17 CUDA_RUNTIME_LIBRARY Static CUDA_VISIBILITY_PRESET hidden)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(${target} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -Xcompiler=${host}>)
endforeach()
target_link_libraries(snug_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt Threads::Threads m)
target_link_options(snug_cuda PRIVATE LINKER:--gc-sections)
