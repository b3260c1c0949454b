/* work.c - the moments of this member's leases, and leases of others that are
 * made again.
 *
 * With each state that it publishes the trainer names the inner moments that
 * the next lease begins with (publisher.c), and with each contribution those
 * that its lease ended with (trainer_moments.h); they are kept for the round
 * under way, the next one and five more, 4 bytes a parameter each, and found by
 * their hash: where a lease is undone that others have in a commit, the next
 * one begins with other moments than that one ended with, and both are asked
 * for. Who audits another member collects that one's moments and some blocks of
 * what it sent in a room (daemon/jobs/work_room.h), one for each lease that is
 * looked into; a REPEAT hands a room and the state before its round to the
 * trainer (trainer_repeat.h), and nothing in it changes until that is answered.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/machine/internal.h"
#include "daemon/node/work.h"
#include "p2p/exchange/exchange.h"
#include "proto/base/err.h"

_Static_assert(WORK_BLOCK_MAX >= CODEC_BLOCK_MAX &&
                   WORK_BLOCK_MAX >= EXCHANGE_SUM_BLOCK,
               "the node knows the root of a block of zeros");

/* ---- our own moments ---------------------------------------------------- */

/* Under the mutex. NULL is allowed. */
static void moments_drop(struct machine_moments *o)
{
    if (o != NULL && --o->refs == 0) {
        offer_free(&o->offer);
        free(o);
    }
}

/* Under the mutex. Place of those of that root; MACHINE_MOMENTS: not here. */
static uint32_t find_moments(const struct machine *m, const struct hash32 *root)
{
    uint32_t i = 0;

    while (i < MACHINE_MOMENTS &&
           (m->work.moments[i] == NULL ||
            !hash32_eq(offer_root(&m->work.moments[i]->offer), root))) {
        i++;
    }
    return i;
}

/* Those of that place become the first ones, and the last ones go where they
 * are new. NULL: there is no memory. */
static struct machine_moments *
to_front(struct machine *m, uint32_t place, struct offer *o)
{
    struct machine_moments **moments = m->work.moments;
    struct machine_moments *first;

    if (place < MACHINE_MOMENTS) {
        first = moments[place];
    } else {
        first = calloc(1, sizeof *first);
        if (first == NULL) {
            return NULL;
        }
        first->offer = *o;
        first->refs = 1;
        *o = (struct offer){0};
        place = MACHINE_MOMENTS - 1;
        moments_drop(moments[place]);
    }
    memmove(moments + 1, moments, place * sizeof moments[0]);
    moments[0] = first;
    return first;
}

/* After a step back, or for a branch that counts from elsewhere, the same round
 * is announced anew. Without memory nobody can ask for them. */
void machine_take_moments(void *self,
                          struct offer *o,
                          uint64_t steps,
                          bool ends)
{
    struct machine *m = self;
    const uint64_t round = o->round;
    const struct hash32 root = *offer_root(o);

    (void)pthread_mutex_lock(&m->mutex);
    (void)to_front(m, find_moments(m, &root), o);
    if (!ends) {
        m->work.began[round % MACHINE_MOMENTS] =
            (struct machine_began){round, root, steps};
    }
    (void)pthread_mutex_unlock(&m->mutex);
    offer_free(o);
}

/* Under the mutex. Those that the lease of that round began with; NULL: they
 * are not here. */
static struct machine_moments *moments_of(struct machine *m, uint64_t round)
{
    const struct machine_began *b = &m->work.began[round % MACHINE_MOMENTS];
    uint32_t i = round == 0 || b->round != round ? MACHINE_MOMENTS
                                                 : find_moments(m, &b->root);

    return i < MACHINE_MOMENTS ? m->work.moments[i] : NULL;
}

int machine_moments_fill(struct machine *m,
                         const struct segment *s,
                         uint8_t *dst)
{
    const struct offer_cut cut = segment_cut(&m->terms, m->codec, s);
    int rv = LOCO_ENOENT;

    (void)pthread_mutex_lock(&m->mutex);
    for (uint32_t i = 0; i < MACHINE_MOMENTS; i++) {
        const struct machine_moments *o = m->work.moments[i];

        if (o != NULL && hash32_u64(offer_root(&o->offer)) == s->name) {
            rv = offer_fill(&o->offer, &cut, s, dst);
            break;
        }
    }
    (void)pthread_mutex_unlock(&m->mutex);
    return rv;
}

void machine_work_undo(struct machine *m,
                       uint64_t round,
                       struct trainer_command *c)
{
    struct machine_work *w = &m->work;

    (void)pthread_mutex_lock(&m->mutex);
    moments_drop(w->undo);
    w->undo = round == 0 ? NULL : moments_of(m, round);
    if (w->undo != NULL) {
        w->undo->refs++;
        c->own = w->undo->offer.bytes;
        c->moment_steps = w->began[round % MACHINE_MOMENTS].steps;
    }
    (void)pthread_mutex_unlock(&m->mutex);
}

/* ---- leases of others --------------------------------------------------- */

static void let_go(struct machine *m, uint32_t room)
{
    machine_snapshot_drop(m, m->work.bases[room]);
    m->work.bases[room] = NULL;
    (void)pthread_mutex_lock(&m->mutex);
    moments_drop(m->work.own[room]);
    m->work.own[room] = NULL;
    (void)pthread_mutex_unlock(&m->mutex);
    work_room_free(&m->work.rooms[room]);
}

/* The room that a REPEAT reads; WORK_ROOMS: none. Once that is answered, it is
 * let go. */
static uint32_t reading(struct machine *m)
{
    if (m->work.reading < WORK_ROOMS && atomic_load(&m->work.done)) {
        let_go(m, m->work.reading);
        m->work.reading = WORK_ROOMS;
    }
    return m->work.reading;
}

/* The state of that hash, and our own moments then, which are kept from the
 * first piece on: only the last ones are kept else, and the pieces may take
 * longer than that. LOCO_ENOENT: it is not here. */
static int
hold_base(struct machine *m, uint32_t room, uint64_t round, uint64_t name)
{
    const struct kept_state *kept;

    if (m->work.bases[room] != NULL) {
        return 0;
    }
    machine_snapshots_collect(m);
    kept = kept_find(&m->past.kept, round, name);
    if (kept == NULL) {
        return LOCO_ENOENT;
    }
    m->work.bases[room] = kept->state;
    m->work.bases[room]->refs++;
    (void)pthread_mutex_lock(&m->mutex);
    m->work.own[room] = moments_of(m, round + 1);
    if (m->work.own[room] != NULL) {
        m->work.own[room]->refs++;
    }
    (void)pthread_mutex_unlock(&m->mutex);
    return 0;
}

/* The result of the round beside a block of what the maker sent. */
static int take_mean(struct machine *m, struct work_room *room, uint32_t k)
{
    const struct work_block *b = &room->sent[k];
    const struct segment s = {.buffer = BUFFER_REDUCED,
                              .index = room->round,
                              .offset = b->offset,
                              .len = b->len};
    uint8_t *bytes;
    int rv;

    if (!b->here || b->has_mean) {
        return 0;
    }
    bytes = malloc(m->codec->bytes(m->terms.block));
    rv = bytes == NULL ? LOCO_ENOMEM : machine_fill(m, &s, bytes);
    rv = rv == 0 ? work_room_mean(room, k, m->codec, bytes) : rv;
    free(bytes);
    return rv;
}

/* Those that were not here yet when the blocks came. Some are enough. */
static int take_means(struct machine *m, struct work_room *room)
{
    for (uint32_t k = 0; k < WORK_BLOCKS; k++) {
        (void)take_mean(m, room, k);
    }
    return work_room_is_full(room) ? 0 : LOCO_ENOENT;
}

int machine_work_take(struct machine *m,
                      const struct segment *s,
                      const uint8_t *src)
{
    const struct offer_cut cut = segment_cut(&m->terms, m->codec, s);
    struct machine_work *w = &m->work;
    const uint32_t busy = reading(m);
    uint32_t k = work_rooms_find(w->rooms, work_round(s), s->name, &s->maker);
    int rv;

    if (k == WORK_ROOMS) {
        k = work_rooms_free(w->rooms, work_round(s), busy);
        if (k < WORK_ROOMS) {
            let_go(m, k);
        }
    }
    if (k == WORK_ROOMS || k == busy) {
        return LOCO_EBUSY;
    }
    rv = hold_base(m, k, work_round(s) - 1, s->name);
    rv = rv == 0 ? work_room_take(&w->rooms[k], &cut, s, src) : rv;
    if (rv == 0 && s->buffer == BUFFER_OFFER) {
        /* Now: in a case our turn may come when results of that round are kept
         * no more. */
        (void)take_mean(m, &w->rooms[k], s->lane);
    }
    if (w->rooms[k].round == 0) {
        let_go(m, k); /* nothing of it came */
    }
    return rv;
}

/* Of a repeat under way nobody waits for the answer. */
static int stop(struct machine *m, uint32_t room)
{
    if (room < WORK_ROOMS && room == reading(m)) {
        atomic_store(&m->work.stop, true);
    } else if (room < WORK_ROOMS) {
        let_go(m, room);
    }
    return 0;
}

int machine_repeat(struct machine *m,
                   const struct job *job,
                   const struct out *out)
{
    const struct job_repeat *what = &job->repeat;
    struct machine_work *w = &m->work;
    struct trainer_command c = {.job = *job, .stop = &w->stop};
    const uint32_t busy = reading(m);
    const uint32_t k =
        work_rooms_find(w->rooms, what->round, what->base, &what->maker);
    int rv;

    if (what->stop) {
        return stop(m, k);
    }
    if (busy < WORK_ROOMS) {
        return LOCO_EBUSY;
    }
    if (k == WORK_ROOMS || what->lease.len != sizeof c.lease) {
        return LOCO_EINVAL;
    }
    if (w->bases[k] == NULL) {
        return LOCO_ENOENT;
    }
    rv = take_means(m, &w->rooms[k]);
    if (rv != 0) {
        return rv;
    }
    memcpy(&c.lease, out->bytes + what->lease.at, sizeof c.lease);
    c.room = &w->rooms[k];
    c.state = w->bases[k]->state;
    c.own = w->own[k] == NULL ? NULL : w->own[k]->offer.bytes;
    c.moment_steps = w->bases[k]->moment_steps;
    atomic_store(&w->done, false);
    atomic_store(&w->stop, false);
    rv = machine_command(m, &c);
    w->reading = rv == 0 ? k : WORK_ROOMS;
    return rv;
}

void machine_work_free(struct machine *m)
{
    m->work.reading = WORK_ROOMS;
    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        let_go(m, k);
    }
    for (int i = 0; i < MACHINE_MOMENTS; i++) {
        moments_drop(m->work.moments[i]);
        m->work.moments[i] = NULL;
    }
    moments_drop(m->work.undo);
    m->work.undo = NULL;
}

unsigned machine_work_holds(const struct machine *m, const struct snapshot *s)
{
    unsigned n = 0;

    for (uint32_t k = 0; k < WORK_ROOMS; k++) {
        n += m->work.bases[k] == s;
    }
    return n;
}
