# The CUDA plug-in under the emulator of tests/emu; tests/gpu/run.sh gives the
# same programs the real one.
# Not under ThreadSanitizer, which does not know fibers.
if(NOT LOCO_SANITIZE STREQUAL "thread")
  include(emu/emu.cmake)
endif()
# False programs in the place of what tests/gpu/run.sh calls.
add_test(NAME unit/cuda/gpu_run
  COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/gpu/run_test.py)
if(TARGET loco_cuda_emulated)
  foreach(name bits faults gpus kernels launchers methods model outer
      registered stage stage_replica)
    loco_unit(cuda ${name} loco_train)
    add_dependencies(test_cuda_${name} loco_cuda_emulated)
    target_compile_definitions(test_cuda_${name} PRIVATE
      LOCO_EMULATED_PLUGIN="$<TARGET_FILE:loco_cuda_emulated>")
  endforeach()
  if(LOCO_NETWORK)
    foreach(name commit stage_machine)
      loco_unit(cuda ${name} loco_daemon)
      add_dependencies(test_cuda_${name} loco_cuda_emulated)
      target_compile_definitions(test_cuda_${name} PRIVATE
        LOCO_EMULATED_PLUGIN="$<TARGET_FILE:loco_cuda_emulated>")
    endforeach()
    target_link_options(test_cuda_commit PRIVATE -Wl,--wrap=uv_now)
  endif()
  # tests/gpu has it as gpu_speed, where a GPU's programs are built.
  add_executable(test_cuda_speed gpu/speed.c gpu/speed_outer.c)
  target_link_libraries(test_cuda_speed PRIVATE loco_kernels m)
  set_target_properties(test_cuda_speed PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_dependencies(test_cuda_speed loco_cuda_emulated)
  add_dependencies(unit_cuda test_cuda_speed)
  add_test(NAME unit/cuda/speed_outer COMMAND sh
    ${CMAKE_CURRENT_SOURCE_DIR}/gpu/refused.sh $<TARGET_FILE:test_cuda_speed>
    $<TARGET_FILE:loco_cuda_emulated>)
  # After a hang or a broken GPU the plug-in frees nothing of CUDA's, on purpose;
  # the emulator knows it (emu/emu_memory.cpp). These were not tried with that.
  set_tests_properties(unit/cuda/faults unit/cuda/gpus unit/cuda/launchers unit/cuda/methods
    unit/cuda/outer unit/cuda/registered unit/cuda/stage_replica PROPERTIES
    ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
endif()
