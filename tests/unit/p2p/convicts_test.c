/* convicts_test.c - members that lied, by proofs that others hold: who goes,
 * who stays, and how often that is asked. */
#include "p2p/round/convicts.h"
#include "tests/unit/p2p/ballots.h"

#define OWNER 1 /* of the ballot whose value is judged */

/* ---- the list ----------------------------------------------------------- */

static struct peer_id id_of(uint32_t i)
{
    struct peer_id id = {.b = {1, (uint8_t)i}};

    return id;
}

static void the_oldest_convict_makes_room(void **state)
{
    struct convicts c = {.n = 0};
    struct peer_id id;

    (void)state;
    for (uint32_t i = 0; i <= CONVICTS_MAX; i++) {
        id = id_of(i);
        assert_false(convicts_has(&c, &id));
        assert_true(convicts_add(&c, &id));
        assert_false(convicts_add(&c, &id)); /* nothing new */
        assert_true(convicts_has(&c, &id));
    }
    assert_int_equal(c.n, CONVICTS_MAX);
    id = id_of(0);
    assert_false(convicts_has(&c, &id));
    id = id_of(1);
    assert_true(convicts_has(&c, &id));
}

static void convicts_are_named_by_their_place_in_a_view(void **state)
{
    struct convicts c = {.n = 0};
    struct peer_id ids[VIEW_MEMBERS_MAX], out = id_of(99);

    (void)state;
    for (uint32_t i = 0; i < VIEW_MEMBERS_MAX; i++) {
        ids[i] = id_of(i);
    }
    assert_int_equal(convicts_mask(&c, ids, VIEW_MEMBERS_MAX), 0);
    assert_true(convicts_add(&c, &out)); /* not in the view */
    assert_true(convicts_add(&c, &ids[63]));
    assert_true(convicts_add(&c, &ids[2]));
    assert_true(convicts_mask(&c, ids, VIEW_MEMBERS_MAX) == (1ULL << 63 | 4));
    assert_int_equal(convicts_mask(&c, ids, 2), 0);
}

/* ---- the value ---------------------------------------------------------- */

static uint64_t bit_of(const struct cast *c, int i)
{
    int at = view_index(&c->a[0]->ballot.cert.body, &c->a[i]->identity.id);

    assert_true(at >= 0);
    return 1ULL << at;
}

/* A proposal of actor 1: all promise, those in `by` (bits of actors) convict
 * those in `whom`, and the value has those in `stay`. */
static struct accept *accept_where(const struct cast *c,
                                   uint64_t ballot,
                                   uint32_t by,
                                   uint32_t whom,
                                   uint32_t stay)
{
    struct accept *a = calloc(1, sizeof *a);
    struct prepare p = prepare_of(c, ballot);
    struct proposal *v = &a->of.proposal;
    uint64_t mask = 0;

    assert_non_null(a);
    accept_by(c, ballot, stay, NULL, a);
    v->n_promises = promises_of(c, &p, (1U << c->n) - 1, NULL, v->promises);
    for (uint32_t i = 0; i < c->n; i++) {
        mask |= whom >> i & 1 ? bit_of(c, (int)i) : 0;
    }
    for (uint32_t k = 0; k < v->n_promises; k++) {
        int i = actor_of(c, v->promises[k].member);

        if (by >> i & 1) {
            v->promises[k].said.convicted = mask;
            sign_promise(c, i, &p, &v->promises[k]);
        }
    }
    return a;
}

/* Whether actor 0 signs it. What it does not sign is not what follows from the
 * promises. */
static bool signs(uint32_t n, uint32_t by, uint32_t whom, uint32_t stay)
{
    struct cast *c = cast_open(n);
    struct prepare p = prepare_of(c, ballot_of(c, OWNER, 1));
    struct accept *a = accept_where(c, p.ballot, by, whom, stay);
    const struct ballot *b = &c->a[0]->ballot;
    bool does;

    say(c, OWNER, 0, MESSAGE_PREPARE, &p);
    say(c, OWNER, 0, MESSAGE_ACCEPT, a);
    does = b->has_accepted;
    assert_int_equal(b->malformed, !does);
    free(a);
    cast_close(c);
    return does;
}

static void more_than_half_of_all_put_one_out(void **state)
{
    (void)state;
    for (uint32_t n = 3; n <= 6; n++) {
        uint32_t all = (1U << n) - 1, last = 1U << (n - 1);

        for (uint32_t k = 0; k < n; k++) {
            uint32_t by = (1U << k) - 1; /* without the last */
            bool out = 2 * k > n;

            assert_int_equal(signs(n, by, last, all), !out);
            assert_int_equal(signs(n, by, last, all & ~last), out);
        }
    }
}

/* Of two equal halves elsewhere the one with the lowest id is more than half:
 * not where it puts others out. */
static void no_half_puts_one_out(void **state)
{
    (void)state;
    for (uint32_t by = 0; by < 15; by++) { /* of actors 0 to 2, and 3 */
        bool half = __builtin_popcount(by) == 2;

        if (half) {
            assert_true(signs(4, by, 8, 15));
            assert_false(signs(4, by, 8, 7));
        }
    }
}

static void ones_word_against_itself_counts(void **state)
{
    (void)state;
    assert_true(signs(4, 1 | 2 | 8, 8, 7));
    assert_false(signs(4, 1 | 2 | 8, 8, 15));
}

/* All say that three of five lied: then two would be the view. */
static void who_stays_is_more_than_half(void **state)
{
    (void)state;
    assert_true(signs(5, 31, 4 | 8 | 16, 31));
    assert_false(signs(5, 31, 4 | 8 | 16, 3));
    assert_true(signs(5, 31, 8 | 16, 7)); /* of two they go */
}

/* ---- what members do ---------------------------------------------------- */

static void convict(struct cast *c, uint32_t by, int whom)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (by >> i & 1) {
            ballot_convict(&c->a[i]->ballot, &c->a[whom]->identity.id);
        }
    }
}

static const struct view_body *view_at(const struct cast *c, int i)
{
    return &c->a[i]->ballot.cert.body;
}

static bool is_in(const struct cast *c, int i, int whom)
{
    return view_index(view_at(c, i), &c->a[whom]->identity.id) >= 0;
}

static void whom_enough_hold_a_proof_against_goes(void **state)
{
    (void)state;
    for (uint32_t n = 3; n <= 6; n++) {
        for (int whom = 0; whom < (int)n; whom++) {
            struct cast *c = cast_open(n);
            int other = whom == 0 ? 1 : 0;

            convict(c, ~(1U << whom), whom);
            cast_wait(c, 10000);
            assert_int_equal(view_at(c, other)->epoch, 2); /* one change */
            assert_int_equal(view_at(c, other)->n_members, n - 1);
            assert_false(is_in(c, other, whom));
            cast_close(c);
        }
    }
}

/* As if so many rounds were committed, and as if not. */
static void later(struct cast *c, int rounds)
{
    for (uint32_t i = 0; i < c->n; i++) {
        c->a[i]->known += (uint64_t)(int64_t)rounds;
    }
}

/* A change of view for each that gets the proof, and then no more. */
static void half_of_them_ask_once_each(void **state)
{
    (void)state;
    for (uint32_t n = 4; n <= 6; n += 2) {
        struct cast *c = cast_open(n);

        for (uint32_t k = 0; k < n / 2; k++) {
            convict(c, 1U << k, (int)n - 1);
            cast_wait(c, 10000);
            assert_int_equal(view_at(c, 0)->epoch, 2 + k);
            convict(c, 1U << k, (int)n - 1); /* again: nothing new */
            later(c, 100);
            cast_wait(c, 60000);
            later(c, -100);
            assert_int_equal(view_at(c, 0)->epoch, 2 + k);
        }
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(view_at(c, (int)i)->n_members, n);
            assert_false(c->a[i]->ballot.frozen);
            assert_int_equal(c->a[i]->ballot.want, BALLOT_WANT_NOTHING);
        }
        cast_close(c);
    }
}

/* Three of six said so, in vain; when another one is gone they are enough. */
static void who_were_half_ask_again_when_they_are_more(void **state)
{
    struct cast *c = cast_open(6);

    (void)state;
    convict(c, 7, 5);
    cast_wait(c, 10000);
    assert_true(is_in(c, 0, 5));
    cast_lose(c, 4);
    cast_wait(c, 20000);
    assert_int_equal(view_at(c, 0)->n_members, 4);
    assert_false(is_in(c, 0, 5));
    assert_false(is_in(c, 0, 4));
    cast_close(c);
}

/* Who asks pays, so it asks no more than others would hear. */
static void a_holder_without_credit_does_not_ask(void **state)
{
    struct cast *c = cast_open(4);
    struct ballot *b = &c->a[0]->ballot;

    (void)state;
    for (int k = 0; k < ASKING_AT_ONCE; k++) {
        asking_charge(&b->asks, b->opt.public_key, c->a[0]->known);
    }
    convict(c, 1, 3);
    cast_wait(c, 20000);
    assert_int_equal(b->cert.body.epoch, 1);
    assert_false(b->frozen);
    cast_close(c);
}

/* Its ballots are nobody's turn: who is asked is somebody else. */
static bool no_suspect_to_3(const struct letter *l)
{
    assert_false(l->type == MESSAGE_SUSPECT && l->to == 3 && l->from == 0);
    return l->type != MESSAGE_SUSPECT; /* nobody answers */
}

static void the_convict_is_not_asked_for_a_view(void **state)
{
    struct cast *c = cast_open(4);
    uint64_t before = c->a[0]->ballot.next_ballot;

    (void)state;
    c->drop = no_suspect_to_3;
    convict(c, 1, 3);
    cast_wait(c, 60000);
    assert_true(c->a[0]->ballot.next_ballot > before + 8);
    cast_close(c);
}

/* ---- coming back -------------------------------------------------------- */

static struct join join_of(const struct cast *c)
{
    struct join j = {.body = {.run = c->a[0]->ballot.opt.run}};

    j.body.view = c->a[0]->ballot.hash;
    j.body.commit = c->a[0]->commit;
    for (uint32_t i = 0; i < c->n; i++) {
        j.body.linked[j.body.n_linked++] =
            (uint32_t)(id_u64(&c->a[i]->identity.id) >> 32);
    }
    assert_int_equal(message_sign(&c->a[CAST_STRANGE]->signer,
                                  &join_body_schema, &j.body, j.sig),
                     0);
    return j;
}

/* Members of the view some time after a stranger asked five to let it in. */
static uint32_t members_after_join(uint32_t convicted_by, uint64_t *epoch)
{
    struct cast *c = cast_open(5);
    struct join j = join_of(c);
    uint32_t n;

    convict(c, convicted_by, CAST_STRANGE);
    for (int t = 0; t < 4; t++) {
        for (int i = 0; i < 5; i++) {
            ballot_joiner_add(&c->a[i]->ballot, row_of(c, i, CAST_STRANGE), &j,
                              0, &j.body.commit, c->now_ms);
        }
        cast_wait(c, 5000);
    }
    n = view_at(c, 0)->n_members;
    *epoch = view_at(c, 0)->epoch;
    cast_close(c);
    return n;
}

static void who_holds_the_proof_lets_it_in_no_more(void **state)
{
    uint64_t epoch;

    (void)state;
    assert_int_equal(members_after_join(0, &epoch), 6);
    assert_int_equal(members_after_join(31, &epoch), 5);
    assert_int_equal(epoch, 1); /* nobody proposes it */
    for (uint32_t without = 0; without < 5; without++) {
        /* Four of five hold it, each other one may own the ballot. */
        assert_int_equal(members_after_join(31 & ~(1U << without), &epoch), 5);
    }
    assert_int_equal(members_after_join(7, &epoch), 5);
}

/* Three members, and the stranger that is on probation. */
static struct cast *with_probation(void)
{
    struct cast *c = cast_open(3);
    struct join j = join_of(c);

    for (int i = 0; i < CAST_MAX; i++) {
        ballot_configure(&c->a[i]->ballot, FORK_MS, EXCHANGE_RING, 3);
    }
    for (int i = 0; i < 3; i++) {
        ballot_joiner_add(&c->a[i]->ballot, row_of(c, i, CAST_STRANGE), &j, 0,
                          &j.body.commit, c->now_ms);
    }
    cast_wait(c, 10000);
    confirm(c, CAST_STRANGE);
    assert_int_equal(view_at(c, 0)->n_members, 4);
    assert_int_equal(view_n_full(view_at(c, 0)), 3);
    return c;
}

static void the_word_of_who_is_on_probation_does_not_count(void **state)
{
    (void)state;
    for (int counts = 0; counts < 2; counts++) {
        struct cast *c = with_probation();

        convict(c, counts ? 3 : 1, 2);
        ballot_convict(&c->a[CAST_STRANGE]->ballot, &c->a[2]->identity.id);
        cast_wait(c, 10000);
        assert_int_equal(view_at(c, 0)->epoch, 3);
        assert_int_equal(is_in(c, 0, 2), !counts); /* 1 of 3; 2 of 3 */
        cast_close(c);
    }
}

/* Between two rounds: it ends none by going. */
static void a_convict_on_probation_goes(void **state)
{
    (void)state;
    for (uint32_t by = 1; by < 8; by += 2) {
        struct cast *c = with_probation();

        convict(c, by, CAST_STRANGE);
        for (int i = 0; i < 3; i++) {
            struct ballot_context ctx = context(c, i);

            ballot_tick(&c->a[i]->ballot, &ctx);
            assert_int_not_equal(c->a[i]->ballot.want, BALLOT_WANT_CHANGE);
        }
        ballot_want(&c->a[0]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
        cast_wait(c, 10000);
        assert_int_equal(is_in(c, 0, CAST_STRANGE), by == 1);
        cast_close(c);
    }
}

static void nobody_founds_with_a_convict(void **state)
{
    (void)state;
    for (int held = 0; held < 2; held++) {
        struct cast *c = cast_open(3);
        struct ballot *b = &c->a[CAST_STRANGE]->ballot;
        struct prepare p = {.mode = VIEW_FOUND};

        if (held) {
            ballot_convict(b, &c->a[1]->identity.id);
        }
        p.ballot = 1ULL << 16 | (id_u64(&c->a[1]->identity.id) & 0xffff);
        say(c, 1, CAST_STRANGE, MESSAGE_PREPARE, &p);
        assert_int_equal(ballot_founds(b, row_of(c, CAST_STRANGE, 1)), !held);
        cast_close(c);
    }
}

static void a_ballot_that_begins_anew_knows_its_convicts(void **state)
{
    struct cast *c = cast_open(3);
    struct ballot *b = &c->a[0]->ballot;

    (void)state;
    convict(c, 1, 2);
    ballot_restart(b, c->now_ms);
    assert_true(ballot_is_convict(b, &c->a[2]->identity.id));
    assert_false(ballot_is_convict(b, &c->a[1]->identity.id));
    cast_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_convict_makes_room),
        cmocka_unit_test(convicts_are_named_by_their_place_in_a_view),
        cmocka_unit_test(more_than_half_of_all_put_one_out),
        cmocka_unit_test(no_half_puts_one_out),
        cmocka_unit_test(ones_word_against_itself_counts),
        cmocka_unit_test(who_stays_is_more_than_half),
        cmocka_unit_test(whom_enough_hold_a_proof_against_goes),
        cmocka_unit_test(half_of_them_ask_once_each),
        cmocka_unit_test(who_were_half_ask_again_when_they_are_more),
        cmocka_unit_test(a_holder_without_credit_does_not_ask),
        cmocka_unit_test(the_convict_is_not_asked_for_a_view),
        cmocka_unit_test(who_holds_the_proof_lets_it_in_no_more),
        cmocka_unit_test(the_word_of_who_is_on_probation_does_not_count),
        cmocka_unit_test(a_convict_on_probation_goes),
        cmocka_unit_test(nobody_founds_with_a_convict),
        cmocka_unit_test(a_ballot_that_begins_anew_knows_its_convicts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
