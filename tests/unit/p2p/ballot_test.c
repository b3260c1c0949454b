/* ballot_test.c - how views follow each other, and who cannot bend that. */
#include "tests/unit/p2p/cast.h"

#include "p2p/view.h"

#define FORK_BALLOT (1ULL << 40)

static struct prepare prepare_of(const struct cast *c, uint64_t ballot)
{
    struct prepare p = {.epoch = c->a[0]->ballot.cert.body.epoch,
                        .view = c->a[0]->ballot.hash,
                        .mode = VIEW_MAJORITY,
                        .urgent = true,
                        .ballot = ballot};

    return p;
}

/* A ballot at or above `from` that belongs to actor i. */
static uint64_t ballot_of(const struct cast *c, int i, uint64_t from)
{
    while (actor_of(c, view_ballot_owner(&c->a[0]->ballot.cert.body, from)) !=
           i) {
        from++;
    }
    return from;
}

static void a_lost_member_leaves_by_the_next_view(void **state)
{
    (void)state;
    for (uint32_t n = 3; n <= 6; n++) {
        for (int victim = 0; victim < (int)n; victim++) {
            struct cast *c = cast_open(n);
            int other = victim == 0 ? 1 : 0;

            cast_lose(c, victim);
            cast_wait(c, 10000);
            for (uint32_t i = 0; i < n; i++) {
                const struct ballot *b = &c->a[i]->ballot;

                if ((int)i == victim) {
                    continue;
                }
                assert_int_equal(b->cert.body.epoch, 2);
                assert_int_equal(b->cert.body.n_members, n - 1);
                assert_false(b->cert.body.fork);
                assert_true(hash32_eq(&b->hash, &c->a[other]->ballot.hash));
                assert_true(c->a[i]->n_saves > 0);
            }
            cast_close(c);
        }
    }
}

/* Whoever has not noticed the death itself still can name the dead. */
static void who_was_left_out_by_the_others_is_known(void **state)
{
    struct cast *c = cast_open(4);
    const struct peer_id *dead = &c->a[3]->identity.id;

    (void)state;
    cast_lose(c, 3);
    c->a[0]->ballot.lost = 0;
    c->a[0]->ballot.want = BALLOT_WANT_NOTHING;
    cast_wait(c, 5000);
    for (int i = 0; i < 3; i++) {
        const struct ballot *b = &c->a[i]->ballot;

        assert_int_equal(b->cert.body.epoch, 2);
        assert_int_equal(b->n_left_out, i == 0);
        assert_true(i > 0 || id_eq(&b->left_out[0], dead));
    }
    cast_close(c);
}

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
    struct suspect s = {.epoch = p.epoch, .view = p.view};

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

static struct accept accept_of(const struct cast *c, uint64_t ballot)
{
    struct accept a = {.epoch = 1,
                       .view = c->a[0]->ballot.hash,
                       .mode = VIEW_MAJORITY,
                       .ballot = ballot,
                       .value = c->a[0]->ballot.cert.body};

    a.value.mode = VIEW_MAJORITY;
    a.value.epoch = 2;
    a.value.prev = c->a[0]->ballot.hash;
    return a;
}

static void values_are_taken_from_the_owner_of_the_ballot_only(void **state)
{
    struct cast *c = cast_open(4);
    uint64_t ballot = ballot_of(c, 1, 1);
    struct prepare p = prepare_of(c, ballot);
    struct accept a = accept_of(c, ballot);

    (void)state;
    say(c, 1, 0, MESSAGE_ACCEPT, &a); /* nothing was promised */
    assert_false(c->a[0]->ballot.has_accepted);
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    say(c, 2, 0, MESSAGE_ACCEPT, &a);
    say(c, CAST_STRANGE, 0, MESSAGE_ACCEPT, &a);
    a.ballot = ballot_of(c, 2, FORK_BALLOT - 5000);
    say(c, 2, 0, MESSAGE_ACCEPT, &a);
    a = accept_of(c, ballot);
    a.value.departed = 4; /* nobody said goodbye */
    say(c, 1, 0, MESSAGE_ACCEPT, &a);
    assert_false(c->a[0]->ballot.has_accepted);
    a = accept_of(c, ballot);
    say(c, 1, 0, MESSAGE_ACCEPT, &a);
    assert_true(c->a[0]->ballot.has_accepted);
    assert_int_equal(c->a[0]->ballot.accepted_ballot, ballot);
    cast_close(c);
}

/* Actor 2 accepted a value that its proposer could not finish; the next owner
 * must propose it again, although it would have made another. */
static void the_highest_accepted_value_is_proposed_again(void **state)
{
    struct cast *c = cast_open(3);
    uint64_t first = ballot_of(c, 1, 1);
    struct prepare p = prepare_of(c, first);
    struct accept a = accept_of(c, first);
    struct hash32 want;

    (void)state;
    a.value.tokens = 777; /* tells it from any other */
    view_hash(&a.value, &want);
    say(c, 1, 2, MESSAGE_PREPARE, &p);
    say(c, 1, 2, MESSAGE_ACCEPT, &a);
    assert_true(c->a[2]->ballot.has_accepted);
    cast_lose(c, 1);
    cast_wait(c, 20000);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(c->a[i]->ballot.cert.body.epoch >= 2, 1);
        assert_true(ballot_descends_from(&c->a[i]->ballot, &want));
    }
    cast_close(c);
}

/* What actor 0 makes of promises, as the proposer of a ballot of its own. */
static void
proposes(struct cast *c, uint32_t n, uint64_t *ballot, struct prepare *p)
{
    (void)n;
    ballot_want(&c->a[0]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
    c->a[0]->ballot.next_ballot = ballot_of(c, 0, 1);
    *ballot = c->a[0]->ballot.next_ballot;
    *p = prepare_of(c, *ballot);
    {
        struct ballot_context ctx = context(c, 0);

        ballot_tick(&c->a[0]->ballot, &ctx);
    }
    c->out->n = 0; /* its PREPAREs: the test answers itself */
    assert_int_equal(c->a[0]->ballot.phase, BALLOT_GATHER);
}

static struct promise promise_of(struct cast *c, int i, const struct prepare *p)
{
    struct promise m = {.body = {.epoch = p->epoch,
                                 .view = p->view,
                                 .mode = p->mode,
                                 .ballot = p->ballot}};

    m.body.commit = c->a[i]->commit;
    return m;
}

static void answer(struct cast *c, int i, struct promise *m)
{
    assert_int_equal(
        message_sign(&c->a[i]->signer, &promise_body_schema, &m->body, m->sig),
        0);
    say(c, i, 0, MESSAGE_PROMISE, m);
}

static void promises_of_another_epoch_do_not_count(void **state)
{
    struct cast *c = cast_open(3);
    struct prepare p;
    struct promise m;
    uint64_t ballot;

    (void)state;
    proposes(c, 3, &ballot, &p);
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
    struct cast *c = cast_open(3);
    struct prepare p;
    struct promise m;
    uint64_t ballot;

    (void)state;
    proposes(c, 3, &ballot, &p);
    m = promise_of(c, 1, &p);
    m.body.has_accepted = true;
    m.n_accepted = 1;
    m.accepted[0] = accept_of(c, ballot).value;
    m.accepted[0].epoch = 9;
    answer(c, 1, &m);
    m.accepted[0].epoch = 2;
    m.body.accepted_ballot = ballot + 1;
    answer(c, 1, &m);
    assert_false(c->a[0]->ballot.has_value);
    assert_int_equal(c->a[0]->ballot.malformed, 2);
    cast_close(c);
}

struct fate {
    bool voted[3]; /* closing statement of actor i */
    uint8_t hash[3];
    bool restarted[3];
    uint64_t round, members;
};

/* The value that actor 0 makes of three closing statements. */
static struct view_body decided(const struct fate *f)
{
    struct cast *c = cast_open(3);
    struct view_body v;
    struct prepare p;
    struct promise m;
    uint64_t ballot;

    proposes(c, 3, &ballot, &p);
    for (int i = 0; i < 3; i++) {
        struct promise_body *own =
            &c->a[0]->ballot.promises[c->a[0]->ballot.self_index];

        m = promise_of(c, i, &p);
        m.body.closing = f->voted[i] ? CLOSING_VOTED : CLOSING_NONE;
        m.body.voted.b[0] = f->hash[i];
        m.body.plan_members = 7;
        m.body.plan_tokens = 960;
        m.body.restarted = f->restarted[i];
        if (i == 0) {
            own->closing = m.body.closing;
            own->voted = m.body.voted;
            own->plan_members = 7;
            own->plan_tokens = 960;
        } else {
            answer(c, i, &m);
        }
    }
    v = c->a[0]->ballot.value;
    if (c->a[0]->ballot.cert.body.epoch == 2) {
        v = c->a[0]->ballot.cert.body;
    }
    cast_close(c);
    return v;
}

static void all_left_voted_the_same_commits(void **state)
{
    struct fate f = {.voted = {true, true, true}, .hash = {5, 5, 5}};
    struct view_body v = decided(&f);

    (void)state;
    assert_int_equal(v.round, 1);
    assert_int_equal(v.tokens, 960);
    assert_int_equal(v.commit.b[0], 5);
}

static void one_that_is_left_and_did_not_vote_aborts(void **state)
{
    struct fate f = {.voted = {true, false, true}, .hash = {5, 0, 5}};

    (void)state;
    assert_int_equal(decided(&f).round, 0);
}

static void different_votes_abort(void **state)
{
    struct fate f = {.voted = {true, true, true}, .hash = {5, 6, 5}};

    (void)state;
    assert_int_equal(decided(&f).round, 0);
}

static void restarted_members_count_but_are_not_left(void **state)
{
    struct fate f = {.voted = {true, false, true},
                     .hash = {5, 0, 5},
                     .restarted = {false, true, false}};
    struct view_body v = decided(&f);

    (void)state;
    assert_int_equal(v.round, 1); /* it does not stand against the commit */
    assert_int_equal(v.n_members, 2);
}

static void a_lone_survivor_forks_only_after_its_time(void **state)
{
    struct cast *c = cast_open(3);

    (void)state;
    cast_lose(c, 1);
    cast_lose(c, 2);
    cast_wait(c, FORK_MS - 1000);
    assert_int_equal(c->a[0]->ballot.cert.body.epoch, 1);
    assert_false(ballot_sees_majority(&c->a[0]->ballot));
    cast_wait(c, 8000);
    assert_int_equal(c->a[0]->ballot.cert.body.epoch, 2);
    assert_true(c->a[0]->ballot.cert.body.fork);
    assert_int_equal(c->a[0]->ballot.cert.body.n_members, 1);
    assert_int_equal(c->a[0]->ballot.cert.body.n_roots, 3);
    cast_close(c);
}

static void a_majority_never_forks(void **state)
{
    struct cast *c = cast_open(5);

    (void)state;
    cast_lose(c, 3);
    cast_lose(c, 4);
    cast_wait(c, 2 * FORK_MS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c->a[i]->ballot.cert.body.n_members, 3);
        assert_false(c->a[i]->ballot.cert.body.fork);
    }
    cast_close(c);
}

static struct join join_of(const struct cast *c, uint64_t round)
{
    struct join j = {.body = {.round = round}};

    j.body.view = c->a[0]->ballot.hash;
    j.body.commit = c->a[0]->commit;
    for (uint32_t i = 0; i < c->n; i++) {
        j.linked[j.n_linked++] = id_u64(&c->a[i]->identity.id);
    }
    return j;
}

static void joiners_come_in_at_a_boundary_only(void **state)
{
    struct cast *c = cast_open(3);
    struct join j = join_of(c, 0);

    (void)state;
    for (int i = 0; i < 3; i++) {
        c->a[i]->round.has_plan = true; /* a round is in flight */
        ballot_joiner_add(&c->a[i]->ballot, row_of(c, i, CAST_STRANGE), &j,
                          c->now_ms);
    }
    for (int t = 0; t < 50; t++) {
        for (int i = 0; i < 3; i++) {
            struct ballot_context ctx = context(c, i);

            c->now_ms += 50;
            ctx.now_ms = c->now_ms;
            ballot_tick(&c->a[i]->ballot, &ctx);
            mail(c, i);
            cast_run(c);
        }
    }
    assert_int_equal(c->a[0]->ballot.cert.body.epoch, 1);
    for (int i = 0; i < 3; i++) {
        c->a[i]->round.has_plan = false;
    }
    cast_wait(c, 10000);
    assert_int_equal(c->a[0]->ballot.cert.body.n_members, 4);
    assert_false(c->a[CAST_STRANGE]->ballot.have); /* not on one word alone */
    confirm(c, CAST_STRANGE);
    assert_true(c->a[CAST_STRANGE]->ballot.have);
    assert_true(
        hash32_eq(&c->a[CAST_STRANGE]->ballot.hash, &c->a[0]->ballot.hash));
    cast_close(c);
}

/* A plan of the coordinator and a ballot of another member that cross would
 * freeze each other: a lost attempt for every newcomer. */
static void only_the_next_coordinator_asks_for_a_joiners_view(void **state)
{
    struct cast *c = cast_open(5);
    struct join j = join_of(c, 0);
    const struct ballot *b = &c->a[0]->ballot;
    int boss =
        actor_of(c, view_coordinator(&b->cert.body, c->a[0]->round.round));

    (void)state;
    for (int i = 0; i < 5; i++) {
        ballot_joiner_add(&c->a[i]->ballot, row_of(c, i, CAST_STRANGE), &j,
                          c->now_ms);
    }
    for (int i = 0; i < 5; i++) {
        struct ballot_context ctx = context(c, i);

        c->a[i]->ballot.try_at_ms = 0;
        ballot_tick(&c->a[i]->ballot, &ctx);
        assert_int_equal(c->a[i]->ballot.phase,
                         i == boss ? BALLOT_GATHER : BALLOT_IDLE);
        assert_int_equal(c->a[i]->ballot.frozen, i == boss);
    }
    cast_close(c);
}

static void who_holds_an_older_commit_is_not_let_in(void **state)
{
    struct cast *c = cast_open(3);
    struct join j = join_of(c, 7);

    (void)state;
    for (int i = 0; i < 3; i++) {
        ballot_joiner_add(&c->a[i]->ballot, row_of(c, i, CAST_STRANGE), &j,
                          c->now_ms);
    }
    cast_wait(c, 10000);
    assert_int_equal(c->a[0]->ballot.cert.body.epoch, 1);
    cast_close(c);
}

static void
who_said_of_late_that_it_holds_a_commit_follows_the_next(void **state)
{
    struct cast *c = cast_open(3);
    struct join j = join_of(c, 7);
    struct ballot *b = &c->a[0]->ballot;
    struct ballot_joiner *k = &b->joiners[0];
    struct hash32 base = j.body.commit, next = {{9}}, other = {{8}};

    (void)state;
    ballot_joiner_add(b, row_of(c, 0, CAST_STRANGE), &j, 1000);
    assert_true(k->used);
    ballot_joiners_follow(b, &other, 8, &next, 900); /* of another branch */
    ballot_joiners_follow(b, &base, 9, &next, 900);  /* one is missing */
    ballot_joiners_follow(b, &base, 8, &next, 1001); /* said too long ago */
    assert_int_equal(k->body.round, 7);
    assert_true(hash32_eq(&k->body.commit, &base));
    ballot_joiners_follow(b, &base, 8, &next, 1000);
    assert_int_equal(k->body.round, 8);
    assert_true(hash32_eq(&k->body.commit, &next));
    cast_close(c);
}

static void joiners_that_went_away_free_their_places(void **state)
{
    struct cast *c = cast_open(3);
    struct join j = join_of(c, 7);
    struct ballot *b = &c->a[0]->ballot;
    uint32_t here = 0;

    (void)state;
    for (uint64_t k = 0; k < 3 * BALLOT_JOINERS_MAX; k++) {
        struct event e = {
            .type = EVENT_LINK_UP, .link = 100 + (uint32_t)k, .inbound = true};
        struct identity id;

        identity_fake(&id, 1000 + k);
        e.peer = id.id;
        memcpy(e.public_key, id.public, 32);
        assert_true(members_link_up(&c->a[0]->members, &e, c->out));
        ballot_joiner_add(b, members_find(&c->a[0]->members, &id.id), &j,
                          c->now_ms);
        members_link_down(&c->a[0]->members, e.link, c->now_ms);
    }
    ballot_joiner_add(b, row_of(c, 0, CAST_STRANGE), &j, c->now_ms);
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        here += b->joiners[k].used &&
                b->joiners[k].peer == row_of(c, 0, CAST_STRANGE);
    }
    assert_int_equal(here, 1);
    cast_close(c);
}

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

static void a_founder_may_ask_again_at_once_and_others_wait(void **state)
{
    struct cast *c = cast_open(3);
    struct ballot *b = &c->a[CAST_STRANGE]->ballot;
    struct prepare p = {.mode = VIEW_FOUND};

    (void)state;
    p.ballot = 1ULL << 16 | (id_u64(&c->a[1]->identity.id) & 0xffff);
    say(c, 1, CAST_STRANGE, MESSAGE_PREPARE, &p);
    assert_int_equal(b->found_ballot, p.ballot);
    p.ballot = 2ULL << 16 | (id_u64(&c->a[2]->identity.id) & 0xffff);
    say(c, 2, CAST_STRANGE, MESSAGE_PREPARE, &p);
    assert_int_equal(b->found_ballot >> 16, 1);
    p.ballot = 3ULL << 16 | (id_u64(&c->a[1]->identity.id) & 0xffff);
    say(c, 1, CAST_STRANGE, MESSAGE_PREPARE, &p);
    assert_int_equal(b->found_ballot, p.ballot);
    c->now_ms += 3 * BALLOT_MS;
    p.ballot = ~0xffffULL | (id_u64(&c->a[2]->identity.id) & 0xffff);
    say(c, 2, CAST_STRANGE, MESSAGE_PREPARE, &p); /* uses the numbers up */
    assert_int_equal(b->found_ballot >> 16, 3);
    cast_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_member_leaves_by_the_next_view),
        cmocka_unit_test(who_was_left_out_by_the_others_is_known),
        cmocka_unit_test(only_its_owner_is_answered_on_a_ballot),
        cmocka_unit_test(nobody_answers_below_a_promise),
        cmocka_unit_test(the_ballots_of_a_view_cannot_be_used_up),
        cmocka_unit_test(a_prepare_of_another_epoch_or_view_is_ignored),
        cmocka_unit_test(values_are_taken_from_the_owner_of_the_ballot_only),
        cmocka_unit_test(the_highest_accepted_value_is_proposed_again),
        cmocka_unit_test(promises_of_another_epoch_do_not_count),
        cmocka_unit_test(
            an_accepted_value_that_no_ballot_could_carry_is_refused),
        cmocka_unit_test(all_left_voted_the_same_commits),
        cmocka_unit_test(one_that_is_left_and_did_not_vote_aborts),
        cmocka_unit_test(different_votes_abort),
        cmocka_unit_test(restarted_members_count_but_are_not_left),
        cmocka_unit_test(a_lone_survivor_forks_only_after_its_time),
        cmocka_unit_test(a_majority_never_forks),
        cmocka_unit_test(only_the_next_coordinator_asks_for_a_joiners_view),
        cmocka_unit_test(joiners_come_in_at_a_boundary_only),
        cmocka_unit_test(who_holds_an_older_commit_is_not_let_in),
        cmocka_unit_test(
            who_said_of_late_that_it_holds_a_commit_follows_the_next),
        cmocka_unit_test(joiners_that_went_away_free_their_places),
        cmocka_unit_test(a_restarted_member_does_not_take_back_its_old_view),
        cmocka_unit_test(a_founder_may_ask_again_at_once_and_others_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
