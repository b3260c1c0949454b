loco_unit(kernels pool loco_kernels)
loco_unit(kernels cpu loco_kernels)
loco_unit(kernels matmul loco_kernels)
loco_unit(kernels muon loco_kernels)
loco_unit(kernels bf16 loco_kernels)
loco_unit(kernels sets loco_kernels)
target_compile_definitions(test_kernels_sets PRIVATE
  KERNELS_README="${CMAKE_SOURCE_DIR}/kernels/README.md")
# AMX's products by a model of its instructions.
add_library(loco_amx_model OBJECT ${CMAKE_SOURCE_DIR}/kernels/cpu/fast_matmul.c)
target_compile_definitions(loco_amx_model PRIVATE LOCO_ISA=model LOCO_BF16
  LOCO_AMX)
target_compile_options(loco_amx_model PRIVATE -Wno-psabi
  -include ${CMAKE_CURRENT_LIST_DIR}/amx_model.h)
target_compile_definitions(test_kernels_bf16 PRIVATE LOCO_AMX_MODEL)
target_sources(test_kernels_bf16 PRIVATE $<TARGET_OBJECTS:loco_amx_model>)
add_test(NAME unit/kernels/no_environment COMMAND sh
  ${CMAKE_CURRENT_LIST_DIR}/no_environment.sh $<TARGET_FILE:loco>
  $<TARGET_FILE:loco_kernels> $<TARGET_FILE:loco_train_model>
  $<TARGET_FILE:loco_train_data> $<TARGET_FILE:loco_train_sync>
  $<TARGET_FILE:loco_train_sync_codec> $<TARGET_FILE:loco_train_replica>
  $<TARGET_FILE:loco_train_lab>)
# The kernels of another processor, where a compiler and qemu-user for it are.
# Once is enough: not in the builds with sanitizers or other compilers.
if(LOCO_NETWORK AND NOT LOCO_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  add_test(NAME unit/kernels/neon COMMAND sh
    ${CMAKE_CURRENT_LIST_DIR}/neon.sh pool matmul bf16 cpu muon sets)
  set_tests_properties(unit/kernels/neon PROPERTIES
    SKIP_RETURN_CODE 77)
endif()
