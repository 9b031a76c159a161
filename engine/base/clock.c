/* clock.c - time. */
#include "engine/base/clock.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double seconds(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

double clock_now(void)
{
    return seconds(CLOCK_MONOTONIC);
}

double clock_wall(void)
{
    return seconds(CLOCK_REALTIME);
}

static struct tm local(double t)
{
    bool sane = t >= 0 && t < 253402300800.0; /* a time from a file may be anything, NaN too */
    time_t whole = sane ? (time_t)t : 0;
    struct tm tm;

    memset(&tm, 0, sizeof tm);
    localtime_r(&whole, &tm);
    return tm;
}

char *clock_iso(char *buf, size_t cap, double t)
{
    struct tm tm = local(t);
    long off = tm.tm_gmtoff / 60;
    char date[32];

    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf, cap, "%s%c%02ld:%02ld", date, off < 0 ? '-' : '+', (off < 0 ? -off : off) / 60,
             (off < 0 ? -off : off) % 60);
    return buf;
}

char *clock_stamp(char *buf, size_t cap, double t)
{
    struct tm tm = local(t);

    strftime(buf, cap, "%Y%m%d-%H%M%S", &tm);
    return buf;
}
