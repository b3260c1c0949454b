/* audits.h - an audit among five linked members, for audit_test.c and
 * accuse_test.c. No bytes move here: a test says what came. Everything is
 * static in this header. */
#ifndef LOCO_TESTS_UNIT_P2P_AUDITS_H
#define LOCO_TESTS_UNIT_P2P_AUDITS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/round/audit.h"
#include "proto/base/err.h"
#include "proto/base/rng.h"
#include "proto/messages.h"
#include "proto/sign.h"
#include "tests/unit/p2p/linked.h"

#define WAIT_MS  5000
#define BLOCK    4U
#define MEMBERS  5
#define RANK     1 /* ours, of five */
#define STRANGER 4 /* a linked peer that is no member */
#define FIRST    (7ULL << 20)

/* Peers 0 to 3 are the members of rank 0, 2, 3, 4. */
struct fixture {
    struct members m;
    struct audit a;
    struct audit_commit c;
    struct out out;
    struct identity self, peer[MEMBERS];
    int row[MEMBERS];
    uint64_t now_ms, round_ms; /* round_ms: what a round takes; 0: unknown */
    struct segment asked[MEMBERS]; /* posted, not arrived; a FETCH each */
    uint32_t n_asked;
    uint32_t n_jobs, n_cancels;
    uint64_t before; /* blocks given up, at begin_idle() */
    struct job_audit job;
    struct action_cancel cancel;
};

static inline int peer_of(uint32_t rank)
{
    return (int)rank - (rank > RANK);
}

/* Each piece that is awaited is asked for, of who is to send it. */
static inline void check_fetch(const struct fixture *f, const struct action *a)
{
    const struct segment *s = &f->asked[f->n_asked - 1];
    struct fetch m;

    assert_int_equal(a->send.message, MESSAGE_FETCH);
    assert_int_equal(msg_decode(&fetch_schema, f->out.bytes + a->send.bytes.at,
                                a->send.bytes.len, &m),
                     0);
    assert_true(id_eq(&f->peer[a->send.link - 1].id, &s->peer));
    assert_int_equal(m.buffer, BUFFER_OFFER);
    assert_int_equal(m.index, s->index);
    assert_int_equal(m.offset, s->offset);
    assert_int_equal(m.len, s->len);
    assert_int_equal(m.attempt, s->attempt);
    assert_int_equal(m.seg, s->seg);
    assert_int_equal(m.stream, STREAM_AUDIT);
    assert_true(hash32_eq(&m.root, &s->offer));
}

static inline void check_post(const struct fixture *f, const struct segment *s)
{
    uint32_t i = s->lane;

    assert_true(i < f->c.shape.cut.n && i != f->c.rank);
    assert_int_equal(s->seg, i);
    assert_int_equal(s->stream, STREAM_AUDIT);
    assert_int_equal(s->attempt, f->a.attempt);
    assert_int_equal(s->buffer, BUFFER_OFFER);
    assert_int_equal(s->index, f->c.round);
    assert_int_equal(s->op, SEGMENT_LANE);
    assert_int_equal(s->lanes, f->c.shape.cut.n);
    assert_true(s->proven);
    assert_true(s->scale == f->c.scale[i]);
    assert_true(id_eq(&s->maker, &f->c.member[i]));
    assert_true(hash32_eq(&s->offer, &f->c.offer[i]));
}

/* Take in what the audit wants. */
static inline void collect(struct fixture *f)
{
    uint32_t n_fetches = 0, n_posts = 0;

    for (uint32_t i = 0; i < f->out.n; i++) {
        const struct action *a = &f->out.action[i];

        if (a->type == ACTION_POST_RECV) {
            assert_true(f->n_asked < MEMBERS);
            check_post(f, &a->segment);
            f->asked[f->n_asked++] = a->segment;
            n_posts++;
        } else if (a->type == ACTION_SEND) {
            check_fetch(f, a);
            n_fetches++;
        } else if (a->type == ACTION_JOB && a->job.type != JOB_LOG) {
            assert_int_equal(a->job.type, JOB_AUDIT);
            f->job = a->job.audit;
            f->n_jobs++;
        } else if (a->type == ACTION_CANCEL) {
            f->cancel = a->cancel;
            f->n_cancels++;
            f->n_asked = 0;
        }
    }
    assert_int_equal(n_posts, n_fetches);
    assert_int_equal(f->out.dropped, 0);
    f->out.n = f->out.n_bytes = 0;
}

static inline void tick(struct fixture *f, uint64_t after_ms)
{
    f->now_ms += after_ms;
    audit_tick(&f->a, f->now_ms, &f->out);
    collect(f);
}

static inline void shape(struct fixture *f, uint64_t elements)
{
    f->c.shape = (struct butterfly_shape){.cut = {.elements = elements,
                                                  .block = BLOCK,
                                                  .segment_elements = 2 * BLOCK,
                                                  .chunk_segments = 2,
                                                  .n = MEMBERS}};
    for (uint32_t i = 0; i < MEMBERS; i++) {
        f->c.shape.share[i] = 1 + i;
    }
}

static inline int open_fixture(void **state)
{
    struct members_options opt = {.seed = 1};
    struct fixture *f = calloc(1, sizeof *f + members_bytes(&opt));

    assert_non_null(f);
    linked_open(&f->m, f + 1, &f->self, f->peer, MEMBERS, &f->out);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        f->row[i] = members_find(&f->m, &f->peer[i].id);
    }
    f->c.round = 9;
    f->c.hash = (struct hash32){.b = {5}};
    f->c.rank = RANK;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        f->c.member[i] = i == RANK ? f->self.id : f->peer[peer_of(i)].id;
        f->c.offer[i] = (struct hash32){.b = {(uint8_t)(i + 1)}};
        f->c.scale[i] = (i + 1) / 15.0;
    }
    shape(f, 1001); /* three draws */
    audit_init(&f->a, &f->m, WAIT_MS, FIRST);
    f->out.n = f->out.n_bytes = 0;
    *state = f;
    return 0;
}

static inline int close_fixture(void **state)
{
    free(*state);
    return 0;
}

static inline void begin(struct fixture *f, uint64_t secret)
{
    audit_begin(&f->a, &f->c, secret, f->now_ms, f->round_ms, &f->out);
    collect(f);
}

/* Begin, and give up what it draws by itself: only accusations are left. */
static inline void begin_idle(struct fixture *f)
{
    begin(f, 1);
    while (f->a.left > 0 || f->a.phase != AUDIT_IDLE) {
        tick(f, WAIT_MS);
    }
    f->n_cancels = 0;
    f->before = f->a.n_unanswered;
}

/* Blocks given up since then. */
static inline uint64_t unanswered(const struct fixture *f)
{
    return f->a.n_unanswered - f->before;
}

/* The k-th that is awaited comes, or ends. */
static inline void arrive(struct fixture *f, uint32_t k, int rc)
{
    struct event_seg_done done = {.segment = f->asked[k], .rc = rc};

    memmove(f->asked + k, f->asked + k + 1,
            (--f->n_asked - k) * sizeof f->asked[0]);
    audit_seg_done(&f->a, &done, &f->out);
    collect(f);
}

static inline void all_arrive(struct fixture *f)
{
    uint32_t before = f->n_jobs;

    assert_int_equal(f->n_asked, MEMBERS - 1);
    while (f->n_asked > 0) {
        assert_int_equal(f->n_jobs, before);
        arrive(f, f->n_asked / 2, 0);
    }
    assert_int_equal(f->n_jobs, before + 1);
}

static inline struct local_event
report_of(const struct fixture *f, bool wrong, int rc)
{
    return (struct local_event){.type = LOCAL_AUDITED,
                                .rc = rc,
                                .audited = {.round = f->job.round,
                                            .offset = f->job.offset,
                                            .wrong = wrong}};
}

static inline bool answer(struct fixture *f, bool wrong, struct audit_block *b)
{
    const struct local_event e = report_of(f, wrong, 0);
    bool found = audit_summed(&f->a, &e, b);

    collect(f);
    return found;
}

static inline bool
accuse(struct fixture *f, int peer, uint8_t commit, uint64_t offset)
{
    const struct accuse m = {.commit = {.b = {commit}}, .offset = offset};

    return audit_on_accuse(&f->a, f->row[peer], &m);
}

/* The first block that the member of that rank summed. */
static inline uint64_t block_of(const struct fixture *f, uint32_t rank)
{
    uint64_t begin, end;

    butterfly_slice(&f->c.shape, 0, rank, &begin, &end);
    assert_true(end > begin);
    return begin;
}

static inline void
refuse(struct fixture *f, int peer, uint64_t attempt, uint32_t seg)
{
    const struct fetch_no no = {.attempt = attempt, .seg = seg};

    audit_refused(&f->a, f->row[peer], &no, &f->out);
    collect(f);
}

#endif
