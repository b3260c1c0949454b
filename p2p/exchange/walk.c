/* walk.c - see walk.h. */
#include "p2p/exchange/walk.h"

#include <assert.h>

bool walk_sites_of(const bool *gateway, uint32_t n, struct walk_sites *s)
{
    s->n = 0;
    for (uint32_t k = 0; k < n; k++) {
        if (gateway[k]) {
            s->first[s->n++] = k;
        } else if (k == 0) {
            return false;
        }
    }
    s->first[s->n] = n;
    return n > 0;
}

uint32_t walk_site(const struct walk_sites *s, uint32_t rank)
{
    uint32_t at = 0;

    while (s->first[at + 1] <= rank) {
        at++;
    }
    return at;
}

/* Hops so far. */
struct walk {
    struct walk_hop *hops;
    uint32_t n;
};

/* From where hop `after` ended (or `from`, where it begins) to a member: the
 * number of that hop. */
static int
go(struct walk *w, int after, uint32_t from, uint32_t to, bool adds, bool final)
{
    struct walk_hop *h = &w->hops[w->n];

    assert(w->n < WALK_HOPS_MAX);
    *h = (struct walk_hop){
        .from = (uint8_t)from,
        .to = (uint8_t)to,
        .adds = adds,
        .final = final,
        .after = (int16_t)after,
        .depth = after < 0 ? 0 : (uint8_t)(w->hops[after].depth + 1),
    };
    return (int)w->n++;
}

/* The partial sum: the last hop. */
static int collect(struct walk *w, const struct walk_sites *s, uint32_t slice)
{
    uint32_t at = 0;
    int last = -1;
    bool begun = false;

    for (uint32_t j = 0; j < s->n; j++) {
        uint32_t site = (slice + 1 + j) % s->n;
        uint32_t g = s->first[site], size = s->first[site + 1] - g;
        /* Members in order: the first site's gateway comes last; a gateway that
         * is to pass on what its site added is there a second time. */
        uint32_t visits = size + (j > 0 && size > 1 && j + 1 < s->n);

        for (uint32_t i = 0; i < visits; i++) {
            uint32_t to = g + (j == 0 ? i + 1 : i) % size;

            if (begun) {
                last = go(w, last, at, to, i < size, false);
            }
            begun = true;
            at = to;
        }
    }
    w->hops[last].ends = true;
    return last;
}

/* From a gateway that has final bytes by hop `last` to the first `n` others of
 * its site. */
static void hand_out(struct walk *w,
                     const struct walk_sites *s,
                     uint32_t site,
                     uint32_t n,
                     int last)
{
    for (uint32_t i = 0; i < n; i++) {
        last = go(w, last, s->first[site] + i, s->first[site] + i + 1, false,
                  true);
    }
}

uint32_t walk_of(const struct walk_sites *s,
                 uint32_t slice,
                 struct walk_hop hops[WALK_HOPS_MAX])
{
    struct walk w = {.hops = hops};
    uint32_t g = s->first[slice], others = s->first[slice + 1] - g - 1;
    int last = collect(&w, s, slice);

    if (hops[last].to != g) { /* the last member of the site has it */
        last = go(&w, last, hops[last].to, g, false, true);
        others--;
    }
    hand_out(&w, s, slice, others, last);
    for (uint32_t j = 1; j < s->n; j++) {
        uint32_t site = (slice + j) % s->n;

        last = go(&w, last, g, s->first[site], false, true);
        g = s->first[site];
        hand_out(&w, s, site, s->first[site + 1] - g - 1, last);
    }
    return w.n;
}
