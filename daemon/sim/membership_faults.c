/* membership_faults.c - faults, cuts, and the figures; see membership.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sim/membership_internal.h"
#include "proto/base/rng.h"

#define START_MS 1000
#define WATCH_MS 15000 /* after the last start */
#define REST_MS  45000 /* until tables are full and nobody is new */
#define IDLE_MS  30000 /* then that long nothing happens: bytes are counted */
/* Mean bytes a second: of strangers that shuffles name, a few go further. */
#define IDLE_RUMOURS_PER_S 128
#define FAULT_STEP         1500
#define OPEN_MS            15000 /* a fault is followed for that long */
#define CALM_MS            60000
#define GROUP_MS           3000 /* within this the group must know */
#define POLL_MS            100
#define STALE_MAX          0.02 /* of a sampled table's rows */

static bool healthy(const struct crowd *s, uint32_t q)
{
    return world_alive(s->world, q) && !world_frozen(s->world, q);
}

static const struct peer_id *id_of(const struct crowd *s, uint32_t q)
{
    return &world_identity(s->world, q)->id;
}

bool crowd_cut(void *self, uint32_t from, uint32_t to, bool bulk)
{
    const struct crowd *s = self;

    (void)bulk;
    return s->is_cut &&
           (s->opt.parts == 1 ? s->parts[from] == 0 && s->parts[to] == 1
                              : s->parts[from] != s->parts[to]);
}

/* ---- alarms ----------------------------------------------------------- */

static void false_alarm(struct crowd *s, uint32_t by, uint32_t q)
{
    if (q < s->n && healthy(s, q) && !s->is_cut && s->healed_ms == 0 &&
        world_now(s->world) - s->peers[q].back_ms > 5000 &&
        world_now(s->world) - s->peers[by].back_ms > 5000) {
        s->m.false_alarms++;
        if (s->opt.loss_per_million == 0) {
            sim_fail(s->r, "peer %u says that %u is dead, which lives", by, q);
        }
    }
}

void crowd_declared(struct crowd *s, uint32_t by, const struct peer_id *id)
{
    false_alarm(s, by, world_find(s->world, id));
}

void crowd_lost(struct crowd *s, uint32_t by, const struct peer_id *id)
{
    uint32_t q = world_find(s->world, id);
    uint64_t now = world_now(s->world);

    if (s->peers[by].back_ms + 25000 > now) {
        return; /* it began to watch a moment ago */
    }
    for (uint32_t k = 0; k < s->n_open; k++) {
        const struct crowd_fault *f = &s->faults[s->open_faults[k]];

        if (f->peer == q && now - f->at_ms > s->m.group_ms_max) {
            s->m.group_ms_max = (uint32_t)(now - f->at_ms);
        }
    }
}

/* ---- who knows of a fault --------------------------------------------- */

static void note_delay(struct crowd *s, uint64_t ms)
{
    s->delays[s->n_delays++] = (uint32_t)ms;
}

void crowd_look(struct crowd *s, uint32_t number)
{
    struct crowd_peer *p = &s->peers[number];

    for (uint64_t left = p->open; left != 0; left &= left - 1) {
        uint32_t k = (uint32_t)__builtin_ctzll(left);
        const struct crowd_fault *f = &s->faults[s->slots[k]];
        int row = members_find(&p->members, id_of(s, f->peer));

        if (row == MEMBERS_NONE && crowd_is_sampled(s)) {
            p->open &= ~(1ULL << k); /* somebody else has its row now */
        } else if (row != MEMBERS_NONE &&
                   p->members.peers[row].state >= PEER_DEAD) {
            p->open &= ~(1ULL << k);
            note_delay(s, world_now(s->world) - f->at_ms);
        }
    }
}

static void check_group(void *data, uint64_t arg)
{
    struct crowd *s = data;
    const struct crowd_fault *f = &s->faults[arg];
    uint32_t first = s->place[f->peer] / s->group * s->group;

    for (uint32_t k = first; k < first + s->group && k < s->n; k++) {
        uint32_t q = s->at_place[k];
        const struct members *m = &s->peers[q].members;
        int row;

        if (q == f->peer || !healthy(s, q) ||
            s->peers[q].back_ms + 5000 > f->at_ms) {
            continue;
        }
        row = members_find(m, id_of(s, f->peer));
        s->r->invariants_checked++;
        if (row == MEMBERS_NONE ||
            (m->peers[row].watched && !m->peers[row].lost)) {
            sim_fail(s->r,
                     "peer %u does not know that %u of its group %s %u ms "
                     "ago",
                     q, f->peer, f->freeze ? "froze" : "died", GROUP_MS);
        }
    }
}

static void close_fault(void *data, uint64_t slot)
{
    struct crowd *s = data;

    for (uint32_t q = 0; q < s->n; q++) {
        if ((s->peers[q].open >> slot & 1) != 0 && healthy(s, q)) {
            s->m.unknown++;
            note_delay(s, OPEN_MS);
        }
        s->peers[q].open &= ~(1ULL << slot);
    }
    for (uint32_t k = 0; k < s->n_open; k++) {
        if (s->open_faults[k] == s->slots[slot]) {
            s->open_faults[k] = s->open_faults[--s->n_open];
        }
    }
    s->slots[slot] = UINT32_MAX;
}

static void come_back(void *data, uint64_t arg)
{
    struct crowd *s = data;
    const struct crowd_fault *f = &s->faults[arg];

    s->peers[f->peer].back_ms = world_now(s->world);
    if (f->freeze) {
        world_thaw(s->world, f->peer);
    } else {
        crowd_start(s, f->peer);
        world_call(s->world, world_now(s->world) + 2000, crowd_watch, s,
                   f->peer);
    }
}

/* Whether that peer thinks it alive, and so must learn of its end. */
static bool knows_of(const struct crowd *s, uint32_t q, uint32_t about)
{
    const struct members *m = &s->peers[q].members;
    int row = members_find(m, id_of(s, about));

    return !crowd_is_sampled(s) ||
           (row != MEMBERS_NONE && m->peers[row].confirmed &&
            m->peers[row].state <= PEER_SUSPECT);
}

static void strike(void *data, uint64_t arg)
{
    struct crowd *s = data;
    struct crowd_fault *f = &s->faults[arg];
    uint32_t slot = 0;

    do {
        f->peer = (uint32_t)crowd_draw(s, s->n);
    } while (!healthy(s, f->peer) ||
             s->peers[f->peer].back_ms + 20000 > world_now(s->world));
    f->at_ms = world_now(s->world);
    while (s->slots[slot] != UINT32_MAX) {
        slot++;
    }
    s->slots[slot] = (uint32_t)arg;
    s->open_faults[s->n_open++] = (uint32_t)arg;
    s->peers[f->peer].open = 0;
    if (f->freeze) {
        world_freeze(s->world, f->peer);
    } else {
        world_kill(s->world, f->peer);
    }
    for (uint32_t q = 0; q < s->n; q++) {
        if (healthy(s, q) && s->peers[q].back_ms + 5000 < f->at_ms &&
            knows_of(s, q, f->peer)) {
            s->peers[q].open |= 1ULL << slot;
        }
    }
    if (s->group > 1) {
        world_call(s->world, f->at_ms + GROUP_MS, check_group, s, arg);
    }
    world_call(s->world, f->at_ms + OPEN_MS, close_fault, s, slot);
    if (f->back_ms > 0) {
        world_call(s->world, f->at_ms + f->back_ms, come_back, s, arg);
    }
}

/* ---- figures ---------------------------------------------------------- */

static void idle_begins(void *data, uint64_t arg)
{
    struct crowd *s = data;

    (void)arg;
    for (uint32_t q = 0; q < s->n; q++) {
        s->peers[q].mark_bytes = s->peers[q].bytes;
        memset(s->peers[q].bytes_of, 0, sizeof s->peers[q].bytes_of);
    }
}

static void idle_ends(void *data, uint64_t arg)
{
    struct crowd *s = data;
    struct membership_result *r = &s->m;

    (void)arg;
    for (uint32_t q = 0; q < s->n; q++) {
        const struct crowd_peer *p = &s->peers[q];
        double rate = (double)(p->bytes - p->mark_bytes) * 1000 / IDLE_MS;

        r->idle_bytes_per_s += rate / s->n;
        for (int k = 0; k < 32; k++) {
            r->by_type[k] += (double)p->bytes_of[k] * 1000 / IDLE_MS / s->n;
        }
        r->idle_bytes_per_s_max =
            rate > r->idle_bytes_per_s_max ? rate : r->idle_bytes_per_s_max;
        r->links += (double)p->members.n_linked / s->n;
        r->neighbours += (double)p->members.n_active / s->n;
    }
    if (s->opt.loss_per_million == 0 &&
        r->by_type[MESSAGE_GOSSIP] > IDLE_RUMOURS_PER_S) {
        sim_fail(s->r,
                 "nothing happens, and a peer sends %.0f bytes/s of rumours",
                 r->by_type[MESSAGE_GOSSIP]);
    }
}

static uint32_t n_healthy(const struct crowd *s)
{
    uint32_t n = 0;

    for (uint32_t q = 0; q < s->n; q++) {
        n += healthy(s, q);
    }
    return n;
}

/* All who are healthy are reached over neighbours. */
static bool connected(struct crowd *s)
{
    uint32_t *queue = calloc(s->n, sizeof *queue), head = 0, tail = 0;
    bool *seen = calloc(s->n, sizeof *seen), whole;

    for (uint32_t q = 0; q < s->n && tail == 0; q++) {
        if (healthy(s, q)) {
            seen[q] = true;
            queue[tail++] = q;
        }
    }
    while (head < tail) {
        const struct members *m = &s->peers[queue[head++]].members;

        for (int k = 0; k < MEMBERS_ACTIVE_MAX; k++) {
            uint32_t q = m->active[k] == MEMBERS_NONE
                             ? s->n
                             : world_find(s->world, &m->peers[m->active[k]].id);

            if (q < s->n && healthy(s, q) && !seen[q]) {
                seen[q] = true;
                queue[tail++] = q;
            }
        }
    }
    whole = tail == n_healthy(s);
    free(queue);
    free(seen);
    return whole;
}

/* Everybody knows exactly who is there, or as many as fit. */
static bool all_known(const struct crowd *s, uint32_t *who, uint32_t *knows)
{
    uint32_t want = n_healthy(s) - 1;
    /* A last word may still be on its way where packets are lost. */
    uint32_t slack = s->opt.loss_per_million > 0 ? 1 + s->n / 100 : 0;

    for (uint32_t q = 0; q < s->n; q++) {
        uint32_t n = members_n_alive(&s->peers[q].members);

        if (healthy(s, q) &&
            (crowd_is_sampled(s) ? n < s->rows / 4 * 3
                                 : n + slack < want || n > want + slack)) {
            *who = q;
            *knows = n;
            return false;
        }
    }
    return true;
}

static bool noticed(const struct crowd *s)
{
    for (uint32_t q = 0; q < s->n; q++) {
        const struct members *m = &s->peers[q].members;

        for (uint32_t i = 0; i < m->n_links_used; i++) {
            uint32_t t =
                m->links[i].used
                    ? world_find(s->world, &m->peers[m->links[i].peer].id)
                    : s->n;

            if (t < s->n && s->parts[q] != s->parts[t]) {
                return true;
            }
        }
    }
    return false;
}

static void poll(void *data, uint64_t arg)
{
    struct crowd *s = data;
    uint64_t ms = world_now(s->world) - s->healed_ms;
    uint32_t who, knows;

    (void)arg;
    if (s->m.noticed_ms == 0 && noticed(s)) {
        s->m.noticed_ms = ms;
    }
    if (s->m.whole_ms == 0 && all_known(s, &who, &knows) && connected(s)) {
        s->m.whole_ms = ms;
        s->end_ms = world_now(s->world) + 10000;
        return;
    }
    world_call(s->world, world_now(s->world) + POLL_MS, poll, s, 0);
}

static void cut_call(void *data, uint64_t heal)
{
    struct crowd *s = data;
    uint32_t *none = calloc(s->n, sizeof *none);

    s->is_cut = heal == 0;
    if (heal == 0) {
        world_partition(s->world, none);
    } else {
        s->healed_ms = world_now(s->world);
        world_heal(s->world);
        poll(s, 0);
    }
    free(none);
}

/* ---- schedule --------------------------------------------------------- */

static void schedule_faults(struct crowd *s, uint64_t at)
{
    for (uint32_t k = 0; k < 64; k++) {
        s->slots[k] = UINT32_MAX;
    }
    s->n_faults =
        s->opt.faults < CROWD_FAULTS_MAX ? s->opt.faults : CROWD_FAULTS_MAX;
    s->delays = calloc((size_t)s->n_faults * s->n + 1, sizeof *s->delays);
    for (uint32_t k = 0; k < s->n_faults && s->delays != NULL; k++) {
        s->faults[k].freeze = crowd_draw(s, 2) == 0;
        s->faults[k].back_ms =
            crowd_draw(s, 2) == 0 ? 0 : OPEN_MS + 5000 + crowd_draw(s, 10000);
        world_call(s->world, at + crowd_draw(s, FAULT_STEP), strike, s, k);
        at += FAULT_STEP;
    }
    s->m.faults = s->n_faults;
    s->end_ms = at + OPEN_MS + 15000 + CALM_MS;
}

void crowd_schedule(struct crowd *s)
{
    uint64_t at = START_MS;

    for (uint32_t q = 0; q < s->n; q++) {
        world_call(s->world, at, crowd_start, s, q);
        at += s->start_step;
    }
    at += WATCH_MS;
    for (uint32_t q = 0; q < s->n && s->group > 1; q++) {
        world_call(s->world, at + crowd_draw(s, 300), crowd_watch, s, q);
    }
    s->calm_from_ms = at;
    at += REST_MS;
    s->idle_from_ms = at;
    world_call(s->world, at, idle_begins, s, 0);
    at += IDLE_MS;
    world_call(s->world, at, idle_ends, s, 0);
    at += 1000;
    if (!s->opt.partition) {
        schedule_faults(s, at);
        return;
    }
    for (uint32_t q = 0; q < s->n; q++) {
        s->parts[q] = s->at_place[q] % (s->opt.parts == 1 ? 2 : s->opt.parts);
    }
    world_call(s->world, at, cut_call, s, 0);
    world_call(s->world, at + s->opt.cut_ms, cut_call, s, 1);
    s->end_ms = at + s->opt.cut_ms + 600000;
}

static int by_size(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void check_mutual(struct crowd *s, uint32_t q)
{
    const struct members *m = &s->peers[q].members;

    for (int k = 0; k < MEMBERS_ACTIVE_MAX; k++) {
        const struct members *o;
        uint32_t t;
        int row;

        if (m->active[k] == MEMBERS_NONE ||
            m->peers[m->active[k]].active_ms + 2000 > world_now(s->world)) {
            continue;
        }
        t = world_find(s->world, &m->peers[m->active[k]].id);
        o = &s->peers[t].members;
        row = members_find(o, id_of(s, q));
        s->r->invariants_checked++;
        if (!healthy(s, t) || row == MEMBERS_NONE ||
            (!o->peers[row].active &&
             o->peers[row].ask_at_ms + 5000 < world_now(s->world))) {
            sim_fail(s->r, "peer %u has neighbour %u, which says otherwise", q,
                     t);
        }
    }
}

/* How true the tables are, and how even. */
static void judge_tables(struct crowd *s)
{
    uint32_t *known_by = calloc(s->n, sizeof *known_by);
    uint64_t alive = 0, gone = 0;

    for (uint32_t q = 0; q < s->n && known_by != NULL; q++) {
        const struct members *m = &s->peers[q].members;

        for (uint32_t i = 0; healthy(s, q) && i < m->n_peers; i++) {
            const struct member *p = &m->peers[i];
            uint32_t t = p->confirmed && p->state <= PEER_SUSPECT
                             ? world_find(s->world, &p->id)
                             : s->n;

            alive += t < s->n;
            gone += t < s->n && !healthy(s, t);
            known_by[t < s->n ? t : q] += t < s->n;
        }
    }
    s->m.stale_share = alive > 0 ? (double)gone / (double)alive : 0;
    s->m.known_by_mean = (double)(alive - gone) / n_healthy(s);
    s->m.known_by_min = s->n;
    for (uint32_t q = 0; q < s->n && known_by != NULL; q++) {
        if (healthy(s, q) && known_by[q] < s->m.known_by_min) {
            s->m.known_by_min = known_by[q];
        }
    }
    free(known_by);
    if (crowd_is_sampled(s) && s->m.stale_share > STALE_MAX) {
        sim_fail(s->r,
                 "at the end %.1f %% of the rows are of peers that are gone",
                 100 * s->m.stale_share);
    }
    if (crowd_is_sampled(s) && s->m.known_by_min == 0) {
        sim_fail(s->r, "at the end somebody is in nobody's table");
    }
}

void crowd_finish(struct crowd *s)
{
    uint32_t who = 0, knows = 0;

    if (s->n_delays > 0) {
        qsort(s->delays, s->n_delays, sizeof *s->delays, by_size);
        s->m.all_ms_median = s->delays[s->n_delays / 2];
        s->m.all_ms_p99 = s->delays[(uint64_t)s->n_delays * 99 / 100];
        s->m.all_ms_max = s->delays[s->n_delays - 1];
    }
    s->m.peer_days = (double)s->n *
                     (double)(world_now(s->world) - s->calm_from_ms) /
                     86400000.0;
    if (!all_known(s, &who, &knows)) {
        sim_fail(s->r, "at the end peer %u knows %u of %u others", who, knows,
                 n_healthy(s) - 1);
    }
    if (!connected(s)) {
        sim_fail(s->r, "at the end the crowd is in parts");
    }
    judge_tables(s);
    for (uint32_t q = 0; q < s->n && s->opt.loss_per_million == 0; q++) {
        if (healthy(s, q)) {
            check_mutual(s, q);
        }
    }
    if (s->opt.partition && s->m.whole_ms == 0) {
        sim_fail(s->r, "the parts have not become one again");
    }
}
