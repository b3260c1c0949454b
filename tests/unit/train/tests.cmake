loco_unit(train adamw loco_train)
loco_unit(train bench loco_train)
loco_unit(train generate loco_train)
loco_unit(train llama loco_train)
loco_unit(train llama_config loco_train)
loco_unit(train schedule loco_train)

# Data, files and the outer step.
loco_unit(train checkpoint loco_train)
loco_unit(train codec loco_train)
loco_unit(train file loco_train)
loco_unit(train golden loco_train)
loco_unit(train loader loco_train)
loco_unit(train pack loco_train)
loco_unit(train preset loco_train)
loco_unit(train rule loco_train)
loco_unit(train safetensors loco_train)
loco_unit(train shard loco_train)
# disk_fault.h stands in for the disk.
foreach(name checkpoint file)
  target_link_options(test_train_${name} PRIVATE
    -Wl,--wrap=write -Wl,--wrap=fsync -Wl,--wrap=rename)
endforeach()
# The same bits with every compiler, level and instruction set.
foreach(compiler gcc clang)
  foreach(level O0 O3 "O3 -mavx2" "O3 -mavx512f")
    string(REPLACE " -m" "_" label ${level})
    separate_arguments(flags UNIX_COMMAND "-${level}")
    set(test unit/train/golden_bits_${compiler}_${label})
    add_test(NAME ${test} COMMAND sh
      ${CMAKE_CURRENT_LIST_DIR}/golden_bits.sh ${compiler} ${flags})
    set_tests_properties(${test} PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77)
  endforeach()
endforeach()
