/* owners.c - the scenarios of owner-sharded groups, and what must hold at their
 * end; what is checked on the way is at the top of owners_world.h.
 *
 *   owners         nobody dies
 *   owners-deaths  owners and backups die, one or both, freeze and come back;
 *                  messages are lost or said twice, transfers break off
 *   owners-restart all die at once and come back, some later, and go on from
 * the newest mark of which there is every slice
 *
 * At the end: every live member has submitted all its tasks and every slice is
 * open; owner and backup hold the same bits; what is in a log was submitted,
 * once, and replayed from the initial weights it gives these bits; it has all
 * that was acknowledged, unless owner and backup of a slice were lost
 * together. Without faults nothing is refused, copied, suspected or dropped. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "tests/sim/owners_world.h"

static struct ow_options defaults(const struct sim_options *opt)
{
    return (struct ow_options){
        .seed = opt->seed,
        .peers = opt->peers,
        .slices = 16,
        .tasks = 8,
        .records = 4,
        .readings = 4,
        .pieces = 8,
        .mark_every = 2,
        .train_ms = 2000,
        .link_ms = 30,
        .piece_ms = 20,
        .resend_ms = 500,
        .stuck_ms = 20000,
        .notice_ms = 2500,
        .unequal = 4,
        .end_ms = 3600000,
    };
}

static int settings(const struct sim_options *opt,
                    struct ow_options *o,
                    uint32_t *strikes,
                    struct sim_result *r)
{
    const struct sim_setting table[] = {
        {"slices", "of the parameters", 1, OWNERS_SLICES_MAX, NULL, &o->slices,
         NULL},
        {"tasks", "of each peer", 1, 1000, NULL, &o->tasks, NULL},
        {"records", "slots", 1, 8, NULL, &o->records, NULL},
        {"readings", "slots", 1, 8, NULL, &o->readings, NULL},
        {"pieces", "slots", 1, 16, NULL, &o->pieces, NULL},
        {"train_ms", "a task of the fastest", 1, 1e6, NULL, &o->train_ms, NULL},
        {"link_ms", "one way", 1, 1e5, NULL, &o->link_ms, NULL},
        {"piece_ms", "a piece", 1, 1e5, NULL, &o->piece_ms, NULL},
        {"unequal", "the slowest takes so many times as long", 1, 100, NULL,
         &o->unequal, NULL},
        {"stale_most", "arrivals; 0: any", 0, 1e6, NULL, &o->stale_most, NULL},
        {"lose", "of a thousand messages", 0, 300, NULL, &o->lose, NULL},
        {"repeat", "of a thousand messages", 0, 500, NULL, &o->repeat, NULL},
        {"breaks", "of a thousand transfers", 0, 300, NULL, &o->breaks, NULL},
        {"strikes", "peers that die or freeze", 0, 64, NULL, strikes, NULL},
    };
    int rv = sim_settings(opt, table, sizeof table / sizeof table[0], r);

    if (rv == 0 && o->peers > OW_PEERS_MAX) {
        (void)snprintf(r->violation, sizeof r->violation,
                       "this scenario has at most %d peers", OW_PEERS_MAX);
        rv = LOCO_EINVAL;
    }
    return rv;
}

/* ---- the end ---------------------------------------------------------- */

static void
check_replay(struct owners_world *w, uint32_t slice, const struct ow_slice *s)
{
    struct ow_slice again = {0};

    ow_build(&again, slice, s->first_size);
    again.log = s->log;
    for (uint32_t i = 0; i < s->n; i++) {
        float piece[OW_VALUES];

        w->checked++;
        ow_piece(s->log[i].peer, s->log[i].task, slice, piece);
        (void)ow_step(&again, piece, s->log[i].next);
        again.n = i;
        if (ow_has(&again, s->log[i].peer, s->log[i].task)) {
            ow_fail(w, "slice %u has one arrival twice", slice);
        }
    }
    again.n = s->n;
    if (s->whole && !ow_same(&again, s)) {
        ow_fail(w, "slice %u is not the sum of its arrivals", slice);
    }
}

static void
check_acked(struct owners_world *w, uint32_t slice, const struct ow_slice *s)
{
    for (uint32_t i = 0; i < w->opt.peers; i++) {
        for (uint32_t k = 1; k <= w->opt.tasks; k++) {
            uint64_t task = *ow_acked(w, slice, i, k);

            w->checked++;
            if (task != 0 && !w->anew[slice] && !ow_has(s, i, task)) {
                ow_fail(w, "slice %u lost the acknowledged task %u of peer %u",
                        slice, k, i);
            }
        }
    }
}

/* Of a live peer: what it owns. */
static void check_owned(struct owners_world *w, uint32_t me)
{
    const struct ow_peer *p = &w->peer[me];

    for (uint32_t i = 0; i < w->opt.slices; i++) {
        const struct owners_slice *s = &p->c.slice[i];
        uint32_t b;

        if (s->owner != p->c.self) {
            continue;
        }
        b = ow_number(w, me, s->backup);
        check_replay(w, i, &p->held[i]);
        check_acked(w, i, &p->held[i]);
        if (b != OWNERS_NOBODY && !ow_same(&p->held[i], &w->peer[b].held[i])) {
            ow_fail(w, "owner %u and backup %u of slice %u are not the same",
                    me, b, i);
        }
    }
}

static void check(struct owners_world *w, bool plain)
{
    uint64_t dropped = 0;

    for (uint32_t i = 0; i < w->opt.peers && w->why[0] == '\0'; i++) {
        if (w->peer[i].alive) {
            check_owned(w, i);
            dropped += w->peer[i].c.malformed;
        }
    }
    if (dropped > 0) {
        ow_fail(w, "%llu messages of honest peers are dropped as wrong",
                (unsigned long long)dropped);
    }
    if (plain && (w->n_copies | w->n_lost | w->n_suspects) != 0) {
        ow_fail(w, "without faults something is lost or suspected");
    }
    if (plain && w->opt.stale_most == 0 &&
        w->n_acked != (uint64_t)w->opt.peers * w->opt.slices * w->opt.tasks) {
        ow_fail(w, "%llu arrivals are acknowledged",
                (unsigned long long)w->n_acked);
    }
}

static void figures(const struct owners_world *w, struct sim_result *r)
{
    uint64_t round = UINT64_MAX, taken_over = 0, again = 0;

    for (uint32_t i = 0; i < w->opt.peers; i++) {
        const struct owners *c = &w->peer[i].c;
        uint64_t k = owners_round(c);

        round = w->peer[i].alive && k < round ? k : round;
        taken_over += c->n_taken_over;
        again += c->n_again;
    }
    sim_figure(r, "acknowledged", (double)w->n_acked, SIM_SUM);
    sim_figure(r, "said_again", (double)again, SIM_SUM);
    sim_figure(r, "refused", (double)w->n_refused, SIM_SUM);
    sim_figure(r, "taken_over", (double)taken_over, SIM_SUM);
    sim_figure(r, "copies", (double)w->n_copies, SIM_SUM);
    sim_figure(r, "told_lost", (double)w->n_lost, SIM_SUM);
    sim_figure(r, "suspected", (double)w->n_suspects, SIM_SUM);
    sim_figure(r, "views", (double)w->epoch, SIM_SUM);
    sim_figure(r, "restarts", (double)w->n_restarts, SIM_SUM);
    sim_figure(r, "from_mark", (double)w->from, SIM_MEAN);
    sim_figure(r, "round", round == UINT64_MAX ? 0 : (double)round, SIM_MIN);
    sim_figure(r, "virtual_s", (double)w->now_us / 1e6, SIM_MEAN);
}

/* ---- scenarios -------------------------------------------------------- */

static void inflict(struct owners_world *w, uint32_t strikes)
{
    uint64_t span = (uint64_t)w->opt.tasks * w->opt.train_ms * 2;

    for (uint32_t i = 0; i < strikes; i++) {
        uint32_t who = (uint32_t)ow_below(w, w->opt.peers);
        uint64_t at = 1 + ow_below(w, span);
        bool freeze = ow_below(w, 3) == 0;
        uint64_t back =
            freeze || ow_below(w, 2) == 0 ? 200 + ow_below(w, 9000) : 0;

        ow_strike(w, who, at, freeze, back);
        if (ow_below(w, 3) == 0) { /* and another, with it */
            ow_strike(w, (who + 1) % w->opt.peers, at + ow_below(w, 200), false,
                      200 + ow_below(w, 9000));
        }
    }
}

/* All die within a moment, once or twice; some come back when others have gone
 * on without them. */
static void stop_all(struct owners_world *w)
{
    bool all = ow_below(w, 2) == 0;

    for (uint32_t k = 0; k < w->opt.stops; k++) {
        uint64_t at = 5000 + ow_below(w, 30000) + k * 50000;

        for (uint32_t i = 0; i < w->opt.peers; i++) {
            bool back = (i + k) % w->opt.peers <= w->opt.peers / 2;
            uint64_t late = all || back ? 0 : ow_below(w, 2) * 12000;

            ow_strike(w, i, at + ow_below(w, 300), false,
                      12000 + ow_below(w, 200) + late);
        }
    }
}

static int run(const struct sim_options *opt,
               struct ow_options *o,
               uint32_t strikes,
               struct sim_result *r)
{
    struct owners_world *w;
    int rv = settings(opt, o, &strikes, r);

    if (rv != 0) {
        return rv;
    }
    w = ow_open(o);
    if (w == NULL) {
        return LOCO_ENOMEM;
    }
    inflict(w, strikes);
    stop_all(w);
    ow_run(w);
    if (w->why[0] == '\0') {
        check(w, strikes == 0 && (o->lose | o->breaks | o->stops) == 0);
    }
    figures(w, r);
    r->trace_hash = w->hash;
    r->invariants_checked = w->checked;
    if (w->why[0] != '\0') {
        r->violations = 1;
        (void)snprintf(r->violation, sizeof r->violation, "%s", w->why);
        fprintf(stderr, "sim: %s --seed %llu: %s\n", opt->scenario,
                (unsigned long long)opt->seed, w->why);
    }
    ow_close(w);
    return r->violations == 0 ? 0 : 1;
}

int owners_plain_run(const struct sim_options *opt, struct sim_result *r)
{
    struct ow_options o = defaults(opt);

    return run(opt, &o, 0, r);
}

/* Few slots and short times, so that faults meet every phase. */
int owners_deaths_run(const struct sim_options *opt, struct sim_result *r)
{
    struct ow_options o = defaults(opt);

    o.slices = 1 + (uint32_t)(opt->seed / 3 % 8);
    o.tasks = 6;
    o.records = 1 + (uint32_t)(opt->seed % 2);
    o.readings = 1 + (uint32_t)(opt->seed / 2 % 2);
    o.pieces = 1 + (uint32_t)(opt->seed / 5 % 3);
    o.train_ms = 500;
    o.piece_ms = 60;
    o.lose = opt->seed % 4 == 0 ? 50 : 0;
    o.repeat = opt->seed % 4 == 1 ? 100 : 0;
    o.breaks = opt->seed % 4 == 2 ? 50 : 0;
    return run(opt, &o, 1 + (uint32_t)(opt->seed % 5), r);
}

/* Slices move one after the other, so that all seldom have the same mark. */
int owners_restart_run(const struct sim_options *opt, struct sim_result *r)
{
    struct ow_options o = defaults(opt);

    o.slices = 1 + (uint32_t)(opt->seed / 3 % 8);
    o.train_ms = 500;
    o.piece_ms = 150;
    o.records = o.pieces = 1;
    o.mark_every = 1 + (uint32_t)(opt->seed / 7 % 2);
    o.tasks = 16;
    o.stops = 1 + (uint32_t)(opt->seed % 2);
    o.lose = opt->seed % 4 == 0 ? 50 : 0;
    return run(opt, &o, (uint32_t)(opt->seed / 2 % 2), r);
}
