loco_unit(kernels pool loco_kernels)
loco_unit(kernels cpu loco_kernels)
loco_unit(kernels matmul loco_kernels)
