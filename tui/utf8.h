/* utf8.h - text from strangers, taken apart so that it cannot harm a screen.
 *
 * No locale and no wcwidth(3): the same text has the same width on every machine, in every locale.
 * Widths follow Unicode 14 (East Asian Wide and Fullwidth take two cells, combining marks none).
 * All functions are pure and safe from any thread. */
#ifndef UTF8_H
#define UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_BROKEN 0xffffffffu /* no code point: the byte fits no UTF-8 sequence */
#define UTF8_VISIBLE_MAX 12     /* bytes utf8_visible needs, with the NUL */

/* Take one code point from s[0..n), n > 0. Returns the bytes it took, 1 .. 4. Overlong forms,
 * surrogates and what lies beyond U+10FFFF are broken: *ch is UTF8_BROKEN and one byte is taken. */
int utf8_decode(const char *s, size_t n, uint32_t *ch);

/* Write a code point as UTF-8 with a NUL into out[5]; returns the bytes without it. What is no code
 * point becomes U+FFFD. */
int utf8_encode(char out[5], uint32_t ch);

/* Cells a code point takes: 1, 2, or 0 for a mark that combines with the one before. -1 for what
 * must not reach a terminal: controls (C0, DEL, C1), directions and other invisible formats, line
 * separators, UTF8_BROKEN. */
int utf8_width(uint32_t ch);

/* What is drawn in place of a code point of width -1: \x1b for a control or a broken `byte`, \u202e
 * for the rest. ASCII. Returns its length. */
int utf8_visible(char out[UTF8_VISIBLE_MAX], uint32_t ch, unsigned char byte);

/* Cells the text takes when drawn by canvas_text. */
int utf8_cells(const char *text);

#endif
