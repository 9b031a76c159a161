/* hash.c - FNV-1a, CRC-32C, SHA-256. */
#include "engine/base/hash.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

uint64_t hash_fnv64(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

uint32_t hash_fnv32(const char *text)
{
    uint32_t h = 0x811c9dc5u;

    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        h = (h ^ *p) * 0x01000193u;
    return h;
}

/* ---- CRC-32C ---- */

static uint32_t crc_table[256];
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static void crc_make(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0x82f63b78u ^ (c >> 1) : c >> 1;
        crc_table[i] = c;
    }
}

uint32_t hash_crc32c_plain(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *p = data;

    pthread_once(&crc_once, crc_make);
    crc = ~crc;
    for (size_t i = 0; i < n; i++)
        crc = crc_table[(crc ^ p[i]) & 0xff] ^ (crc >> 8);
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const unsigned char *p,
                                                            size_t n)
{
    uint64_t wide = ~crc;

    for (; n >= 8; p += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, p, sizeof w);
        wide = _mm_crc32_u64(wide, w);
    }
    crc = (uint32_t)wide;
    for (; n > 0; p++, n--)
        crc = _mm_crc32_u8(crc, *p);
    return ~crc;
}
#endif

uint32_t hash_crc32c(uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        return crc_sse42(crc, data, n);
#endif
    return hash_crc32c_plain(crc, data, n);
}

/* ---- SHA-256 ---- */

static const uint32_t k256[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void sha_block(uint32_t h[8], const uint8_t *p)
{
    uint32_t w[64], s[8];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) + w[i - 7] +
               (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
    }
    memcpy(s, h, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = s[7] + (rotr(s[4], 6) ^ rotr(s[4], 11) ^ rotr(s[4], 25)) +
                      ((s[4] & s[5]) ^ (~s[4] & s[6])) + k256[i] + w[i];
        uint32_t t2 = (rotr(s[0], 2) ^ rotr(s[0], 13) ^ rotr(s[0], 22)) +
                      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += s[i];
}

void sha256_init(struct sha256 *h)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memset(h, 0, sizeof *h);
    memcpy(h->state, start, sizeof start);
}

void sha256_update(struct sha256 *h, const void *data, size_t n)
{
    const uint8_t *p = data;
    size_t have = h->bytes % 64;

    if (n == 0) /* data may be NULL: memcpy must not see it */
        return;
    h->bytes += n;
    if (have > 0) {
        size_t take = 64 - have < n ? 64 - have : n;
        memcpy(h->block + have, p, take);
        p += take;
        n -= take;
        if (have + take < 64)
            return;
        sha_block(h->state, h->block);
    }
    for (; n >= 64; p += 64, n -= 64)
        sha_block(h->state, p);
    if (n > 0)
        memcpy(h->block, p, n);
}

void sha256_final(struct sha256 *h, char hex[65])
{
    uint64_t bits = h->bytes * 8;
    uint8_t end[8], one = 0x80, zero = 0;

    sha256_update(h, &one, 1);
    while (h->bytes % 64 != 56)
        sha256_update(h, &zero, 1);
    for (int i = 0; i < 8; i++)
        end[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_update(h, end, sizeof end);
    for (int i = 0; i < 8; i++)
        snprintf(hex + (size_t)i * 8, 9, "%08x", h->state[i]);
}

void sha256_text(const void *data, size_t n, char hex[65])
{
    struct sha256 h;

    sha256_init(&h);
    sha256_update(&h, data, n);
    sha256_final(&h, hex);
}
