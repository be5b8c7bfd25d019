# SPDX-License-Identifier: Apache-2.0
# libsnug_cuda.so is opened at run time, so that one build runs with and without a driver. AUTO builds it if there is a
# CUDA compiler; ON fails without one.
set(SNUG_CUDA AUTO CACHE STRING "the CUDA plug-in: AUTO, ON or OFF")
# ALL: machine code for Turing, Ampere and Hopper, and PTX for later GPUs. NATIVE: for the GPUs of this machine, in about a third of the
# time; ALL if there is none that nvcc knows. "75-virtual" or "80-virtual" alone tests that PTX.
set(SNUG_CUDA_ARCHITECTURES NATIVE CACHE STRING "what the CUDA plug-in is compiled for: NATIVE, ALL or a list of architectures")
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
set(architectures ${SNUG_CUDA_ARCHITECTURES})
if(architectures STREQUAL NATIVE)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE found RESULT_VARIABLE failed ERROR_QUIET)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch OUTPUT_VARIABLE known ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" found "${found}")
  list(REMOVE_DUPLICATES found)
  string(REPLACE "." "" architectures "${found}")
  foreach(each ${architectures})
    if(failed OR each LESS 75 OR NOT known MATCHES "compute_${each}[^0-9]")
      set(architectures "")
    endif()
  endforeach()
  if(architectures)
    list(JOIN found ", " found)
    message(STATUS "the CUDA plug-in is compiled for compute capability ${found} of this machine, which takes minutes; CUDA=ALL compiles for all GPUs, "
                   "SNUG_CUDA=OFF leaves it out")
  else()
    set(architectures ALL)
  endif()
endif()
if(architectures STREQUAL ALL)
  set(architectures 75-real 80-real 90)
  message(STATUS "the CUDA plug-in is compiled for compute capability 7.5 and later, which takes minutes; CUDA=90 compiles for that one, "
                 "SNUG_CUDA=OFF leaves it out")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES ${architectures})
endif()
enable_language(CUDA)
set(CMAKE_FIND_LIBRARY_SUFFIXES .so .a) # cuBLASLt is not inside, even where all other libraries are (SNUG_PORTABLE)
find_package(CUDAToolkit REQUIRED)

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.c ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
list(FILTER sources EXCLUDE REGEX /sizes/) # a room of the program, too
list(APPEND sources ${CMAKE_SOURCE_DIR}/src/optim/quantization_map.c ${CMAKE_SOURCE_DIR}/src/optim/quantization_table.c
                    ${CMAKE_SOURCE_DIR}/src/dist/nccl/nccl.c)
# Updates have the same bits on every processor (optim/formulas/formula.h).
foreach(update adafactor adagrad adam adam_8bit lion rmsprop sgd)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cuda/update/${update}.cu PROPERTIES COMPILE_OPTIONS --fmad=false)
endforeach()
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/backend/cuda/rows/dequantize.cu PROPERTIES COMPILE_OPTIONS --fmad=false) # the same for codes
# Kernels for Hopper need sm_90a, which runs on no other GPU. Without it Hopper uses the general kernels.
set(hopper ${CMAKE_SOURCE_DIR}/src/backend/cuda/attention/attention_wgmma.cu
           ${CMAKE_SOURCE_DIR}/src/backend/cuda/attention/attention_wgmma_backward.cu
           ${CMAKE_SOURCE_DIR}/src/backend/cuda/attention/attention_wgmma_long.cu)
list(REMOVE_ITEM sources ${hopper})
add_library(snug_cuda MODULE ${sources} ${SNUG_CUDA_ROOMS})
set_target_properties(snug_cuda PROPERTIES CUDA_ARCHITECTURES "${architectures}")
set(targets snug_cuda)
if("${architectures}" MATCHES "(^|;)90a?(-real)?(;|$)")
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
if(SNUG_PORTABLE) # in site-packages/snug, and NVIDIA's packages next to it: of CUDA 13, of CUDA 12, NCCL
  set_target_properties(snug_cuda PROPERTIES INSTALL_RPATH "$ORIGIN/../nvidia/cu13/lib:$ORIGIN/../nvidia/cublas/lib:$ORIGIN/../nvidia/nccl/lib")
  install(TARGETS snug_cuda LIBRARY DESTINATION snug COMPONENT wheel_cuda EXCLUDE_FROM_ALL)
endif()
