/* vec_avx512.c - vec_loops.h for x86-64 with AVX-512 F, BW, DQ, VL. The build compiles this file
 * for it: nothing here may run elsewhere. */
#if defined(__x86_64__)
#define CPU_VEC cpu_vec_avx512
#include "kernels/cpu/vec_loops.h"
#else
typedef int vec_avx512_is_for_x86;
#endif
