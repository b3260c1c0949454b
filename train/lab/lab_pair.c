/* lab_pair.c - random pairs (NoLoCo): nobody waits for all.
 *
 * Turn t: every peer has made its inner steps, averages displacement and anchor
 * with the partner that pair.h names, and goes on. Only partners share a clock.
 * Anchors were final a whole period ago and the partner was known, so their
 * bytes travel beside compute; only the displacement is waited for. Both use
 * what the wire made of both, so that the pair's mean stays what it was.
 */
#include <string.h>

#include "train/lab/lab_internal.h"
#include "train/sync/pair.h"

/* mean = (wire(a) + wire(b)) / 2 */
static int
mean_of_two(struct lab *lab, const float *a, const float *b, float *mean)
{
    const struct codec *codec = codec_get(lab->opt.method.wire);
    const float *x[2] = {a, b};
    size_t n = (size_t)lab->n;
    int rv = 0;

    for (int i = 0; i < 2 && rv == 0; i++) {
        float *to = i == 0 ? mean : lab->decoded;

        rv = codec->encode(lab->wire, x[i], n, 0.5F);
        rv = rv != 0 ? rv : codec->decode(to, lab->wire, n);
    }
    for (size_t k = 0; k < n && rv == 0; k++) {
        mean[k] = mean[k] + lab->decoded[k];
    }
    return rv;
}

static int swap(struct lab *lab,
                struct lab_peer *a,
                struct lab_peer *b,
                const struct stream_turn *turn)
{
    const struct engine_average average = {lab->mean, lab->mean_phi, 0.5, 1};
    uint64_t bytes = lab_wire_bytes(lab, lab->n);
    double t = a->clock_s > b->clock_s ? a->clock_s : b->clock_s;
    int rv = mean_of_two(lab, lab->packed[a->number], lab->packed[b->number],
                         lab->mean);

    rv = rv != 0 ? rv : mean_of_two(lab, a->e.phi, b->e.phi, lab->mean_phi);
    rv = rv != 0 ? rv : engine_apply(&a->e, 0, turn, &average);
    rv = rv != 0 ? rv : engine_apply(&b->e, 0, turn, &average);
    t += lab_swap(lab, a->number, b->number, bytes, 2 * bytes);
    a->clock_s = b->clock_s = t;
    return rv;
}

static int
alone(struct lab *lab, struct lab_peer *p, const struct stream_turn *turn)
{
    const struct engine_average average = {lab->packed[p->number], NULL, 1.0,
                                           1};

    return engine_apply(&p->e, 0, turn, &average);
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
        uint32_t j = pair_partner(lab->opt.seed, epoch, t, n, i, scratch);

        if (j == PAIR_BYE) {
            rv = alone(lab, &lab->peers[who[i]], &turn);
        } else if (i < j) {
            rv = swap(lab, &lab->peers[who[i]], &lab->peers[who[j]], &turn);
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
        uint32_t before = lab_alive(lab, who), n;

        rv = lab_events(lab, true);
        n = lab_alive(lab, who);
        epoch += n != before;
        for (uint32_t k = 0; k < lab->opt.method.period && rv == 0; k++) {
            rv = lab_events(lab, false);
            n = lab_alive(lab, who);
            for (uint32_t i = 0; i < n && rv == 0; i++) {
                rv = lab_step(lab, &lab->peers[who[i]]);
            }
        }
        if (rv == 0 && n > 0) {
            rv = lab_turn_pairs(lab, t, epoch);
            rv = rv != 0 ? rv : lab_point(lab, 0, lab->peers[who[0]].e.phi);
        }
    }
    return rv;
}
