# The plug-in once more, for the emulator: the same kernels and host code, with
# tests/emu in the place of CUDA. Needs a C++ compiler and nothing of NVIDIA's.
include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
  message(STATUS "no C++ compiler: the tests of the CUDA plug-in are left out")
  return()
endif()
enable_language(CXX)
find_package(Threads REQUIRED)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_EXTENSIONS OFF)

set(LOCO_EMU_CU)
foreach(kernel attention attention_bwd attention_hopper attention_hopper_dkv
    attention_hopper_dq
    attention_plain embed matmul muon
    optimizer rmsnorm rmsnorm_bwd rope swiglu wire xent)
  list(APPEND LOCO_EMU_CU ${CMAKE_SOURCE_DIR}/kernels/cuda/${kernel}.cu)
endforeach()
set_source_files_properties(${LOCO_EMU_CU} PROPERTIES LANGUAGE CXX)
add_library(loco_cuda_emulated MODULE ${LOCO_EMU_CU} emu/emu.cpp
  emu/emu_wgmma.cpp emu/emu_runtime.cpp emu/emu_memory.cpp emu/emu_stream.cpp
  emu/emu_cublas.cpp ${CMAKE_SOURCE_DIR}/kernels/cuda/gpu.c
  ${CMAKE_SOURCE_DIR}/kernels/cuda/gemm.c
  ${CMAKE_SOURCE_DIR}/kernels/cuda/registered.c)
target_compile_definitions(loco_cuda_emulated PRIVATE LOCO_CUDA_EMULATED)
target_compile_options(loco_cuda_emulated PRIVATE
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-O2 -fno-strict-aliasing \
-Wno-unknown-pragmas -fno-stack-protector -U_FORTIFY_SOURCE>"
  ${LOCO_KERNEL_OPTIONS})
if(LOCO_LIBFUZZER)
  # What C++ has of UBSan is not in the programs in C that load the plug-in.
  target_compile_options(loco_cuda_emulated PRIVATE -fno-sanitize=function,vptr)
endif()
target_include_directories(loco_cuda_emulated PRIVATE emu/include)
target_link_libraries(loco_cuda_emulated PRIVATE Threads::Threads
  ${CMAKE_DL_LIBS} m)
set_target_properties(loco_cuda_emulated PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
