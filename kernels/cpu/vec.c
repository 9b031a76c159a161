/* vec.c - which of the compiled tables runs here. */
#include "kernels/cpu/cpu.h"

const struct cpu_vec *cpu_vec_for(enum cpu_isa isa)
{
#if defined(__x86_64__)
    if (isa == CPU_AVX512)
        return &cpu_vec_avx512;
    if (isa == CPU_AVX2)
        return &cpu_vec_avx2;
#endif
    (void)isa;
    return &cpu_vec_base;
}
