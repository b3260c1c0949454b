/* cuda_runtime.h - what a .cu file finds when the emulator compiles it as C++.
 */
#ifndef LOCO_TESTS_EMU_INCLUDE_CUDA_RUNTIME_H
#define LOCO_TESTS_EMU_INCLUDE_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#include "tests/emu/emu.h"

#endif
