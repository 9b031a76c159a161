/* vec_base.c - vec_loops.h for the compiler's baseline. */
#define CPU_VEC cpu_vec_base
#include "kernels/cpu/vec_loops.h"
