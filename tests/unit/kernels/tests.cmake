loco_unit(kernels pool loco_kernels)
loco_unit(kernels cpu loco_kernels)
loco_unit(kernels matmul loco_kernels)
loco_unit(kernels muon loco_kernels)
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
    ${CMAKE_CURRENT_LIST_DIR}/neon.sh pool matmul cpu muon)
  set_tests_properties(unit/kernels/neon PROPERTIES
    SKIP_RETURN_CODE 77)
endif()
