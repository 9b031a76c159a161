/* clock.h - time. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stddef.h>

double clock_now(void);                           /* seconds, CLOCK_MONOTONIC */
double clock_wall(void);                          /* seconds since 1970 */
char *clock_iso(char *buf, size_t cap, double t); /* local time, "2026-11-30T20:44:55+01:00" */
char *clock_stamp(char *buf, size_t cap,
                  double t); /* local time, "20261130-204455" for run names */

#endif
