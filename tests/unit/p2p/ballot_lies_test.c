/* ballot_lies_test.c - what is said in a ballot, and which of it counts: true
 * or not, late, twice, or by somebody else. */
#include "tests/unit/p2p/ballots.h"

/* ---- what a member promises and signs ----------------------------------- */

static void only_its_owner_is_answered_on_a_ballot(void **state)
{
    struct cast *c = cast_open(4);
    uint64_t ballot = ballot_of(c, 1, 1);
    struct prepare p = prepare_of(c, ballot);

    (void)state;
    say(c, 2, 0, MESSAGE_PREPARE, &p);
    say(c, CAST_STRANGE, 0, MESSAGE_PREPARE, &p);
    assert_false(c->a[0]->ballot.has_promised);
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_true(c->a[0]->ballot.has_promised);
    assert_int_equal(c->a[0]->ballot.promised, ballot);
    assert_true(c->a[0]->round.frozen);
    cast_close(c);
}

static void nobody_answers_below_a_promise(void **state)
{
    struct cast *c = cast_open(4);
    uint64_t high = ballot_of(c, 1, 50), low = ballot_of(c, 2, 1);
    struct prepare p = prepare_of(c, high);

    (void)state;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_true(low < high);
    p.ballot = low;
    say(c, 2, 0, MESSAGE_PREPARE, &p);
    assert_int_equal(c->a[0]->ballot.promised, high);
    cast_close(c);
}

static void the_ballots_of_a_view_cannot_be_used_up(void **state)
{
    struct cast *c = cast_open(4);
    struct prepare p = prepare_of(c, ballot_of(c, 1, FORK_BALLOT - 5000));
    struct suspect s = {.epoch = p.epoch, .view = p.view, .by = asker_of(c, 1)};

    (void)state;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_false(c->a[0]->ballot.has_promised);
    s.ballot = ballot_of(c, 0, FORK_BALLOT - 5000);
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    assert_true(c->a[0]->ballot.next_ballot < 1000);
    cast_wait(c, 10000); /* the change that was asked for goes through */
    assert_int_equal(c->a[0]->ballot.cert.body.epoch, 2);
    cast_close(c);
}

/* It ends a round: nobody else may ask for that, nor of another view, nor in
 * the name of somebody who did not. */
static void a_suspicion_is_heard_from_members_of_the_view(void **state)
{
    struct cast *c = cast_open(4);
    const struct ballot *b = &c->a[0]->ballot;
    struct suspect good = {.epoch = 1, .view = b->hash}, s;

    (void)state;
    good.ballot = ballot_of(c, 0, b->next_ballot);
    good.by = asker_of(c, 1);
    say(c, CAST_STRANGE, 0, MESSAGE_SUSPECT, &good);
    s = good;
    s.epoch++;
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    s = good;
    s.view.b[0] ^= 1;
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    assert_int_equal(b->malformed, 0);
    s = good;
    s.by.member = (uint8_t)((s.by.member + 1) % 4); /* it did not say so */
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    assert_int_equal(b->malformed, 1);
    s.by.member = 4;
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    s = good;
    s.ballot = ballot_of(c, 2, b->next_ballot); /* not asked of us */
    say(c, 1, 0, MESSAGE_SUSPECT, &s);
    assert_int_equal(b->want, BALLOT_WANT_NOTHING);
    say(c, 2, 0, MESSAGE_SUSPECT, &good); /* from hand to hand */
    assert_int_equal(b->want, BALLOT_WANT_CHANGE);
    cast_close(c);
}

/* That the owners before it are lost, who sees no loss does not take from
 * others: many would propose at once. */
static void
the_number_of_a_ballot_is_believed_where_a_loss_is_seen(void **state)
{
    (void)state;
    for (int seen = 0; seen < 2; seen++) {
        struct cast *c = cast_open(4);
        const struct ballot *b = &c->a[0]->ballot;
        uint64_t next = b->next_ballot;
        struct suspect s = {.epoch = 1, .view = b->hash};

        s.by = asker_of(c, 1);
        if (seen) {
            cast_notice(c, 0, 3);
        }
        s.ballot = ballot_of(c, 2, next + 50);
        say(c, 1, 0, MESSAGE_SUSPECT, &s);
        assert_int_equal(b->next_ballot, next);
        s.ballot = ballot_of(c, 0, next + 50);
        say(c, 1, 0, MESSAGE_SUSPECT, &s);
        assert_int_equal(b->next_ballot, seen ? s.ballot : next);
        s.ballot = ballot_of(c, 0, next); /* said before */
        say(c, 1, 0, MESSAGE_SUSPECT, &s);
        assert_true(b->next_ballot != s.ballot || !seen);
        cast_close(c);
    }
}

static void a_prepare_of_another_epoch_or_view_is_ignored(void **state)
{
    struct cast *c = cast_open(3);
    struct prepare p = prepare_of(c, ballot_of(c, 1, 1));

    (void)state;
    p.epoch = 1000000;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    p.epoch = 1;
    p.view.b[0] ^= 1;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    p.view.b[0] ^= 1;
    p.mode = VIEW_MODE_COUNT;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    p.mode = VIEW_FORK;
    p.ballot = FORK_BALLOT | 1;
    say(c, 1, 0, MESSAGE_PREPARE, &p); /* nobody is in doubt */
    assert_false(c->a[0]->ballot.has_promised);
    cast_close(c);
}

static void values_are_taken_from_the_owner_of_the_ballot_only(void **state)
{
    struct cast *c = cast_open(4);
    uint64_t ballot = ballot_of(c, 1, 1);
    struct prepare p = prepare_of(c, ballot);
    struct accept *a = accept_of(c, ballot), *high;

    (void)state;
    say(c, 1, 0, MESSAGE_ACCEPT, a); /* nothing was promised */
    assert_false(c->a[0]->ballot.has_accepted);
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    say(c, 2, 0, MESSAGE_ACCEPT, a);
    say(c, CAST_STRANGE, 0, MESSAGE_ACCEPT, a);
    high = accept_of(c, ballot_of(c, 2, FORK_BALLOT - 5000));
    say(c, 2, 0, MESSAGE_ACCEPT, high);
    assert_false(c->a[0]->ballot.has_accepted);
    say(c, 1, 0, MESSAGE_ACCEPT, a);
    assert_true(c->a[0]->ballot.has_accepted);
    assert_int_equal(c->a[0]->ballot.accepted_ballot, ballot);
    free(a);
    free(high);
    cast_close(c);
}

#define N_SPOILED 12

/* What the owner of a ballot, who has our promise, must not have signed. */
static void spoil(const struct cast *c, int how, struct accept *a)
{
    struct view_body *v = &a->of.proposal.value;

    switch (how) {
    case 1: /* of an epoch to come */
        a->epoch++;
        v->epoch++;
        break;
    case 2: /* of another view */
        a->view.b[0] ^= 1;
        break;
    case 3: /* not the next one after it */
        v->epoch++;
        break;
    case 4:
        v->prev.b[0] ^= 1;
        break;
    case 5: /* of another run */
        v->run.b[0] ^= 1;
        break;
    case 6: /* by other rules than it says */
        v->mode = VIEW_FORK;
        break;
    case 7:
        a->mode = v->mode = VIEW_FORK;
        a->ballot = a->of.proposal.ballot =
            FORK_BALLOT | (uint64_t)view_index(&c->a[0]->ballot.cert.body,
                                               &c->a[1]->identity.id);
        break;
    case 8: /* of nobody */
        v->n_members = 0;
        break;
    case 9: /* nobody said goodbye */
        v->departed = 4;
        break;
    case 10: /* below our promise */
        accept_by(c, ballot_of(c, 1, 1), 15, NULL, a);
        break;
    case 11: /* uses the numbers up */
        accept_by(c, ballot_of(c, 1, FORK_BALLOT - 5000), 15, NULL, a);
        break;
    default:
        break;
    }
}

static void a_value_that_must_not_follow_is_not_signed(void **state)
{
    (void)state;
    for (int how = 0; how < N_SPOILED; how++) {
        struct cast *c = cast_open(4);
        struct prepare p = prepare_of(c, ballot_of(c, 1, 50));
        struct accept *a;

        all_contribute(c);
        finish_round(c);
        say(c, 1, 0, MESSAGE_PREPARE, &p);
        assert_int_equal(c->a[0]->ballot.promised, p.ballot);
        a = accept_of(c, p.ballot);
        assert_int_equal(a->of.proposal.value.round, 1);
        spoil(c, how, a);
        if (how < 10) {
            sign_accept(c, a);
        }
        say(c, 1, 0, MESSAGE_ACCEPT, a);
        assert_int_equal(c->a[0]->ballot.has_accepted, how == 0);
        free(a);
        cast_close(c);
    }
}

static void a_round_in_flight_is_ended_for_a_reason_only(void **state)
{
    struct cast *c = cast_open(4);
    struct prepare p = prepare_of(c, ballot_of(c, 1, 1));

    (void)state;
    all_contribute(c);
    p.urgent = false; /* somebody wants to join */
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_false(c->a[0]->ballot.has_promised);
    p.urgent = true; /* somebody is lost */
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_true(c->a[0]->ballot.has_promised);
    p.urgent = false; /* it ends already */
    p.ballot = ballot_of(c, 1, p.ballot + 1);
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_int_equal(c->a[0]->ballot.promised, p.ballot);
    cast_close(c);

    c = cast_open(4); /* between two rounds */
    all_contribute(c);
    finish_round(c);
    p = prepare_of(c, ballot_of(c, 1, 1));
    p.urgent = false;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_true(c->a[0]->ballot.has_promised);
    cast_close(c);
}

/* Actors 0 and 1 are cut off from the three others of their view. */
static void a_fork_is_promised_in_long_doubt_and_to_its_owner_only(void **state)
{
    struct cast *c = cast_open(5);
    const struct ballot *b = &c->a[0]->ballot;
    struct prepare p = prepare_of(c, 0);
    uint64_t at = (uint64_t)view_index(&b->cert.body, &c->a[1]->identity.id);

    (void)state;
    for (int i = 2; i < 5; i++) {
        cast_cut(c, i);
        cast_notice(c, 0, i);
    }
    cast_wait(c, FORK_MS / 2);
    assert_false(ballot_sees_majority(b));
    p.mode = VIEW_FORK;
    p.ballot = FORK_BALLOT | at;
    say(c, 1, 0, MESSAGE_PREPARE, &p); /* too early */
    assert_false(b->fork_bound);
    cast_wait(c, FORK_MS / 3);
    p.ballot = FORK_BALLOT | (at ^ 1); /* another one's */
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    p.ballot = (((b->promised >> 8) + 1) << 8) | at; /* the majority's */
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    p.ballot = 2 * FORK_BALLOT | at; /* uses the numbers up */
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_false(b->fork_bound);
    p.ballot = FORK_BALLOT | at;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    assert_true(b->fork_bound);
    assert_int_equal(b->promised, p.ballot);
    cast_close(c);
}

/* ---- promises, to who asked --------------------------------------------- */

static void promises_of_another_epoch_do_not_count(void **state)
{
    struct cast *c = cast_open(3);
    struct prepare p;
    struct promise m;
    uint64_t ballot;

    (void)state;
    proposes(c, NULL, &ballot, &p);
    m = promise_of(c, 1, &p);
    m.body.epoch++;
    answer(c, 1, &m);
    m = promise_of(c, 1, &p);
    m.body.view.b[3] ^= 1;
    answer(c, 1, &m);
    assert_int_equal(__builtin_popcountll(c->a[0]->ballot.answered), 1);
    m = promise_of(c, 1, &p);
    m.sig[0] ^= 1;
    say(c, 1, 0, MESSAGE_PROMISE, &m); /* not signed */
    assert_int_equal(__builtin_popcountll(c->a[0]->ballot.answered), 1);
    m = promise_of(c, 1, &p);
    answer(c, 1, &m);
    assert_int_equal(__builtin_popcountll(c->a[0]->ballot.answered), 2);
    cast_close(c);
}

static void
an_accepted_value_that_no_ballot_could_carry_is_refused(void **state)
{
    (void)state;
    for (int how = 0; how < 11; how++) {
        struct cast *c = cast_open(4);
        const struct ballot *b = &c->a[0]->ballot;
        struct view_body *v;
        struct accept *a;
        struct prepare p;
        struct promise m;
        uint64_t ballot;

        proposes(c, NULL, &ballot, &p);
        a = accept_of(c, ballot - 1 + (how == 5)); /* 5: it is ours */
        v = &a->of.proposal.value;
        v->epoch += how == 1;
        v->prev.b[0] ^= how == 2;
        v->run.b[0] ^= how == 3;
        v->n_members = how == 4 ? 0 : v->n_members;
        v->tokens += how == 8; /* its promises give another one */
        sign_accept(c, a);
        a->of.sig[0] ^= how == 9; /* nobody proposed it */
        m = promise_of(c, 1, &p);
        claims(&m, a, a->ballot);
        m.n_accepted = how != 6; /* it says one, and has none */
        m.body.said.has_accepted = how != 7;
        m.body.said.accepted_view.b[0] ^= how == 10; /* and shows another */
        answer(c, 1, &m);
        free(a);
        assert_int_equal(b->has_claim, how == 0);
        assert_int_equal(__builtin_popcountll(b->answered), 1 + (how == 0));
        assert_int_equal(b->malformed, how != 0);
        cast_close(c);
    }
}

static void a_promise_counts_once_and_for_its_ballot(void **state)
{
    struct cast *c = cast_open(4);
    const struct ballot *b = &c->a[0]->ballot;
    uint32_t at = (uint32_t)view_index(&b->cert.body, &c->a[1]->identity.id);
    struct prepare p = {.mode = VIEW_FOUND, .ballot = b->current};
    struct promise m;
    uint64_t ballot;

    (void)state;
    m = promise_of(c, 1, &p); /* its founding is over */
    answer(c, 1, &m);
    assert_int_equal(b->phase, BALLOT_IDLE);
    assert_int_equal(b->cert.body.epoch, 1);
    proposes(c, NULL, &ballot, &p);
    m = promise_of(c, 1, &p);
    m.body.ballot++;
    answer(c, 1, &m);
    m = promise_of(c, 1, &p);
    m.body.mode = VIEW_FORK;
    answer(c, 1, &m);
    m = promise_of(c, CAST_STRANGE, &p); /* nobody asked it */
    answer(c, CAST_STRANGE, &m);
    assert_int_equal(__builtin_popcountll(b->answered), 1);
    m = promise_of(c, 1, &p);
    answer(c, 1, &m);
    assert_int_equal(__builtin_popcountll(b->answered), 2);
    m.body.said.tokens = 777; /* it says something else now */
    answer(c, 1, &m);
    assert_int_equal(b->promises[at].said.tokens, 0);
    assert_int_equal(b->malformed, 0);
    assert_int_equal(b->phase, BALLOT_GATHER);
    cast_close(c);
}

/* Of two that were accepted the one of the higher ballot may be chosen. */
static void of_two_accepted_values_the_later_one_binds(void **state)
{
    (void)state;
    for (int first = 1; first < 3; first++) {
        struct cast *c = cast_open(4);
        struct prepare p;
        uint64_t ballot;

        proposes(c, NULL, &ballot, &p);
        for (int k = 0; k < 2; k++) {
            int i = k == 0 ? first : 3 - first;
            struct promise m = promise_of(c, i, &p);
            struct accept *a = calloc(1, sizeof *a);
            struct statement said = says_after(c, (uint64_t)i);

            assert_non_null(a);
            accept_by(c, ballot - (i == 1 ? 1 : 2), 15, &said, a);
            claims(&m, a, a->ballot);
            answer(c, i, &m);
            free(a);
        }
        assert_int_equal(c->a[0]->ballot.proposal.value.tokens, 1);
        cast_close(c);
    }
}

/* The second one says that it accepted the same value later, and shows promises
 * that nobody made: what is proposed again is what was checked. */
static void a_value_that_is_claimed_twice_keeps_its_promises(void **state)
{
    struct cast *c = cast_open(4);
    const struct ballot *b = &c->a[0]->ballot;
    struct statement said = says_after(c, 9);
    struct accept *a = calloc(1, sizeof *a);
    struct promised good;
    struct prepare p;
    struct promise m;
    uint64_t ballot;

    (void)state;
    assert_non_null(a);
    proposes(c, NULL, &ballot, &p);
    accept_by(c, ballot - 2, 15, &said, a);
    good = a->of.proposal.promises[0];
    m = promise_of(c, 1, &p);
    claims(&m, a, a->ballot);
    answer(c, 1, &m);
    a->ballot = ballot - 1;
    a->of.proposal.promises[0].sig[0] ^= 1;
    sign_accept(c, a);
    m = promise_of(c, 2, &p);
    claims(&m, a, a->ballot);
    answer(c, 2, &m);
    assert_int_equal(__builtin_popcountll(b->answered), 3);
    assert_int_equal(b->claimed, ballot - 1);
    assert_memory_equal(b->proposal.promises[0].sig, good.sig, sizeof good.sig);
    free(a);
    cast_close(c);
}

/* ---- signatures on a view ----------------------------------------------- */

/* Actor i says that it has accepted that, signed by actor `pen`. */
static void signs(struct cast *c, int i, int pen, const struct ballot_body *b)
{
    struct accepted m = {.epoch = 1, .body = *b};

    m.view = c->a[1]->ballot.hash;
    assert_int_equal(
        message_sign(&c->a[pen]->signer, &ballot_body_schema, b, m.sig), 0);
    say(c, i, 0, MESSAGE_ACCEPTED, &m);
}

static void a_view_is_made_of_the_signatures_of_its_electors(void **state)
{
    struct cast *c = cast_open(5);
    const struct ballot *b = &c->a[0]->ballot;
    struct ballot_body good, bad;
    struct prepare p;
    struct promise m;
    uint64_t ballot;

    (void)state;
    proposes(c, NULL, &ballot, &p);
    for (int i = 1; i < 5; i++) {
        m = promise_of(c, i, &p);
        answer(c, i, &m);
    }
    assert_int_equal(b->phase, BALLOT_SIGN);
    good = (struct ballot_body){.ballot = ballot, .view = b->value_hash};
    bad = good;
    bad.ballot++;
    signs(c, 1, 1, &bad);
    bad = good;
    bad.view.b[0] ^= 1;
    signs(c, 1, 1, &bad);
    signs(c, CAST_STRANGE, CAST_STRANGE, &good);
    assert_int_equal(b->malformed, 0);
    signs(c, 1, 2, &good); /* 2's signature in 1's mouth */
    assert_int_equal(b->malformed, 1);
    assert_int_equal(b->n_sigs, 1);
    signs(c, 1, 1, &good);
    signs(c, 1, 1, &good);
    assert_int_equal(b->n_sigs, 2);
    assert_int_equal(b->cert.body.epoch, 1);
    signs(c, 2, 2, &good);
    assert_int_equal(b->cert.body.epoch, 2);
    assert_int_equal(b->cert.n_sigs, 3);
    /* Who signs late is added, by the same rules. */
    signs(c, 3, 3, &bad);
    bad = good;
    bad.ballot++;
    signs(c, 3, 3, &bad);
    signs(c, CAST_STRANGE, CAST_STRANGE, &good);
    signs(c, 2, 2, &good); /* it has */
    assert_int_equal(b->malformed, 1);
    signs(c, 3, 4, &good);
    assert_int_equal(b->malformed, 2);
    assert_int_equal(b->cert.n_sigs, 3);
    signs(c, 3, 3, &good);
    assert_int_equal(b->cert.n_sigs, 4);
    cast_close(c);
}

/* ---- views that others show --------------------------------------------- */

/* The view after actor 0's, of the same members, which n of them signed. */
static struct view_cert next_view(const struct cast *c, uint32_t n, int how)
{
    struct accept *a = accept_of(c, 0);
    struct view_cert v = {.body = a->of.proposal.value, .ballot = 9};
    struct ballot_body b = {.ballot = v.ballot};

    free(a);

    v.body.epoch = how == 1 ? 1 : v.body.epoch; /* not later than ours */
    v.body.run.b[0] ^= how == 2;
    v.body.prev.b[0] ^= how == 3; /* of one that is not known */
    v.body.mode = how == 4 ? VIEW_FOUND : v.body.mode;
    if (how == 5) { /* we are not in it */
        memcpy(v.body.members[c->a[0]->ballot.self_index].public_key,
               c->a[CAST_STRANGE]->identity.public, 32);
        assert_int_equal(view_sort(&v.body), 0);
    }
    view_hash(&v.body, &b.view);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(v.sigs[i].public_key, c->a[i]->identity.public, 32);
        assert_int_equal(message_sign(&c->a[i]->signer, &ballot_body_schema, &b,
                                      v.sigs[i].sig),
                         0);
    }
    v.n_sigs = n;
    return v;
}

static void a_view_is_entered_when_it_follows_ours(void **state)
{
    (void)state;
    for (int how = 0; how < 8; how++) {
        struct cast *c = cast_open(4);
        const struct ballot *b = &c->a[0]->ballot;
        struct view_cert v = next_view(c, how == 6 ? 1 : 4, how);
        struct hash32 before = b->hash;

        v.sigs[3].sig[0] ^= how == 7;
        say(c, 1, 0, MESSAGE_VIEW, &v);
        assert_int_equal(hash32_eq(&b->hash, &before), how > 0);
        assert_int_equal(b->malformed, how >= 6);
        assert_int_equal(b->has_pending, how == 3);
        confirm(c, 0); /* its members say that they are in it */
        assert_int_equal(hash32_eq(&b->hash, &before), how > 0 && how != 3);
        cast_close(c);
    }
}

/* It was shown one, and another came first. */
static void a_view_that_waits_for_its_members_may_be_over(void **state)
{
    struct cast *c = cast_open(4);
    struct view_cert unknown = next_view(c, 4, 3), next = next_view(c, 4, 0);
    const struct ballot *b = &c->a[0]->ballot;
    struct hash32 hash;

    (void)state;
    say(c, 1, 0, MESSAGE_VIEW, &unknown);
    assert_true(b->has_pending);
    say(c, 1, 0, MESSAGE_VIEW, &next);
    hash = b->hash;
    assert_int_equal(b->cert.body.epoch, 2);
    confirm(c, 0);
    assert_true(hash32_eq(&b->hash, &hash));
    say(c, 1, 0, MESSAGE_VIEW, &unknown); /* nor later */
    confirm(c, 0);
    assert_true(hash32_eq(&b->hash, &hash));
    cast_close(c);
}

/* ---- who has no view ---------------------------------------------------- */

static void a_restarted_member_does_not_take_back_its_old_view(void **state)
{
    struct cast *c = cast_open(3);
    struct view_cert old = c->a[1]->ballot.cert;

    (void)state;
    ballot_drop_view(&c->a[1]->ballot, c->now_ms); /* as after a restart */
    say(c, 0, 1, MESSAGE_VIEW, &old);
    assert_false(c->a[1]->ballot.have);
    assert_true(c->a[1]->ballot.restored);
    cast_close(c);
}

/* A peer that was frozen since the founding shows it again. */
static void a_restarted_member_does_not_take_back_its_founding(void **state)
{
    struct cast *c = cast_open(4);
    struct view_cert first = c->a[1]->ballot.cert;

    (void)state;
    for (uint64_t epoch = 2; epoch < 4; epoch++) {
        ballot_want(&c->a[0]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
        cast_wait(c, 5000);
        assert_int_equal(c->a[1]->ballot.cert.body.epoch, epoch);
    }
    ballot_drop_view(&c->a[1]->ballot, c->now_ms);
    say(c, 0, 1, MESSAGE_VIEW, &first);
    assert_false(c->a[1]->ballot.have);
    cast_close(c);
}

/* The views that actor 1 was in before it left the third one, and others. */
static void a_restarted_member_goes_forward_only(void **state)
{
    (void)state;
    for (int how = 0; how < 5; how++) {
        struct cast *c = cast_open(4);
        const struct ballot *b = &c->a[1]->ballot;
        struct view_cert second, v;
        uint32_t at;

        ballot_want(&c->a[0]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
        cast_wait(c, 5000);
        second = b->cert;
        assert_int_equal(second.body.epoch, 2);
        ballot_want(&c->a[0]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
        cast_wait(c, 5000);
        assert_int_equal(b->cert.body.epoch, 3);
        v = how == 0 ? second : b->cert;
        ballot_drop_view(&c->a[1]->ballot, c->now_ms);
        if (how > 1) { /* of another branch */
            struct ballot_body body = {.ballot = v.ballot};

            at = (uint32_t)view_index(&v.body, &c->a[1]->identity.id);
            v.body.prev.b[0] ^= 1;
            v.body.epoch += how == 3;
            v.body.members[at].joined = how == 4 ? v.body.epoch : 1;
            view_hash(&v.body, &body.view);
            v.n_sigs = 4;
            for (uint32_t i = 0; i < 4; i++) {
                memcpy(v.sigs[i].public_key, c->a[i]->identity.public, 32);
                assert_int_equal(message_sign(&c->a[i]->signer,
                                              &ballot_body_schema, &body,
                                              v.sigs[i].sig),
                                 0);
            }
        }
        say(c, 0, 1, MESSAGE_VIEW, &v);
        /* A later one, or one that it joined anew. */
        assert_int_equal(b->has_pending, how >= 3);
        assert_false(b->have);
        cast_close(c);
    }
}

static void a_founder_may_ask_again_at_once_and_others_wait(void **state)
{
    struct cast *c = cast_open(3);
    struct ballot *b = &c->a[CAST_STRANGE]->ballot;
    struct prepare p = {.mode = VIEW_FOUND};

    (void)state;
    p.ballot = 1ULL << 16 | (id_u64(&c->a[1]->identity.id) & 0xffff);
    say(c, 1, CAST_STRANGE, MESSAGE_PREPARE, &p);
    assert_int_equal(b->found_ballot, p.ballot);
    assert_true(ballot_founds(b, row_of(c, CAST_STRANGE, 1)));
    assert_false(ballot_founds(b, row_of(c, CAST_STRANGE, 2)));
    p.ballot = 2ULL << 16 | (id_u64(&c->a[2]->identity.id) & 0xffff);
    say(c, 2, CAST_STRANGE, MESSAGE_PREPARE, &p);
    assert_int_equal(b->found_ballot >> 16, 1);
    p.ballot = 3ULL << 16 | (id_u64(&c->a[1]->identity.id) & 0xffff);
    say(c, 1, CAST_STRANGE, MESSAGE_PREPARE, &p);
    assert_int_equal(b->found_ballot, p.ballot);
    p.ballot -= 1ULL << 16; /* late on its way */
    say(c, 1, CAST_STRANGE, MESSAGE_PREPARE, &p);
    assert_int_equal(b->found_ballot >> 16, 3);
    c->now_ms += 3 * BALLOT_MS;
    p.ballot = ~0xffffULL | (id_u64(&c->a[2]->identity.id) & 0xffff);
    say(c, 2, CAST_STRANGE, MESSAGE_PREPARE, &p); /* uses the numbers up */
    assert_int_equal(b->found_ballot >> 16, 3);
    cast_close(c);
}

static uint32_t n_signed; /* by the stranger */

static bool count_signed(const struct letter *l)
{
    n_signed += l->from == CAST_STRANGE && l->type == MESSAGE_ACCEPTED;
    return false;
}

/* A founding by actor 1 with the stranger: each has promised. */
static struct accept *
founding(const struct cast *c, uint64_t ballot, uint64_t epoch)
{
    struct accept *a = calloc(1, sizeof *a);
    struct proposal *p = &a->of.proposal;
    struct prepare q = {.mode = VIEW_FOUND, .ballot = ballot};
    struct ballot_body body = {.ballot = ballot};
    const int who[2] = {1, CAST_STRANGE};

    assert_non_null(a);
    a->mode = p->value.mode = VIEW_FOUND;
    a->ballot = p->ballot = ballot;
    p->value.epoch = epoch;
    p->value.n_members = p->n_promises = 2;
    for (int k = 0; k < 2; k++) {
        memcpy(p->value.members[k].public_key, c->a[who[k]]->identity.public,
               32);
        p->value.members[k].joined = epoch;
        p->value.members[k].full_since = (uint32_t)epoch;
        p->value.members[k].slot = (uint32_t)k + 1;
    }
    p->value.slots = 2;
    assert_int_equal(view_sort(&p->value), 0);
    for (int k = 0; k < 2; k++) {
        int at = view_index_key(&p->value, c->a[who[k]]->identity.public);

        p->value.members[at].slot = (uint32_t)at + 1;
        p->promises[at].member = (uint8_t)at;
        p->promises[at].said = says(c, who[k]);
        p->promises[at].said.tokens = 0;
        sign_promise(c, who[k], &q, &p->promises[at]);
    }
    view_hash(&p->value, &body.view);
    assert_int_equal(
        message_sign(&c->a[1]->signer, &ballot_body_schema, &body, a->of.sig),
        0);
    return a;
}

/* Whoever is to sign a first view is in it, and signs what its founder made of
 * promises. */
static void a_founding_is_signed_as_its_founder_asked(void **state)
{
    (void)state;
    for (int how = 0; how < 7; how++) {
        struct cast *c = cast_open(3);
        struct prepare p = {.mode = VIEW_FOUND};
        /* 5: two peers may name a high one; 6: no view could follow it */
        uint64_t epoch = how == 5 ? 1U << 31 : how == 6 ? UINT32_MAX : 1;
        struct accept *a;

        n_signed = 0;
        c->drop = count_signed;
        p.ballot = 1ULL << 16 | (id_u64(&c->a[1]->identity.id) & 0xffff);
        say(c, 1, CAST_STRANGE, MESSAGE_PREPARE, &p);
        a = founding(c, p.ballot + (how == 1 ? 1ULL << 16 : 0) /* not asked */,
                     epoch);
        if (how == 2) { /* we are not in it */
            int at = view_index_key(&a->of.proposal.value,
                                    c->a[CAST_STRANGE]->identity.public);

            memcpy(a->of.proposal.value.members[at].public_key,
                   c->a[2]->identity.public, 32);
            assert_int_equal(view_sort(&a->of.proposal.value), 0);
        }
        a->of.proposal.promises[0].sig[0] ^= how == 3;
        say(c, how == 4 ? 2 : 1, CAST_STRANGE, MESSAGE_ACCEPT, a);
        assert_int_equal(n_signed, how == 0 || how == 5);
        free(a);
        cast_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_its_owner_is_answered_on_a_ballot),
        cmocka_unit_test(nobody_answers_below_a_promise),
        cmocka_unit_test(the_ballots_of_a_view_cannot_be_used_up),
        cmocka_unit_test(a_suspicion_is_heard_from_members_of_the_view),
        cmocka_unit_test(
            the_number_of_a_ballot_is_believed_where_a_loss_is_seen),
        cmocka_unit_test(a_prepare_of_another_epoch_or_view_is_ignored),
        cmocka_unit_test(values_are_taken_from_the_owner_of_the_ballot_only),
        cmocka_unit_test(a_value_that_must_not_follow_is_not_signed),
        cmocka_unit_test(a_round_in_flight_is_ended_for_a_reason_only),
        cmocka_unit_test(
            a_fork_is_promised_in_long_doubt_and_to_its_owner_only),
        cmocka_unit_test(promises_of_another_epoch_do_not_count),
        cmocka_unit_test(
            an_accepted_value_that_no_ballot_could_carry_is_refused),
        cmocka_unit_test(a_promise_counts_once_and_for_its_ballot),
        cmocka_unit_test(of_two_accepted_values_the_later_one_binds),
        cmocka_unit_test(a_value_that_is_claimed_twice_keeps_its_promises),
        cmocka_unit_test(a_view_is_made_of_the_signatures_of_its_electors),
        cmocka_unit_test(a_view_is_entered_when_it_follows_ours),
        cmocka_unit_test(a_view_that_waits_for_its_members_may_be_over),
        cmocka_unit_test(a_restarted_member_does_not_take_back_its_old_view),
        cmocka_unit_test(a_restarted_member_does_not_take_back_its_founding),
        cmocka_unit_test(a_restarted_member_goes_forward_only),
        cmocka_unit_test(a_founder_may_ask_again_at_once_and_others_wait),
        cmocka_unit_test(a_founding_is_signed_as_its_founder_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
