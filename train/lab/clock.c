/* clock.c - what an exchange costs; the model is in lab.h. */
#include "train/lab/internal.h"

double lab_latest(const struct lab *lab, const uint32_t *who, uint32_t n)
{
    double latest = 0.0;

    for (uint32_t i = 0; i < n; i++) {
        double t = lab->peers[who[i]].clock_s;

        latest = t > latest ? t : latest;
    }
    return latest;
}

static double seconds(double bytes, double bytes_per_s)
{
    return bytes_per_s > 0.0 ? bytes / bytes_per_s : 0.0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double
lab_ring(struct lab *lab, const uint32_t *who, uint32_t n, uint64_t bytes)
{
    double each, slowest = 0.0, delay = 0.0;

    if (n < 2) {
        return 0.0;
    }
    each = 2.0 * (double)bytes * ((double)n - 1.0) / (double)n;
    for (uint32_t i = 0; i < n; i++) {
        struct lab_peer *p = &lab->peers[who[i]];

        p->sent += (uint64_t)each;
        slowest = larger(slowest, seconds(each, p->machine.up_bytes_per_s));
        slowest = larger(slowest, seconds(each, p->machine.down_bytes_per_s));
        delay = larger(delay, p->machine.delay_s);
    }
    return slowest + 2.0 * ((double)n - 1.0) * delay;
}

static double
one_way(const struct lab_peer *from, const struct lab_peer *to, uint64_t bytes)
{
    return larger(seconds((double)bytes, from->machine.up_bytes_per_s),
                  seconds((double)bytes, to->machine.down_bytes_per_s)) +
           larger(from->machine.delay_s, to->machine.delay_s);
}

double lab_way(const struct lab *lab, uint32_t a, uint32_t b, uint64_t bytes)
{
    return a == b ? 0.0
                  : larger(seconds((double)bytes,
                                   lab->peers[a].machine.up_bytes_per_s),
                           seconds((double)bytes,
                                   lab->peers[b].machine.down_bytes_per_s));
}

double lab_delay(const struct lab *lab, uint32_t a, uint32_t b)
{
    return a == b ? 0.0
                  : larger(lab->peers[a].machine.delay_s,
                           lab->peers[b].machine.delay_s);
}

double
lab_swap(struct lab *lab, uint32_t a, uint32_t b, uint64_t late, uint64_t total)
{
    struct lab_peer *x = &lab->peers[a], *y = &lab->peers[b];

    x->sent += total;
    y->sent += total;
    return larger(one_way(x, y, late), one_way(y, x, late));
}

double
lab_scatter(struct lab *lab, uint32_t who, uint32_t members, uint64_t bytes)
{
    struct lab_peer *p = &lab->peers[who];
    double part;

    if (members < 2) {
        return 0.0;
    }
    /* The owners together send the same back; it is counted here, with the one
     * who asked for it. */
    part = (double)bytes * ((double)members - 1.0) / (double)members;
    p->sent += (uint64_t)(2.0 * part);
    return seconds(part, p->machine.up_bytes_per_s) +
           seconds(part, p->machine.down_bytes_per_s) +
           2.0 * p->machine.delay_s;
}
