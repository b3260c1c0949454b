/* audit_test.c - which blocks are drawn, whom they are asked of, and what
 * happens where somebody does not answer. */
#include <math.h>

#include "tests/unit/p2p/audits.h"

/* ---- draws --------------------------------------------------------------- */

static void each_other_contribution_is_asked_of_its_maker(void **state)
{
    struct fixture *f = *state;
    uint32_t seen = 0;

    begin(f, 77);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(audit_deadline(&f->a), f->now_ms); /* no time is known */
    tick(f, 10);
    assert_int_equal(f->n_asked, MEMBERS - 1);
    for (uint32_t k = 0; k < f->n_asked; k++) {
        const struct segment *s = &f->asked[k];

        seen |= 1U << s->lane;
        assert_true(id_eq(&s->peer, &s->maker));
        assert_int_equal(s->offset, f->asked[0].offset);
        assert_int_equal(s->offset % BLOCK, 0);
        assert_int_equal(s->len, s->offset == 1000 ? 1 : BLOCK);
        assert_int_not_equal(butterfly_owner(&f->c.shape, s->offset), RANK);
    }
    assert_int_equal(seen, 0x1f & ~(1U << RANK));
    assert_true(f->a.attempt > FIRST);
    assert_int_equal(audit_deadline(&f->a), f->now_ms + WAIT_MS);
    tick(f, 10);
    assert_int_equal(f->n_asked, MEMBERS - 1); /* once */
}

static void with_all_of_them_the_sum_is_repeated(void **state)
{
    struct fixture *f = *state;
    struct segment first;

    begin(f, 77);
    tick(f, 10);
    first = f->asked[0];
    all_arrive(f);
    assert_int_equal(f->job.round, 9);
    assert_int_equal(f->job.offset, first.offset);
    assert_int_equal(f->job.len, first.len);
    assert_int_equal(f->job.lanes, MEMBERS);
    assert_int_equal(f->job.lane, RANK);
    assert_true(f->job.scale == f->c.scale[RANK]);
    assert_true(id_eq(&f->job.maker, &f->self.id));
    assert_true(hash32_eq(&f->job.offer, &f->c.offer[RANK]));
    assert_int_equal(audit_deadline(&f->a), CORE_NEVER);
    tick(f, 10 * WAIT_MS);
    assert_int_equal(f->n_asked, 0); /* one block at a time */
    assert_int_equal(f->a.n_unanswered, 0);
}

static void
right_sums_are_followed_by_the_next_draw_until_all_are_made(void **s)
{
    struct fixture *f = *s;
    struct audit_block b;
    uint64_t last = 0;

    begin(f, 5);
    assert_int_equal(audit_draws(&f->c.shape), 3);
    for (uint32_t k = 0; k < 3; k++) {
        tick(f, 10);
        assert_true(f->a.attempt > last);
        last = f->a.attempt;
        all_arrive(f);
        assert_false(answer(f, false, &b));
        assert_false(answer(f, true, &b)); /* it has been answered */
    }
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(f->a.n_blocks, 3);
    assert_int_equal(f->a.n_wrong + f->a.n_false + f->a.n_unanswered, 0);
}

/* The machine keeps the contributions to that block for those who want to see,
 * so nothing else may be collected. */
static void after_a_wrong_sum_nothing_more_of_the_commit_is_looked_at(void **s)
{
    struct fixture *f = *s;
    struct audit_block b;

    begin(f, 5);
    tick(f, 10);
    all_arrive(f);
    assert_true(answer(f, true, &b));
    assert_int_equal(b.offset, f->job.offset);
    assert_int_equal(b.len, f->job.len);
    assert_int_equal(b.owner, butterfly_owner(&f->c.shape, b.offset));
    assert_int_equal(b.source, MEMBERS_NONE);
    assert_false(accuse(f, peer_of(0), 5, block_of(f, 2)));
    tick(f, 10);
    tick(f, WAIT_MS);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(f->a.n_wrong, 1);
    assert_int_equal(f->a.n_false, 0);
    f->c.round++;
    f->c.hash.b[0]++;
    begin(f, 6); /* but the next one is */
    tick(f, 10);
    assert_int_equal(f->n_asked, MEMBERS - 1);
}

static struct audit_block wrong_report(struct fixture *f,
                                       const struct local_event *e)
{
    struct audit_block b = {.len = 0};

    assert_false(audit_summed(&f->a, e, &b));
    return b;
}

static void reports_of_other_blocks_and_rounds_say_nothing(void **state)
{
    struct fixture *f = *state;
    struct audit_block b;
    struct local_event e;

    begin(f, 5);
    tick(f, 10);
    e = report_of(f, true, 0);
    e.audited.round = 9;
    e.audited.offset = f->asked[0].offset;
    (void)wrong_report(f, &e); /* not asked for yet */
    all_arrive(f);
    e = report_of(f, true, 0);
    e.audited.offset += BLOCK;
    (void)wrong_report(f, &e);
    e = report_of(f, true, 0);
    e.audited.round++;
    (void)wrong_report(f, &e);
    assert_int_equal(f->a.n_blocks, 0);
    assert_true(answer(f, true, &b));
}

static void what_the_machine_cannot_sum_is_unanswered(void **state)
{
    struct fixture *f = *state;
    struct local_event e;

    begin(f, 5);
    tick(f, 10);
    all_arrive(f);
    e = report_of(f, true, LOCO_ENOENT);
    (void)wrong_report(f, &e);
    assert_int_equal(f->a.n_unanswered, 1);
    assert_int_equal(f->a.n_blocks, 0);
    tick(f, 10);
    assert_int_equal(f->n_asked, MEMBERS - 1);
}

/* ---- who does not answer ------------------------------------------------- */

static void pieces_of_another_attempt_do_not_count(void **s)
{
    struct fixture *f = *s;
    struct segment late;

    begin(f, 5);
    tick(f, 10);
    late = f->asked[2];
    tick(f, WAIT_MS); /* ends one, and asks for the next */
    assert_int_equal(f->a.attempt, FIRST + 2);
    for (int k = 0; k < MEMBERS; k++) {
        const struct event_seg_done e = {.segment = late};

        audit_seg_done(&f->a, &e, &f->out);
    }
    assert_int_equal(f->a.missing, 0x1f & ~(1U << RANK));
}

/* What is not as announced, and a line that breaks, are asked for again. */
static void who_sends_something_else_is_asked_again(void **s)
{
    const int codes[] = {LOCO_EHASH, LOCO_ECLOSED, LOCO_ETIMEOUT};
    struct fixture *f = *s;
    uint64_t at;

    begin(f, 5);
    tick(f, 10);
    at = f->asked[0].offset;
    for (uint32_t k = 0; k < 3; k++) {
        arrive(f, k, codes[k]);
        assert_int_equal(f->n_cancels, k + 1);
        assert_int_equal(f->cancel.stream, STREAM_AUDIT);
        assert_int_equal(f->cancel.attempt, FIRST + 1 + k);
        assert_int_equal(f->n_asked, 0);
        assert_int_equal(f->a.n_unanswered, 0);
        assert_true(f->a.again);
        tick(f, 0);
        tick(f, WAIT_MS);
        assert_int_equal(f->asked[0].offset, at);
    }
}

/* ---- who is silent --------------------------------------------------------
 */

/* The answers of all but these (ranks, bits) come. */
static void all_but(struct fixture *f, uint32_t silent)
{
    for (uint32_t k = f->n_asked; k-- > 0;) {
        if (!(silent >> f->asked[k].seg & 1)) {
            arrive(f, k, 0);
        }
    }
}

static uint64_t silent_of(struct fixture *f, struct accuse *word, bool *says)
{
    return audit_take_silent(&f->a, word, says);
}

static void who_is_silent_is_known_and_said_once(void **state)
{
    struct fixture *f = *state;
    struct accuse word;
    uint64_t at;
    bool says;

    begin(f, 5);
    tick(f, 10);
    at = f->asked[0].offset;
    all_but(f, 1U << 3);
    tick(f, WAIT_MS - 1);
    assert_int_equal(silent_of(f, &word, &says), 0);
    assert_false(says);
    tick(f, 1);
    assert_int_equal(f->a.n_unanswered, 1);
    assert_int_equal(silent_of(f, &word, &says), 1U << 3);
    assert_true(says);
    assert_int_equal(word.round, 9);
    assert_true(hash32_eq(&word.commit, &f->c.hash));
    assert_int_equal(word.offset, at);
    assert_int_equal(word.silent, 4);
    assert_int_equal(silent_of(f, &word, &says), 0);
    assert_false(says);
    all_but(f, 1U << 0 | 1U << 4); /* of the next draw */
    tick(f, WAIT_MS);
    assert_int_equal(silent_of(f, &word, &says), 1U << 0 | 1U << 4);
    assert_false(says);
}

/* Then the fault may be ours. */
static void of_more_than_half_nobody_is_said_to_be_silent(void **state)
{
    struct fixture *f = *state;
    struct accuse word;
    bool says;

    begin(f, 5);
    tick(f, 10);
    all_but(f, 1U << 0 | 1U << 3 | 1U << 4);
    tick(f, WAIT_MS);
    assert_int_equal(f->a.n_unanswered, 1);
    assert_int_equal(silent_of(f, &word, &says), 0);
    assert_false(says);
}

static void who_refuses_to_the_end_or_stays_away_is_silent(void **state)
{
    struct fixture *f = *state;
    struct accuse word;
    bool says;

    begin(f, 5);
    for (uint32_t k = 0; k < 6; k++) {
        tick(f, 0);
        tick(f, WAIT_MS);
        refuse(f, peer_of(3), f->a.attempt, 3);
    }
    assert_int_equal(silent_of(f, &word, &says), 1U << 3);
    assert_true(says);
    members_link_down(&f->m, (uint32_t)peer_of(4) + 1, f->now_ms);
    assert_int_equal(silent_of(f, &word, &says), 0);
    for (uint32_t k = 0; k < 4; k++) {
        tick(f, 0);
        tick(f, WAIT_MS);
        assert_int_equal(silent_of(f, &word, &says), 0);
    }
    for (uint32_t k = 0; k < 3; k++) {
        tick(f, 0);
        tick(f, WAIT_MS);
    }
    assert_int_equal(silent_of(f, &word, &says), 1U << 4);
}

/* ---- what others say of who is silent -------------------------------------
 */

static bool
unserved(struct fixture *f, int peer, uint64_t offset, uint32_t rank)
{
    const struct accuse m = {
        .commit = f->c.hash, .offset = offset, .silent = (uint8_t)(rank + 1)};

    return audit_on_accuse(&f->a, f->row[peer], &m);
}

/* The block is asked for of those that made it: it is answered, and the sum is
 * repeated; or it is not, and the member is silent for us, too. Whoever said so
 * is not believed. */
static void who_is_said_to_be_silent_is_asked(void **state)
{
    struct fixture *f = *state;
    struct audit_block b;
    struct accuse word;
    bool says;

    for (int silent = 0; silent < 2; silent++) {
        f->c.hash.b[0] = (uint8_t)(5 + silent);
        begin_idle(f);
        (void)silent_of(f, &word, &says);
        f->a.known = 0;
        assert_true(unserved(f, peer_of(2), block_of(f, 3), 4));
        assert_false(unserved(f, peer_of(2), block_of(f, 3), 4)); /* again */
        tick(f, 1);
        assert_int_equal(f->a.block.source, MEMBERS_NONE);
        assert_int_equal(f->asked[0].offset, block_of(f, 3));
        if (silent) {
            all_but(f, 1U << 4);
            tick(f, WAIT_MS);
            assert_int_equal(silent_of(f, &word, &says), 1U << 4);
        } else {
            all_arrive(f);
            assert_true(answer(f, true, &b));
            assert_int_equal(b.owner, 3);
            assert_int_equal(silent_of(f, &word, &says), 0);
        }
        assert_false(says); /* they know */
    }
}

static void words_that_lead_nowhere_are_dropped(void **state)
{
    struct fixture *f = *state;
    struct accuse word;
    bool says;

    begin_idle(f);
    (void)silent_of(f, &word, &says);
    f->a.known = 0;
    assert_false(unserved(f, STRANGER, block_of(f, 3), 4));
    assert_false(unserved(f, peer_of(2), block_of(f, 3), RANK)); /* ourselves */
    assert_false(unserved(f, peer_of(2), block_of(f, 3), 2));    /* itself */
    assert_false(unserved(f, peer_of(2), block_of(f, 3), MEMBERS));
    assert_false(
        unserved(f, peer_of(2), block_of(f, 2), 4)); /* its own slice */
    assert_false(unserved(f, peer_of(2), block_of(f, RANK), 4));
    assert_false(unserved(f, peer_of(2), 1ULL << 40, 4));
    assert_int_equal(f->a.unserved.waiting, 0);
    f->a.known = 1U << 4; /* we have seen it */
    assert_true(unserved(f, peer_of(2), block_of(f, 3), 4));
    tick(f, 1);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(f->a.unserved.waiting, 0);
    assert_int_equal(f->a.unserved_left, audit_draws(&f->c.shape));
}

/* No more blocks are looked at than are drawn: four members say that the fifth
 * is silent, and it answers nobody. */
static void few_words_are_looked_at(void **state)
{
    struct fixture *f = *state;
    uint64_t before;

    shape(f, 501);
    assert_int_equal(audit_draws(&f->c.shape), 1);
    begin_idle(f);
    f->a.known = 0;
    before = f->a.attempt;
    for (uint32_t i = 0; i < MEMBERS; i++) {
        if (i != RANK && i != 3) {
            assert_true(unserved(f, peer_of(i), block_of(f, 3), 3));
        }
    }
    for (int k = 0; k < 20; k++) {
        tick(f, WAIT_MS);
        f->a.known = 0;
    }
    assert_int_equal(f->a.attempt - before, 1);
}

static void next_commit(struct fixture *f)
{
    f->c.round++;
    f->c.hash.b[0]++;
    begin(f, f->c.round);
}

/* A word about a silent member that answers us takes the place of one that is
 * true, where few are looked at: the next words of who said so wait for those
 * of the others. */
static void words_of_who_was_wrong_come_last(void **state)
{
    struct fixture *f = *state;
    struct audit_block b;

    shape(f, 501); /* one is looked at */
    begin_idle(f);
    assert_true(unserved(f, peer_of(2), block_of(f, 3), 4));
    tick(f, 1);
    all_arrive(f);
    assert_false(answer(f, false, &b));
    for (int other = 0; other < 2; other++) {
        next_commit(f);
        tick(f, 1);
        all_arrive(f); /* of our own draw */
        assert_false(answer(f, false, &b));
        assert_true(unserved(f, peer_of(2), block_of(f, 3), 4));
        tick(f, 1);
        assert_int_equal(f->n_asked, 0);
        assert_int_equal(audit_deadline(&f->a), f->now_ms - 2 + 2 * WAIT_MS);
        if (other) {
            assert_true(unserved(f, peer_of(3), block_of(f, 4), 0));
            tick(f, 1);
            assert_int_equal(f->asked[0].offset, block_of(f, 4));
            all_arrive(f);
            assert_true(answer(f, true, &b));
        } else { /* nobody else says anything */
            tick(f, 2 * WAIT_MS - 2);
            assert_int_equal(f->asked[0].offset, block_of(f, 3));
            all_but(f, 1U << 4);
            tick(f, WAIT_MS);
        }
    }
    for (int k = 0; k < 2; k++) { /* until its rest is over */
        next_commit(f);
    }
    tick(f, 1);
    all_arrive(f);
    assert_false(answer(f, false, &b));
    assert_true(unserved(f, peer_of(2), block_of(f, 3), 4));
    tick(f, 1);
    assert_int_equal(f->n_asked, MEMBERS - 1);
}

/* ---- when -----------------------------------------------------------------
 */

static void draws_are_spread_over_half_of_a_round(void **state)
{
    struct fixture *f = *state;
    uint64_t gap = 24000 / 2 / 3, first;
    struct audit_block b;

    f->round_ms = 24000;
    begin(f, 5);
    assert_int_equal(f->a.patience_ms, 24000 / 8);
    first = audit_deadline(&f->a);
    assert_in_range(first, f->now_ms, f->now_ms + gap);
    tick(f, first - f->now_ms);
    all_arrive(f);
    assert_false(answer(f, false, &b));
    assert_int_equal(audit_deadline(&f->a), first + gap);
    tick(f, gap - 1);
    assert_int_equal(f->n_asked, 0);
    tick(f, 1);
    assert_int_equal(f->n_asked, MEMBERS - 1);
}

/* At most WAIT_MS, and not less than an 8th of that. */
static void patience_follows_from_the_time_of_a_round(void **state)
{
    const uint64_t rounds[][2] = {{0, WAIT_MS},
                                  {1, WAIT_MS / 8},
                                  {8 * WAIT_MS / 2, WAIT_MS / 2},
                                  {80ULL * WAIT_MS, WAIT_MS}};
    struct fixture *f = *state;

    for (size_t k = 0; k < sizeof rounds / sizeof rounds[0]; k++) {
        f->round_ms = rounds[k][0];
        f->a.took_ms = 0;
        begin(f, 5);
        assert_int_equal(f->a.patience_ms, rounds[k][1]);
    }
}

/* Who holds up one round and lies in the next would meet few draws. */
static void one_slow_round_spreads_no_draws(void **state)
{
    const uint64_t rounds[] = {24000, 240000, 24000, 240000, 240000};
    struct fixture *f = *state;

    for (uint32_t k = 0; k < 5; k++) {
        f->round_ms = rounds[k];
        begin(f, 5);
        assert_int_equal(f->a.gap_ms, (k < 4 ? 24000 : 240000) / 2 / 3);
        assert_int_equal(f->a.patience_ms, k < 4 ? 24000 / 8 : WAIT_MS);
    }
}

/* ---- who refuses ----------------------------------------------------------
 */

/* So does one that is away. Who holds the result first has nobody yet that
 * serves. */
static void
who_refuses_is_asked_again_ever_more_rarely_and_then_no_more(void **state)
{
    struct fixture *f = *state;
    uint64_t at;

    begin(f, 5);
    tick(f, 10);
    at = f->asked[0].offset;
    for (uint32_t k = 0; k < 5; k++) {
        uint64_t rest = (WAIT_MS << k) / 32;

        refuse(f, peer_of(3), f->a.attempt, 3);
        assert_int_equal(f->n_cancels, k + 1);
        tick(f, 0);
        assert_int_equal(audit_deadline(&f->a), f->now_ms + rest);
        tick(f, rest - 1);
        assert_int_equal(f->n_asked, 0);
        tick(f, 1);
        assert_int_equal(f->n_asked, MEMBERS - 1);
        assert_int_equal(f->asked[0].offset, at);
        assert_int_equal(f->a.attempt, FIRST + 2 + k);
    }
    assert_int_equal(f->a.n_unanswered, 0);
    assert_int_equal(f->a.left, 2);
    refuse(f, peer_of(3), f->a.attempt, 3);
    assert_int_equal(f->a.n_unanswered, 1);
    tick(f, 1);
    assert_int_equal(f->n_asked, MEMBERS - 1); /* the next draw */
    assert_int_equal(f->a.left, 1);
}

/* An accusation does not wait for a draw that was put off. */
static void an_accusation_is_looked_at_while_a_draw_waits(void **state)
{
    struct fixture *f = *state;
    struct audit_block b;
    uint64_t at;

    begin(f, 5);
    tick(f, 10);
    at = f->asked[0].offset;
    refuse(f, peer_of(3), f->a.attempt, 3);
    tick(f, 1);
    assert_int_equal(f->n_asked, 0);
    assert_true(accuse(f, peer_of(4), 5, block_of(f, 2)));
    tick(f, 1);
    assert_int_equal(f->a.block.source, f->row[peer_of(4)]);
    all_arrive(f);
    assert_false(answer(f, false, &b));
    tick(f, WAIT_MS / 32);
    assert_int_equal(f->asked[0].offset, at);
    assert_int_equal(f->a.block.source, MEMBERS_NONE);
}

static void nobody_refuses_for_somebody_else(void **state)
{
    struct fixture *f = *state;

    begin(f, 5);
    tick(f, 10);
    refuse(f, peer_of(3), FIRST + 1, 2);
    refuse(f, STRANGER, FIRST + 1, 2);
    refuse(f, peer_of(2), FIRST, 2);
    refuse(f, peer_of(2), FIRST + 2, 2);
    refuse(f, peer_of(2), FIRST + 1, RANK);
    refuse(f, peer_of(2), FIRST + 1, MEMBERS);
    refuse(f, peer_of(2), FIRST + 1, 64 + 2);
    arrive(f, 0, 0); /* rank 0 */
    refuse(f, peer_of(0), FIRST + 1, 0);
    assert_int_equal(f->n_cancels, 0);
    assert_int_equal(f->a.n_unanswered, 0);
    refuse(f, peer_of(2), FIRST + 1, 2);
    assert_int_equal(f->n_cancels, 1);
    assert_true(f->a.again);
}

static void without_a_link_to_each_member_nothing_is_asked(void **state)
{
    struct fixture *f = *state;
    uint32_t gone = (uint32_t)peer_of(4);

    begin(f, 5);
    members_link_down(&f->m, gone + 1, f->now_ms);
    for (int k = 0; k < 5; k++) {
        tick(f, 2 * WAIT_MS);
        assert_int_equal(f->n_asked, 0);
        assert_int_equal(f->a.n_unanswered, 0);
        assert_true(f->a.again);
    }
    linked_up(&f->m, &f->peer[gone], gone + 1, f->now_ms, &f->out);
    f->out.n = f->out.n_bytes = 0;
    tick(f, 2 * WAIT_MS);
    assert_int_equal(f->n_asked, MEMBERS - 1);
    assert_int_equal(f->a.n_unanswered, 0);
}

static void a_second_commit_gives_up_the_first(void **state)
{
    struct fixture *f = *state;
    struct local_event old;
    struct audit_block b;

    begin(f, 5);
    tick(f, 10);
    assert_true(accuse(f, peer_of(0), 5, block_of(f, 2)));
    f->c.round = 10;
    f->c.hash.b[0] = 6;
    begin(f, 6);
    assert_int_equal(f->n_cancels, 1);
    assert_int_equal(f->cancel.attempt, FIRST + 1);
    assert_int_equal(f->a.left, 3);
    tick(f, 10);
    assert_int_equal(f->asked[0].index, 10);
    assert_int_equal(f->a.block.source, MEMBERS_NONE); /* nobody is accused */
    all_arrive(f);
    old = report_of(f, true, 0);
    f->c.round = 11;
    begin(f, 7); /* while it is summed */
    assert_int_equal(f->n_cancels, 1);
    tick(f, 10);
    all_arrive(f);
    (void)wrong_report(f, &old);
    assert_int_equal(f->a.n_wrong, 0);
    assert_false(answer(f, false, &b));
    assert_true(accuse(f, peer_of(0), 6, block_of(f, 2))); /* heard anew */
}

static void who_leaves_the_group_asks_no_more(void **state)
{
    struct fixture *f = *state;

    begin(f, 5);
    tick(f, 10);
    assert_true(accuse(f, peer_of(0), 5, block_of(f, 2)));
    audit_stop(&f->a, &f->out);
    collect(f);
    assert_int_equal(f->n_cancels, 1);
    tick(f, WAIT_MS);
    assert_int_equal(f->n_asked, 0);
    assert_false(accuse(f, peer_of(2), 5, block_of(f, 3)));
    assert_int_equal(f->a.n_unanswered, 0);
}

/* ---- which blocks -------------------------------------------------------- */

static void draws_cost_three_parts_in_a_hundred_of_a_round(void **state)
{
    static const struct {
        uint64_t elements;
        uint32_t block, n, draws;
    } some[] = {
        {1, 1024, 64, 1},
        {163, BLOCK, 5, 1},
        {329, BLOCK, 5, 1},
        {660, BLOCK, 5, 2},
        {1001, BLOCK, 5, 3},
        {5300, BLOCK, 5, AUDIT_DRAWS_MAX},
        {135000000, 4096, 64, 16},
        {1ULL << 40, 4096, 2, AUDIT_DRAWS_MAX},
        {17 * 33 * 1024, 1024, 2, 16},
        {15 * 33 * 1024, 1024, 2, 15},
    };

    (void)state;
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        const struct butterfly_shape s = {.cut = {.elements = some[i].elements,
                                                  .block = some[i].block,
                                                  .n = some[i].n}};
        uint64_t draws = audit_draws(&s);

        assert_int_equal(draws, some[i].draws);
        assert_true(draws == 1 ||
                    draws * s.cut.n * s.cut.block * 33 <= 2 * s.cut.elements);
    }
}

/* How often each block is drawn first, in so many commits. */
static void
count_draws(struct fixture *f, uint32_t commits, uint64_t seed, uint32_t *times)
{
    for (uint32_t k = 0; k < commits; k++) {
        begin(f, rng_next(&seed));
        tick(f, 1);
        assert_int_equal(f->n_asked, MEMBERS - 1);
        times[f->asked[0].offset / BLOCK]++;
    }
}

/* Chi-square beside draws by element; 6 standard deviations of it are allowed.
 * A generator that leaves out one block of a hundred is far outside. */
static void draws_are_spread_over_all_blocks_of_others(void **state)
{
    const uint64_t sizes[] = {163, 403};
    struct fixture *f = *state;

    for (uint32_t rank = 0; rank < MEMBERS; rank += 2) {
        for (int k = 0; k < 2; k++) {
            uint32_t times[128] = {0}, all = 10000, blocks = 0;
            double others = 0, chi = 0;

            f->c.rank = rank;
            f->c.member[RANK] = f->peer[STRANGER].id;
            shape(f, sizes[k]);
            count_draws(f, all, 1000 * rank + sizes[k], times);
            for (uint64_t at = 0; at < sizes[k]; at++) {
                others += butterfly_owner(&f->c.shape, at) != rank;
            }
            for (uint64_t at = 0; at < sizes[k]; at += BLOCK) {
                uint64_t len = sizes[k] - at < BLOCK ? sizes[k] - at : BLOCK;
                double want = all * (double)len / others;

                if (butterfly_owner(&f->c.shape, at) == rank) {
                    assert_int_equal(times[at / BLOCK], 0);
                    continue;
                }
                chi += (times[at / BLOCK] - want) * (times[at / BLOCK] - want) /
                       want;
                blocks++;
            }
            assert_true(blocks > 20);
            assert_true(chi < blocks - 1 + 6 * sqrt(2.0 * (blocks - 1)));
            assert_true(chi > 0.3 * blocks); /* nor too even to be drawn */
        }
    }
}

/* Whoever does not know the number cannot say where it is looked. */
static void other_numbers_draw_other_blocks(void **state)
{
    struct fixture *f = *state;
    uint32_t same = 0;

    for (uint64_t secret = 1; secret <= 100; secret++) {
        uint64_t first;

        begin(f, secret);
        tick(f, 1);
        first = f->asked[0].offset;
        begin(f, secret + 1000);
        tick(f, 1);
        same += f->asked[0].offset == first;
        begin(f, secret);
        tick(f, 1);
        assert_int_equal(f->asked[0].offset, first); /* of nothing else */
    }
    assert_true(same < 10); /* of 250 blocks */
}

static void who_owns_all_has_nothing_to_look_at(void **state)
{
    struct fixture *f = *state;

    for (uint32_t i = 0; i < MEMBERS; i++) {
        f->c.shape.share[i] = i == RANK;
    }
    begin(f, 5);
    tick(f, 10);
    assert_int_equal(f->n_asked, 0);
    assert_int_equal(f->a.left, 0);
    assert_int_equal(f->a.n_unanswered, 0);
}

int main(void)
{
#define WITH(test)                                                             \
    cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)
    const struct CMUnitTest tests[] = {
        WITH(each_other_contribution_is_asked_of_its_maker),
        WITH(with_all_of_them_the_sum_is_repeated),
        WITH(right_sums_are_followed_by_the_next_draw_until_all_are_made),
        WITH(after_a_wrong_sum_nothing_more_of_the_commit_is_looked_at),
        WITH(reports_of_other_blocks_and_rounds_say_nothing),
        WITH(what_the_machine_cannot_sum_is_unanswered),
        WITH(pieces_of_another_attempt_do_not_count),
        WITH(who_sends_something_else_is_asked_again),
        WITH(who_is_silent_is_known_and_said_once),
        WITH(of_more_than_half_nobody_is_said_to_be_silent),
        WITH(who_refuses_to_the_end_or_stays_away_is_silent),
        WITH(who_is_said_to_be_silent_is_asked),
        WITH(words_that_lead_nowhere_are_dropped),
        WITH(few_words_are_looked_at),
        WITH(words_of_who_was_wrong_come_last),
        WITH(draws_are_spread_over_half_of_a_round),
        WITH(patience_follows_from_the_time_of_a_round),
        WITH(one_slow_round_spreads_no_draws),
        WITH(who_refuses_is_asked_again_ever_more_rarely_and_then_no_more),
        WITH(an_accusation_is_looked_at_while_a_draw_waits),
        WITH(nobody_refuses_for_somebody_else),
        WITH(without_a_link_to_each_member_nothing_is_asked),
        WITH(a_second_commit_gives_up_the_first),
        WITH(who_leaves_the_group_asks_no_more),
        WITH(draws_cost_three_parts_in_a_hundred_of_a_round),
        WITH(draws_are_spread_over_all_blocks_of_others),
        WITH(other_numbers_draw_other_blocks),
        WITH(who_owns_all_has_nothing_to_look_at),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
