/* shuffle.c - the order of an epoch as a function. See shuffle.h. */
#include "engine/data/shuffle.h"

#include "kernels/philox.h"

static uint32_t mix(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

/* One pass through the cipher: a permutation of 0 .. 2^(2 half_bits) - 1. */
static uint64_t encrypt(const struct shuffle *s, uint64_t v)
{
    uint32_t mask = (uint32_t)((UINT64_C(1) << s->half_bits) - 1);
    uint32_t left = (uint32_t)(v >> s->half_bits), right = (uint32_t)v & mask;

    for (int r = 0; r < SHUFFLE_ROUNDS; r++) {
        uint32_t next = left ^ (mix(right ^ s->key[r]) & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << s->half_bits | right;
}

void shuffle_init(struct shuffle *s, uint64_t seed, int64_t epoch, int64_t n)
{
    s->n = n;
    s->half_bits = 1;
    while (s->half_bits < 32 && (UINT64_C(1) << 2 * s->half_bits) < (uint64_t)n)
        s->half_bits++;
    for (uint64_t r = 0; r < SHUFFLE_ROUNDS; r++)
        s->key[r] = philox_word(seed, PHILOX_SHUFFLE, (uint32_t)((uint64_t)epoch >> 32),
                                (uint32_t)epoch, r);
}

int64_t shuffle_at(const struct shuffle *s, int64_t i)
{
    uint64_t v = (uint64_t)i;

    if (i < 0 || i >= s->n)
        return -1;
    /* The walk comes back: the cycle through i holds at least i itself, which is inside. */
    do
        v = encrypt(s, v);
    while (v >= (uint64_t)s->n);
    return (int64_t)v;
}
