# libloco_cuda.so: nvcc compiles the kernels, the C compiler the host side, and
# the C compiler links both with CUDA's static runtime. Beside the driver the
# result wants libcublasLt at run time, by dlopen; nothing else of CUDA.
#
# nvcc is called directly: CMake's own support for the language tests the
# compiler on every configure and knows few of CUDA 13's architectures.
find_program(LOCO_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin
  /opt/cuda/bin)
if(NOT LOCO_NVCC)
  message(FATAL_ERROR "LOCO_CUDA=ON needs nvcc (CUDA 12 or later) in PATH, "
    "CUDA_HOME or /usr/local/cuda.")
endif()
get_filename_component(LOCO_CUDA_ROOT ${LOCO_NVCC} REALPATH)
get_filename_component(LOCO_CUDA_ROOT ${LOCO_CUDA_ROOT} DIRECTORY)
get_filename_component(LOCO_CUDA_ROOT ${LOCO_CUDA_ROOT} DIRECTORY)
find_library(LOCO_CUDART cudart_static REQUIRED PATHS ${LOCO_CUDA_ROOT}
  PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib targets/sbsa-linux/lib
  NO_DEFAULT_PATH)
find_path(LOCO_CUDA_INCLUDE cublasLt.h REQUIRED PATHS ${LOCO_CUDA_ROOT}
  PATH_SUFFIXES include targets/x86_64-linux/include
  targets/sbsa-linux/include)
get_filename_component(LOCO_CUDA_LIB ${LOCO_CUDART} DIRECTORY)

list(GET LOCO_CUDA_ARCHS 0 first)
set(LOCO_CUDA_FLAGS -std=c++17 -O3 -Xptxas -v -Xcompiler
  -fPIC,-fvisibility=hidden,-Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics
  -gencode arch=compute_${first},code=compute_${first})
foreach(arch ${LOCO_CUDA_ARCHS})
  list(APPEND LOCO_CUDA_FLAGS -gencode arch=compute_${arch},code=sm_${arch})
endforeach()
if(LOCO_WERROR)
  list(APPEND LOCO_CUDA_FLAGS -Werror all-warnings)
endif()
# Wire bytes, outer rules and optimizer steps have the bits of a processor.
set(LOCO_CUDA_FLAGS_wire -fmad=false)
set(LOCO_CUDA_FLAGS_muon -fmad=false)
set(LOCO_CUDA_FLAGS_optimizer -fmad=false)

# Hopper's own instructions are of sm_90a: no other GPU can run these, which the
# launchers know.
set(LOCO_CUDA_FLAGS_hopper ${LOCO_CUDA_FLAGS})
list(FILTER LOCO_CUDA_FLAGS_hopper EXCLUDE REGEX "gencode|arch=")
list(APPEND LOCO_CUDA_FLAGS_hopper -gencode arch=compute_90a,code=sm_90a)

set(objects)
foreach(kernel attention attention_bwd attention_hopper attention_hopper_dkv
    attention_hopper_dq
    attention_plain embed matmul muon
    optimizer rmsnorm rmsnorm_bwd rope swiglu wire xent)
  set(source ${CMAKE_CURRENT_LIST_DIR}/${kernel}.cu)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${kernel}.o)
  set(flags ${LOCO_CUDA_FLAGS})
  if(kernel MATCHES hopper)
    set(flags ${LOCO_CUDA_FLAGS_hopper})
  endif()
  # tests/cuda_plugin.py reads the logs.
  add_custom_command(OUTPUT ${object}
    COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/nvcc.sh ${object} ${LOCO_NVCC}
      ${flags} ${LOCO_CUDA_FLAGS_${kernel}} -I${CMAKE_SOURCE_DIR}
      -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${kernel}.cu" VERBATIM)
  list(APPEND objects ${object})
endforeach()

add_library(loco_cuda MODULE cuda/gpu.c cuda/gemm.c cuda/registered.c ${objects})
set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON
  GENERATED ON)
set_target_properties(loco_cuda PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
  BUILD_RPATH ${LOCO_CUDA_LIB} INSTALL_RPATH ${LOCO_CUDA_LIB})
target_include_directories(loco_cuda SYSTEM PRIVATE ${LOCO_CUDA_INCLUDE})
# The static runtime's own names stay inside.
target_link_options(loco_cuda PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs)
target_link_libraries(loco_cuda PRIVATE ${LOCO_CUDART} Threads::Threads
  ${CMAKE_DL_LIBS} rt m)
