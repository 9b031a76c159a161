/* philox.h - counter-based random numbers: the same on every backend, nothing to save but counters.
 *
 * Philox4x32-10, Salmon, Moraes, Dror, Shaw 2011 ("Parallel random numbers: as easy as 1, 2, 3").
 * key = the run's seed. counter = {element block, stream, step, purpose << 24 | block's high bits}:
 * element i of a tensor is word i % 4 of block i / 4; stream is FNV-1a of the op's path. */
#ifndef PHILOX_H
#define PHILOX_H

#include <stdint.h>

#if defined(__CUDACC__)
#define PHILOX_FN static __host__ __device__ inline
#else
#define PHILOX_FN static inline
#endif

enum philox_purpose {
    PHILOX_GRAPH = 1,   /* rng nodes and dropout of a graph */
    PHILOX_INIT = 2,    /* initial parameters */
    PHILOX_SHUFFLE = 3, /* order of samples */
    PHILOX_SPLIT = 4,   /* train/valid split */
    PHILOX_SCRIPT = 5,  /* math.random in scripts */
    PHILOX_AUGMENT = 6
};

struct philox {
    uint32_t v[4];
};

PHILOX_FN void philox_mul(uint32_t a, uint32_t b, uint32_t *hi, uint32_t *lo)
{
    uint64_t p = (uint64_t)a * b;
    *hi = (uint32_t)(p >> 32);
    *lo = (uint32_t)p;
}

PHILOX_FN struct philox philox4x32(struct philox ctr, uint32_t k0, uint32_t k1)
{
    for (int r = 0; r < 10; r++) {
        uint32_t hi0, lo0, hi1, lo1;
        philox_mul(0xD2511F53u, ctr.v[0], &hi0, &lo0);
        philox_mul(0xCD9E8D57u, ctr.v[2], &hi1, &lo1);
        ctr.v[0] = hi1 ^ ctr.v[1] ^ k0;
        ctr.v[1] = lo1;
        ctr.v[2] = hi0 ^ ctr.v[3] ^ k1;
        ctr.v[3] = lo0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return ctr;
}

/* The four words of block `block` of a stream at a step. */
PHILOX_FN struct philox philox_block(uint64_t seed, enum philox_purpose purpose, uint32_t stream,
                                     uint32_t step, uint64_t block)
{
    struct philox c;
    c.v[0] = (uint32_t)block;
    c.v[1] = stream;
    c.v[2] = step;
    c.v[3] = ((uint32_t)purpose << 24) | ((uint32_t)(block >> 32) & 0xffffffu);
    return philox4x32(c, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* Word of element i. */
PHILOX_FN uint32_t philox_word(uint64_t seed, enum philox_purpose purpose, uint32_t stream,
                               uint32_t step, uint64_t i)
{
    return philox_block(seed, purpose, stream, step, i / 4).v[i % 4];
}

/* [0, 1), 24 bits: exact in a float. */
PHILOX_FN float philox_uniform(uint32_t word)
{
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}

#endif
