/* work_room.h - what an auditor of work holds of another member's work.
 *
 * An auditor makes the lease of another member, the *maker*, again
 * (p2p/round/repeat.h): from the state before the round, with the inner moments
 * that the maker began with. It fetches these whole, and of what the maker sent
 * some *blocks*; of the moments with which the maker began its next lease some
 * blocks, too. Each piece comes with its proof (offers.h): it is what the maker
 * announced in that round.
 *
 * A room is of one maker, round and base: after a rollback the same maker may
 * have worked for the same round from another state.
 *
 *     work_room_take*, work_room_mean* -> work_room_is_full -> the lease is
 * made again -> work_room_read
 *
 * Moments are one vector, u then v, in bf16. A piece of another lease empties
 * the room; a machine has WORK_ROOMS of them. Memory of one: 4 bytes a
 * parameter, and three times WORK_BLOCKS blocks in fp32. One thread.
 */
#ifndef LOCO_DAEMON_JOBS_WORK_ROOM_H
#define LOCO_DAEMON_JOBS_WORK_ROOM_H

#include "daemon/jobs/offers.h"
#include "p2p/round/work.h"

/* Of a contribution: the cosine of so many is as that of all to 0.002, where
 * work is honest (STRANGERS.md, section 5). */
#define WORK_BLOCKS WORK_DRAWS

/* Rounds, at least, whose results are kept for that: of more nobody serves the
 * work. */
#define WORK_RESULTS (WORK_COMMITS + 2)

struct work_block {
    bool here, has_mean;
    uint64_t offset; /* of its first element */
    uint32_t len;
    float *x;    /* (len) what was sent */
    float *mean; /* (len) the result of the round there; `sent` only */
};

struct work_room {
    uint64_t round; /* whose contribution it is; 0: the room is empty */
    uint64_t base;  /* name of the state that the lease began from */
    struct peer_id maker;
    uint64_t n;       /* elements of the moments: two a parameter */
    uint32_t block;   /* elements that pieces are cut at */
    uint64_t n_have;  /* blocks of the moments that are here */
    uint8_t *have;    /* bit i: block i */
    uint8_t *moments; /* (n) bf16, all of them numbers */
    struct work_block sent[WORK_BLOCKS], after[WORK_BLOCKS];
    float *blocks; /* memory of all of them */
};

/* A piece that came, with its proof behind it:
 *   MOMENTS, COPY  of those of round s->index
 *   MOMENTS, LANE  block number s->lane of those of the round after
 *   OFFER, LANE    block number s->lane of the contribution to s->index
 * `cut`: of that vector. LOCO_EHASH: it is not what s->maker announced by
 * s->offer. LOCO_ENUMERIC, LOCO_EPROTO: no numbers. LOCO_EINVAL: no such block.
 * LOCO_ENOMEM. */
int work_room_take(struct work_room *r,
                   const struct offer_cut *cut,
                   const struct segment *s,
                   const uint8_t *src);

/* Whether the room is of that lease. */
bool work_room_is_of(const struct work_room *r,
                     uint64_t round,
                     uint64_t base,
                     const struct peer_id *maker);

/* The contribution that a piece is about. */
uint64_t work_round(const struct segment *s);

/* Of WORK_ROOMS rooms the one of that lease; WORK_ROOMS: there is none. */
uint32_t work_rooms_find(const struct work_room *rooms,
                         uint64_t round,
                         uint64_t base,
                         const struct peer_id *maker);

/* One for a lease of that round which has none; the caller empties it. It is an
 * empty one, or one of so long ago that nobody may speak of it any more.
 * Whoever gives up a lease empties its room, so the latter is a mistake of
 * ours; but each such room would be lost for ever. WORK_ROOMS: there is none.
 * `not_this`: a room in use, or WORK_ROOMS. */
uint32_t work_rooms_free(const struct work_room *rooms,
                         uint64_t round,
                         uint32_t not_this);

/* The result of that round at block k of `sent`, encoded. */
int work_room_mean(struct work_room *r,
                   uint32_t k,
                   const struct codec *codec,
                   const uint8_t *src);

/* All moments are here, and with its mean at least one block. */
bool work_room_is_full(const struct work_room *r);

/* The auditor's own moments at the state before the round. */
struct work_own_moments {
    const uint8_t *moments; /* (n) bf16, as they were announced; NULL: not here
                             */
    uint64_t steps;         /* of its optimizer then */
    double beta1, beta2;
};

/* Whether moments of so many steps remember as far back as they ever will,
 * about: gradients get shorter as training goes on, and an old mean remembers
 * longer ones. */
bool work_room_settled(double beta2, uint64_t steps);

/* repeat_reading.stretch of the moments that are here, after so many steps of
 * the maker's optimizer. False: our own are not here, or nothing yet, or no
 * numbers. */
bool work_room_stretch(const struct work_room *r,
                       const struct work_own_moments *own,
                       uint64_t steps,
                       double *worst);

/* What comes of the lease, made again. */
struct work_repeat {
    const struct codec *codec; /* of contributions */
    const float *repeat;       /* its contribution, without residual */
    const float *moments;      /* (n) at its end */
    double eps;                /* of the optimizer */
    bool leads;                /* the result is mostly the maker's */
    const float *steady; /* a second one, with other products, or NULL.. */
    const float *steady_u, *steady_v; /* ..and at its end; NULL: not read */
};

/* LOCO_ENUMERIC: the repeat does not fit the wire; LOCO_ENOMEM. */
int work_room_read(const struct work_room *r,
                   const struct work_repeat *w,
                   struct repeat_reading *out);

void work_room_free(struct work_room *r);

#endif
