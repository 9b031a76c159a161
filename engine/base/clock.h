/* clock.h - time. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stddef.h>

/* A time to print that lies outside 1970 .. 9999 (or is NaN) is printed as the start of 1970. */
double clock_now(void);                           /* seconds, CLOCK_MONOTONIC */
double clock_wall(void);                          /* seconds since 1970 */
char *clock_iso(char *buf, size_t cap, double t); /* local time, "2026-11-30T20:44:55+01:00" */
char *clock_stamp(char *buf, size_t cap,
                  double t); /* local time, "20261130-204455" for run names */

#endif
