# SPDX-License-Identifier: Apache-2.0
# The plug-in of tools/cuda-emulate: the kernels compiled for the host, and a driver library.
set(emulation ${CMAKE_SOURCE_DIR}/tests/emulate)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
enable_language(CXX)
set(CMAKE_CXX_STANDARD 20)
set(backend ${CMAKE_SOURCE_DIR}/src/backend/cuda)
set(sources ${emulation}/machine.cc ${emulation}/graphs.cc ${emulation}/runtime.c ${emulation}/cublasLt.c
            ${backend}/cuda.c ${backend}/graph.c ${backend}/events.c
            ${backend}/matmul/matmul_plan.c ${backend}/matmul/autotune.c ${backend}/matmul/bias.c
            ${backend}/copies/copies.c ${backend}/copies/host_update.c
            ${backend}/ranks/collectives.c ${backend}/ranks/connect.c ${backend}/ranks/peers.c
            ${CMAKE_SOURCE_DIR}/src/dist/nccl/nccl.c
            ${CMAKE_SOURCE_DIR}/src/optim/quantization_map.c ${CMAKE_SOURCE_DIR}/src/optim/quantization_table.c)
file(GLOB_RECURSE kernels RELATIVE ${CMAKE_SOURCE_DIR}/src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
file(GLOB_RECURSE headers RELATIVE ${CMAKE_SOURCE_DIR}/src CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cuh)
list(TRANSFORM headers PREPEND ${CMAKE_SOURCE_DIR}/src/ OUTPUT_VARIABLE depended)
foreach(original ${headers} ${kernels}) # headers go where they are found before the originals
  string(REGEX REPLACE "\\.cu$" ".cc" name ${original})
  set(converted ${CMAKE_BINARY_DIR}/emulated/${name})
  get_filename_component(folder ${converted} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${converted} DEPENDS ${CMAKE_SOURCE_DIR}/src/${original} ${depended} ${emulation}/convert.py
                     COMMAND ${Python3_EXECUTABLE} ${emulation}/convert.py ${CMAKE_SOURCE_DIR}/src/${original} ${converted})
  list(APPEND sources ${converted})
endforeach()
add_library(snug_cuda MODULE ${sources} ${SNUG_CUDA_ROOMS})
target_include_directories(snug_cuda PRIVATE ${emulation} ${CMAKE_BINARY_DIR}/emulated ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
foreach(part snug_cuda snug_backend_cuda_sizes)
  target_compile_definitions(${part} PRIVATE SNUG_CUDA_MATMUL_WORKSPACE=1048576)
endforeach()
target_compile_definitions(snug_backend_cuda_sizes PRIVATE SNUG_CUDA_POSITION_ROOM=131072)
target_compile_definitions(snug_cuda PRIVATE SNUG_CUDA_HOPPER SNUG_CUDA_PIECE=98304 SNUG_CUDA_ROW_MOST=256 SNUG_CUDA_LOSS_ROWS=32)
# C's designated initialisers and casts to unions are GNU extensions in C++, which nvcc accepts: no warnings for them.
# -g1: information about variables takes a quarter of the time.
target_compile_options(snug_cuda PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O2 -fPIC -w -ffp-contract=off>
                                         $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SNUG_DEBUG_INFO}>>:-g1>)
target_link_libraries(snug_cuda PRIVATE Threads::Threads m)
target_link_options(snug_cuda PRIVATE LINKER:--gc-sections)
add_library(snug_driver SHARED ${emulation}/driver.c)
set_target_properties(snug_driver PROPERTIES OUTPUT_NAME cuda SOVERSION 1)
add_dependencies(snug_cuda snug_driver)
set(CMAKE_BUILD_RPATH ${CMAKE_BINARY_DIR}) # where programs look for the driver
# NCCL for the emulated GPUs, next to the program, where it is found first.
add_library(snug_emulated_nccl SHARED ${emulation}/nccl.c)
set_target_properties(snug_emulated_nccl PROPERTIES OUTPUT_NAME nccl SOVERSION 2)
target_include_directories(snug_emulated_nccl PRIVATE ${emulation} ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(snug_emulated_nccl PRIVATE SNUG_EMULATED_PLUGIN="${CMAKE_BINARY_DIR}/libsnug_cuda.so" _GNU_SOURCE)
target_link_libraries(snug_emulated_nccl PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(snug_cuda snug_emulated_nccl)
