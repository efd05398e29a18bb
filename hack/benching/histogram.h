/* Counts of nanoseconds in buckets, each at most a 64th of its values wide. */
#include <stdint.h>
#include <stdio.h>

typedef struct { uint64_t counts[64 * 64]; } Histogram;

/* Values from 64 up share a bucket with those that differ by less than a 64th. */
static void count(Histogram *histogram, int64_t value) {
    uint64_t rest = value < 0 ? 0 : (uint64_t)value;
    int shift = rest < 128 ? 0 : 57 - __builtin_clzll(rest);
    histogram->counts[shift * 64 + (rest >> shift)]++;
}

static void print(const char *name, const Histogram *histogram) {
    const char *between = "";
    printf(", \"%s\": [", name);
    for (int at = 0; at < 64 * 64; at++) {
        int shift = at < 128 ? 0 : at / 64 - 1;
        uint64_t above = ((uint64_t)(at - shift * 64) + 1) << shift;
        if (histogram->counts[at]) {
            printf("%s[%llu, %llu]", between, (unsigned long long)above, (unsigned long long)histogram->counts[at]);
            between = ", ";
        }
    }
    printf("]");
}
