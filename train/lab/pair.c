/* pair.c - random pairs (NoLoCo): nobody waits for all.
 *
 * Turn t: every peer has made its inner steps, steps with the partner that
 * pairing.h names, as a replica does (pair_mean.h), and goes on. Only partners
 * share a clock. Anchors were final a whole period ago and the partner was
 * known, so their bytes travel beside compute; only the displacement is waited
 * for.
 */
#include <string.h>

#include "proto/base/pairing.h"
#include "train/lab/internal.h"
#include "train/sync/pair_mean.h"

/* What goes to the partner: anchor and displacement. */
static int payload(struct lab *lab, const struct lab_peer *p, uint8_t *to)
{
    const struct codec *codec = codec_get(lab->opt.method.wire);
    size_t n = (size_t)lab->n;
    int rv = codec->encode(to, p->e.phi, n, 1.0F);

    return rv != 0 ? rv
                   : codec->encode(to + codec->bytes(n), lab->packed[p->number],
                                   n, 1.0F);
}

/* `wire`: the partner's payload; NULL: alone. */
static int
step(struct lab *lab, struct lab_peer *p, const uint8_t *wire, bool first)
{
    const struct pair_mean partner = {codec_get(lab->opt.method.wire), wire,
                                      first};
    const struct outer_state state = {p->e.phi, p->e.m};
    int rv = pair_mean_apply(&partner, &lab->opt.method.rule, &state, &state,
                             lab->packed[p->number], (size_t)lab->n);

    memcpy(p->e.theta, p->e.phi, (size_t)lab->n * sizeof(float));
    return rv;
}

static int swap(struct lab *lab, struct lab_peer *a, struct lab_peer *b)
{
    uint64_t bytes = lab_wire_bytes(lab, lab->n);
    uint8_t *of_a = lab->wire, *of_b = of_a + 2 * bytes;
    double t = a->clock_s > b->clock_s ? a->clock_s : b->clock_s;
    int rv = payload(lab, a, of_a);

    rv = rv != 0 ? rv : payload(lab, b, of_b);
    rv = rv != 0 ? rv : step(lab, a, of_b, true);
    rv = rv != 0 ? rv : step(lab, b, of_a, false);
    t += lab_swap(lab, a->number, b->number, bytes, 2 * bytes);
    a->clock_s = b->clock_s = t;
    return rv;
}

int lab_turn_pairs(struct lab *lab, uint64_t t, uint64_t epoch)
{
    const struct stream_turn turn = {t, 0};
    uint32_t who[LAB_PEERS_MAX], scratch[LAB_PEERS_MAX];
    uint32_t n = lab_alive(lab, who);
    int rv = 0;

    for (uint32_t i = 0; i < n && rv == 0; i++) {
        rv = engine_pack(&lab->peers[who[i]].e, 0, &turn, lab->packed[who[i]]);
    }
    for (uint32_t i = 0; i < n && rv == 0; i++) {
        uint32_t j = pairing_partner(lab->opt.seed, epoch, t, n, i, scratch);

        if (j == PAIRING_BYE) {
            rv = step(lab, &lab->peers[who[i]], NULL, true);
        } else if (i < j) {
            rv = swap(lab, &lab->peers[who[i]], &lab->peers[who[j]]);
        }
    }
    return rv == 0 ? 0
                   : errmsg_fail(lab->errmsg, rv,
                                 "a pair's step is not finite; lower "
                                 "sync.outer_lr or inner.lr");
}

int lab_run_pairs(struct lab *lab)
{
    uint64_t epoch = 1;
    int rv = 0;

    for (uint64_t t = 0; rv == 0 && lab_goes_on(lab); t++) {
        uint32_t who[LAB_PEERS_MAX];
        uint32_t n = lab_alive(lab, who);

        rv = lab_events(lab, true);
        epoch += lab_alive(lab, who) != n;
        rv = rv != 0 ? rv : lab_period(lab);
        n = lab_alive(lab, who);
        if (rv == 0 && n > 0) {
            rv = lab_turn_pairs(lab, t, epoch);
            rv = rv != 0 ? rv : lab_point(lab, 0, lab->peers[who[0]].e.phi);
        }
    }
    return rv;
}
