/* The reference of `swerve bench kernels`: UCB1 in straightforward C, and a version with cached means and widths.
 *
 * Five arms with fixed click probabilities, one query. A round draws one uniform number, chooses an arm, and counts the click and the
 * regret. The index is mean + sqrt(2 ln t / n); an arm that was never played comes first; ties go to the first arm.
 */
#include <math.h>
#include <stdint.h>

#define ARMS 5

/* xoshiro256++ of Blackman and Vigna, seeded by splitmix64, as they recommend */
typedef struct {
    uint64_t s[4];
} stream;

static void start(stream *r, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        uint64_t z = (seed += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        r->s[i] = z ^ (z >> 31);
    }
}

static inline uint64_t rotate(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

static inline double uniform(stream *r) {
    uint64_t *s = r->s;
    const uint64_t out = rotate(s[0] + s[3], 23) + s[0];
    const uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return (double)(out >> 11) * 0x1.0p-53;
}

static double highest(const double *chances) {
    double best = chances[0];
    for (int a = 1; a < ARMS; a++)
        if (chances[a] > best) best = chances[a];
    return best;
}

/* One log, five divisions and five square roots in every round. Writes regret and clicks to out[], plays to plays[]. */
void ucb1_naive(int64_t rounds, const double *chances, uint64_t seed, double *out, int64_t *plays) {
    stream r;
    double total[ARMS] = {0};
    double n[ARMS] = {0};
    double regret = 0, clicks = 0;
    const double best = highest(chances);
    start(&r, seed);
    for (int64_t t = 1; t <= rounds; t++) {
        const double twice = 2.0 * log((double)t);
        double top = -1.0;
        int chosen = 0;
        for (int a = 0; a < ARMS; a++) {
            if (n[a] == 0) {
                chosen = a;
                break;
            }
            const double share = 1.0 / n[a];
            const double index = total[a] * share + sqrt(twice * share);
            if (index > top) {
                top = index;
                chosen = a;
            }
        }
        n[chosen] += 1;
        if (uniform(&r) < chances[chosen]) {
            total[chosen] += 1;
            clicks += 1;
        }
        regret += best - chances[chosen];
    }
    out[0] = regret;
    out[1] = clicks;
    for (int a = 0; a < ARMS; a++) plays[a] = (int64_t)n[a];
}

/* One log, one square root for the scale, and one division and one square root for the played arm. */
void ucb1_cached(int64_t rounds, const double *chances, uint64_t seed, double *out, int64_t *plays) {
    stream r;
    double total[ARMS] = {0}, n[ARMS] = {0}, mean[ARMS] = {0}, width[ARMS];
    double regret = 0, clicks = 0;
    const double best = highest(chances);
    start(&r, seed);
    for (int a = 0; a < ARMS; a++) width[a] = INFINITY;
    for (int64_t t = 1; t <= rounds; t++) {
        /* never zero, because 0 * infinity is NaN */
        const double scale = t > 1 ? sqrt(2.0 * log((double)t)) : 1.0;
        double top = -1.0;
        int chosen = 0;
        for (int a = 0; a < ARMS; a++) {
            const double index = mean[a] + scale * width[a];
            if (index > top) {
                top = index;
                chosen = a;
            }
        }
        n[chosen] += 1;
        width[chosen] = 1.0 / sqrt(n[chosen]);
        if (uniform(&r) < chances[chosen]) {
            total[chosen] += 1;
            clicks += 1;
        }
        mean[chosen] = total[chosen] / n[chosen];
        regret += best - chances[chosen];
    }
    out[0] = regret;
    out[1] = clicks;
    for (int a = 0; a < ARMS; a++) plays[a] = (int64_t)n[a];
}
