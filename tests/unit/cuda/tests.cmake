# The CUDA plug-in under the emulator of tests/emu; tests/gpu/run.sh gives the
# same programs the real one.
include(emu/emu.cmake)
if(TARGET loco_cuda_emulated)
  foreach(name bits faults kernels model)
    loco_unit(cuda ${name} loco_train)
    add_dependencies(test_cuda_${name} loco_cuda_emulated)
    target_compile_definitions(test_cuda_${name} PRIVATE
      LOCO_EMULATED_PLUGIN="$<TARGET_FILE:loco_cuda_emulated>")
  endforeach()
endif()
