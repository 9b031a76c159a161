/* An epoch's order is a permutation, another one every epoch and seed, and even. */
#include "engine/data/shuffle.h"
#include "tap.h"

#include <stdlib.h>

static int is_permutation(int64_t n, uint64_t seed, int64_t epoch)
{
    struct shuffle s;
    char *seen = calloc((size_t)n + 1, 1);
    int64_t wrong = 0;

    shuffle_init(&s, seed, epoch, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t v = shuffle_at(&s, i);
        if (v < 0 || v >= n || seen[v]++)
            wrong++;
    }
    free(seen);
    return wrong == 0;
}

static int64_t fixed_points(int64_t n, uint64_t seed_a, int64_t epoch_a, uint64_t seed_b,
                            int64_t epoch_b)
{
    struct shuffle a, b;
    int64_t same = 0;

    shuffle_init(&a, seed_a, epoch_a, n);
    shuffle_init(&b, seed_b, epoch_b, n);
    for (int64_t i = 0; i < n; i++)
        same += shuffle_at(&a, i) == shuffle_at(&b, i);
    return same;
}

/* Chi squared of ten equal classes, sorted in the file, over the first tenth of many epochs: 9
 * degrees of freedom. */
static double balance(int64_t n, int epochs)
{
    double chi2 = 0;

    for (int e = 0; e < epochs; e++) {
        struct shuffle s;
        int count[10] = {0};
        double expected = (double)n / 100;

        shuffle_init(&s, 42, e, n);
        for (int64_t i = 0; i < n / 10; i++)
            count[shuffle_at(&s, i) * 10 / n]++;
        for (int k = 0; k < 10; k++)
            chi2 += (count[k] - expected) * (count[k] - expected) / expected;
    }
    return chi2 / epochs;
}

/* How often each value comes first over many epochs: the same chance for all. */
static double first_place(int n, int epochs)
{
    int *count = calloc((size_t)n, sizeof *count);
    double chi2 = 0, expected = (double)epochs / n;

    for (int e = 0; e < epochs; e++) {
        struct shuffle s;
        shuffle_init(&s, 7, e, n);
        count[shuffle_at(&s, 0)]++;
    }
    for (int k = 0; k < n; k++)
        chi2 += (count[k] - expected) * (count[k] - expected) / expected;
    free(count);
    return chi2;
}

int main(void)
{
    static const int64_t sizes[] = {1,  2,   3,   4,   5,    8,    9,    16,   17,  64,
                                    65, 255, 256, 257, 1000, 1024, 1025, 4096, 4097};
    static const int64_t want[10] = {6, 2, 4, 5, 7, 1, 9, 0, 8, 3}; /* resumed runs depend on it */
    struct shuffle s;
    double chi2;
    int golden = 0;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int right = 1;
        for (int64_t e = 0; e < 20; e++)
            right &= is_permutation(sizes[i], 42 + (uint64_t)e / 10, e);
        ok(right, "n = %lld: a permutation, 20 times", (long long)sizes[i]);
    }

    shuffle_init(&s, 1, 0, 1000);
    ok(shuffle_at(&s, 1000) == -1 && shuffle_at(&s, -1) == -1 && shuffle_at(&s, INT64_MAX) == -1 &&
           shuffle_at(&s, INT64_MIN) == -1,
       "positions outside are refused, not walked for ever");
    shuffle_init(&s, 1, 0, 0);
    ok(shuffle_at(&s, 0) == -1, "an empty set has no position 0");
    shuffle_init(&s, 1, 0, INT64_C(5000000000));
    ok(shuffle_at(&s, INT64_C(4999999999)) >= 0 &&
           shuffle_at(&s, INT64_C(4999999999)) < INT64_C(5000000000),
       "sets beyond 32 bits work");
    shuffle_init(&s, 1, 0, INT64_MAX);
    ok(shuffle_at(&s, 12345) >= 0, "and the largest there is");

    ok(fixed_points(1000, 42, 0, 42, 0) == 1000, "the same seed and epoch give the same order");
    ok(fixed_points(1000, 42, 0, 42, 1) < 10, "another epoch gives another");
    ok(fixed_points(1000, 42, 0, 43, 0) < 10, "another seed gives another");
    ok(fixed_points(1000, 42, 0, 42 + (UINT64_C(1) << 32), 0) < 10, "the seed's high half counts");
    ok(fixed_points(1000, 42, 5, 42, 5 + (INT64_C(1) << 32)) < 10, "the epoch's high half counts");

    chi2 = balance(10000, 200);
    ok(chi2 > 7.5 && chi2 < 9.5, "sorted classes come out balanced (mean chi2 %.2f, 8.1 expected)",
       chi2);
    chi2 = first_place(100, 100000);
    ok(chi2 > 50 && chi2 < 160, "every sample is first equally often (chi2 %.1f, 99 expected)",
       chi2);
    shuffle_init(&s, 42, 0, 10);
    for (int i = 0; i < 10; i++)
        golden += shuffle_at(&s, i) == want[i];
    ok(golden == 10, "the order of seed 42, epoch 0, 10 samples is what it always was");
    return tap_done();
}
