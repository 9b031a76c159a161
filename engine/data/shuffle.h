/* shuffle.h - a keyed permutation of 0 .. n-1: any position in O(1), nothing to store.
 *
 * Six Feistel rounds over an even number of bits, cycle-walking back into the domain. The six round
 * keys are Philox words of (seed, epoch); the round function is a 32-bit mixer of half and key.
 * (Philox itself as the round function costs 60 multiplications a walk: more than a small model's
 * step.) Sources: Black & Rogaway 2002, "Ciphers with arbitrary finite domains"; the mixer is
 * lowbias32 of C. Wellons' hash-prospector (public domain). */
#ifndef SHUFFLE_H
#define SHUFFLE_H

#include <stdint.h>

#define SHUFFLE_ROUNDS 6

struct shuffle {
    int64_t n;
    int half_bits;
    uint32_t key[SHUFFLE_ROUNDS];
};

void shuffle_init(struct shuffle *s, uint64_t seed, int64_t epoch, int64_t n); /* n >= 0 */
/* The sample at position i; -1 when i is not in 0 .. n-1 (walking from outside would never return).
 */
int64_t shuffle_at(const struct shuffle *s, int64_t i);

#endif
