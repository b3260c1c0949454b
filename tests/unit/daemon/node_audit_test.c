/* node_audit_test.c - a node that repeats sums of others: what it asks for and
 * says, and when a report convicts nobody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "daemon/node/audit.h"
#include "proto/base/rng.h"
#include "proto/blocks.h"
#include "proto/hash.h"
#include "tests/unit/daemon/hand.h"

/* In a view with n puppets that commits rounds with audits, up to the first
 * sum that the machine is to repeat. It says nothing of it by itself. */
static struct hand *at_a_sum(uint32_t n)
{
    struct hand *h = hand_open(n);

    h->terms.exchange = EXCHANGE_BUTTERFLY;
    h->terms.audits = true;
    h->sums_by_hand = true;
    for (int t = 0; t < 600 && h->n_jobs[JOB_AUDIT] == 0; t++) {
        hand_wait(h, 100);
    }
    assert_int_equal(h->n_jobs[JOB_AUDIT], 1);
    assert_int_equal(h->in.audit->core.phase, AUDIT_SUMMING);
    return h;
}

/* From what is only in our signature: a number of this node's generator is as
 * good as said, as `life` is one. */
static void draws_follow_from_our_signature_of_the_commit(void **state)
{
    struct hand *h = at_a_sum(2);
    const struct audit_commit *c = &h->in.audit->core.commit;
    uint64_t secret, at;
    uint8_t sig[SIGN_BYTES];
    struct hash32 draw;

    (void)state;
    assert_int_equal(h->pen.sign(h->pen.self, "loco-audit-1", c->hash.b,
                                 sizeof c->hash.b, sig),
                     0);
    hash_bytes("loco-audit-2", sig, sizeof sig, &draw);
    secret = hash32_u64(&draw);
    (void)rng_below(&secret, h->in.audit->core.gap_ms + 1); /* when to begin */
    do {
        at = rng_below(&secret, c->shape.cut.elements);
    } while (butterfly_owner(&c->shape, at) == c->rank);
    assert_int_equal(h->last_job[JOB_AUDIT].audit.offset,
                     at / c->shape.cut.block * c->shape.cut.block);
    hand_close(h);
}

static void report(struct hand *h, bool wrong)
{
    const struct job_audit *job = &h->last_job[JOB_AUDIT].audit;
    const struct local_event e = {.type = LOCAL_AUDITED,
                                  .audited = {.round = job->round,
                                              .offset = job->offset,
                                              .wrong = wrong}};

    hand_forget(h);
    hand_local(h, &e);
    hand_drain(h, 1);
}

static void a_wrong_sum_is_said_and_written_down(void **state)
{
    struct hand *h = at_a_sum(2);
    const struct audit_commit *c = &h->in.audit->core.commit;
    uint32_t before = h->n_jobs[JOB_EVIDENCE];
    struct accuse m;

    (void)state;
    report(h, true);
    assert_int_equal(h->in.audit->n_convicted, 1);
    assert_int_equal(h->in.ballot->convicts.n, 1);
    assert_int_equal(h->n_jobs[JOB_EVIDENCE], before + 1);
    for (uint32_t p = 0; p < 2; p++) {
        assert_true(hand_heard(h, p, MESSAGE_ACCUSE, 0, &m));
        assert_int_equal(m.round, c->round);
        assert_true(hash32_eq(&m.commit, &c->hash));
        assert_int_equal(m.offset, h->last_job[JOB_AUDIT].audit.offset);
    }
    assert_true(id_eq(&h->in.audit->convicted, &h->puppet[0].id) ||
                id_eq(&h->in.audit->convicted, &h->puppet[1].id));
    hand_close(h);
}

static void a_right_sum_is_not(void **state)
{
    struct hand *h = at_a_sum(2);
    struct accuse m;

    (void)state;
    report(h, false);
    assert_int_equal(h->in.audit->n_convicted, 0);
    assert_int_equal(h->in.ballot->convicts.n, 0);
    assert_int_equal(h->n_jobs[JOB_EVIDENCE], 0);
    assert_false(hand_heard(h, 0, MESSAGE_ACCUSE, 0, &m));
    hand_close(h);
}

/* Another branch has a round of the same number and other bytes in it: a report
 * that comes after a LOAD may be of those. */
static void after_a_load_no_report_convicts(void **state)
{
    struct hand *h = at_a_sum(2);
    const struct local_event e = {
        .type = LOCAL_LOADED, .loaded = hand_state(h->in.held->applied.round)};

    (void)state;
    hand_local(h, &e);
    hand_drain(h, 1);
    report(h, true);
    assert_int_equal(h->in.audit->n_convicted, 0);
    assert_int_equal(h->in.ballot->convicts.n, 0);
    hand_close(h);
}

/* The only other member waits, and our trainer hangs: the node leaves. */
static void after_the_view_is_left_no_report_convicts(void **state)
{
    struct hand *h = at_a_sum(1);
    const struct round *r = h->in.round;
    struct ready m = {.body = {.tokens = 64, .first_step = 5, .last_step = 10}};

    (void)state;
    hand_wait(h, 10);
    assert_true(h->training);
    h->training = false; /* TRAINED never comes */
    m.body.epoch = r->epoch;
    m.body.view = h->in.ballot->hash;
    m.body.round = r->round;
    m.body.state = r->state;
    m.body.offer.b[0] = 1;
    hand_sign(h, 0, &ready_body_schema, &m.body, m.sig);
    hand_say(h, 0, MESSAGE_READY, &m);
    for (int t = 0; t < 600 && h->in.ballot->have; t++) {
        hand_wait(h, 1000);
    }
    assert_false(h->in.ballot->have);
    assert_int_equal(h->n_jobs[JOB_AUDIT], 1);
    report(h, true);
    assert_int_equal(h->in.audit->n_convicted, 0);
    assert_int_equal(h->in.ballot->convicts.n, 0);
    hand_close(h);
}

/* Puppet 0 asks for moments of round 2 with that root; by which name they are
 * sent, 0: not. */
static uint64_t asks_for(struct hand *h, const struct hash32 *blocks)
{
    struct fetch ask = {.buffer = BUFFER_MOMENTS,
                        .index = 2,
                        .len = 16,
                        .attempt = 1,
                        .stream = STREAM_WORK};
    const struct action *a;

    blocks_offer(&h->self.id, 0, blocks, &ask.root);
    hand_forget(h);
    hand_say(h, 0, MESSAGE_FETCH, &ask);
    hand_drain(h, HAND_EVENTS);
    for (uint32_t k = 0;; k++) {
        a = hand_find(h, ACTION_SEND_SEG, k);
        if (a == NULL || a->segment.buffer == BUFFER_MOMENTS) {
            break;
        }
    }
    return a == NULL ? 0 : a->segment.name;
}

/* A lease that is undone here is in a commit all the same, if we slept: others
 * ask for what it ended with, though the next one begins with something else.
 */
static void moments_of_an_end_and_a_beginning_are_kept_beside(void **state)
{
    const struct hash32 ends = {{7}}, begins = {{8}}, others = {{9}};
    struct hand *h = hand_open(2);

    (void)state;
    h->terms.exchange = EXCHANGE_BUTTERFLY;
    h->terms.audits = h->terms.audits_work = h->terms.single_round = true;
    h->hashes_later = true;
    for (int t = 0; t < 600 && !h->training; t++) {
        hand_wait(h, 100);
    }
    h->trained.trained.ends = ends;
    for (int t = 0; t < 600 && h->n_applied == 0; t++) {
        hand_wait(h, 100);
    }
    h->applied.applied.moments = begins;
    hand_local(h, &h->applied);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->in.held->applied.round, 1);
    assert_int_equal(asks_for(h, &begins), hash32_u64(&begins));
    assert_int_equal(asks_for(h, &ends), hash32_u64(&ends));
    assert_int_equal(asks_for(h, &others), 0);
    hand_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_from_our_signature_of_the_commit),
        cmocka_unit_test(a_wrong_sum_is_said_and_written_down),
        cmocka_unit_test(a_right_sum_is_not),
        cmocka_unit_test(after_a_load_no_report_convicts),
        cmocka_unit_test(after_the_view_is_left_no_report_convicts),
        cmocka_unit_test(moments_of_an_end_and_a_beginning_are_kept_beside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
