/* hash.h - FNV-1a (names, tables), CRC-32C and SHA-256 (files). */
#ifndef HASH_H
#define HASH_H

#include <stddef.h>
#include <stdint.h>

#define FNV64_INIT 0xcbf29ce484222325u
uint64_t hash_fnv64(uint64_t h, const void *data, size_t n); /* start with FNV64_INIT */
uint32_t hash_fnv32(const char *text);                       /* of a path: the RNG's stream id */

/* CRC-32C (RFC 3720) of data appended to what gave `crc`; start with 0. Uses the CPU's instruction
 * where there is one; hash_crc32c_plain is the same by table, for the rest and for the test that
 * compares. */
uint32_t hash_crc32c(uint32_t crc, const void *data, size_t n);
uint32_t hash_crc32c_plain(uint32_t crc, const void *data, size_t n);

struct sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
};
void sha256_init(struct sha256 *h);
void sha256_update(struct sha256 *h, const void *data, size_t n);
void sha256_final(struct sha256 *h, char hex[65]); /* FIPS 180-4; lower-case hex */
void sha256_text(const void *data, size_t n, char hex[65]);

#endif
