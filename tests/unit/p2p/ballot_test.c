/* ballot_test.c - how views follow each other, and who cannot bend that. */
#include "p2p/prefix.h"
#include "proto/base/bytes.h"
#include "tests/unit/p2p/ballots.h"

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
    cast_cut(c, 3);
    cast_notice(c, 1, 3);
    cast_notice(c, 2, 3);
    cast_wait(c, 5000);
    for (int i = 0; i < 3; i++) {
        const struct ballot *b = &c->a[i]->ballot;

        assert_int_equal(b->cert.body.epoch, 2);
        assert_int_equal(b->n_left_out, i == 0);
        assert_true(i > 0 || id_eq(&b->left_out[0], dead));
    }
    cast_close(c);
}

/* Actor 2 accepted a value that its proposer could not finish; the next owner
 * must propose it again, although it would have made another. */
static void the_highest_accepted_value_is_proposed_again(void **state)
{
    struct cast *c = cast_open(3);
    uint64_t first = ballot_of(c, 1, 1);
    struct prepare p = prepare_of(c, first);
    struct statement said = says_after(c, 777);
    struct accept *a = accept_of(c, first);
    struct hash32 want;

    (void)state;
    accept_by(c, first, 7, &said, a);
    view_hash(&a->of.proposal.value, &want);
    say(c, 1, 2, MESSAGE_PREPARE, &p);
    say(c, 1, 2, MESSAGE_ACCEPT, a);
    free(a);
    assert_true(c->a[2]->ballot.has_accepted);
    cast_lose(c, 1);
    cast_wait(c, 20000);
    for (int i = 0; i < 3; i += 2) {
        assert_int_equal(c->a[i]->ballot.cert.body.epoch >= 2, 1);
        assert_true(ballot_descends_from(&c->a[i]->ballot, &want));
    }
    cast_close(c);
}

#define FATES 8

/* Closing statements of actors 0 to n - 1. */
struct fate {
    int n; /* 0: three */
    bool voted[FATES];
    uint8_t hash[FATES]; /* .. for this */
    bool restarted[FATES];
    uint64_t round[FATES], tokens[FATES];
    uint8_t commit[FATES]; /* what it holds; 0: as its actor does */
    int outside;           /* the actor that is not in the plan; 0: all are */
    int alone;             /* bit i: actor i names a plan of itself */
    int wild;              /* bit i: and of members that there are not */
    int doubts;            /* bit i: actor i saw that the plan is not true */
};

static struct statement
statement(const struct cast *c, const struct fate *f, int i)
{
    const struct view_body *v = &c->a[0]->ballot.cert.body;
    uint64_t all = (1ULL << (f->n > 0 ? f->n : 3)) - 1, plan = all;
    struct statement body = {
        .edges = UINT64_MAX,
        .round = f->round[i],
        .tokens = f->tokens[i],
        .commit = c->a[i]->commit,
        .closing = f->voted[i] ? CLOSING_VOTED : CLOSING_NONE,
        .voted = {{f->hash[i]}},
        .plan_tokens = 960,
    };

    if (f->doubts >> i & 1) {
        body.closing = CLOSING_DOUBTED;
    }
    if (f->outside > 0) {
        plan &= ~(1ULL << view_index(v, &c->a[f->outside]->identity.id));
    }
    if (f->commit[i] > 0) {
        body.commit = (struct hash32){{f->commit[i]}};
    }
    if (f->alone >> i & 1) {
        plan = 1ULL << view_index(v, &c->a[i]->identity.id);
    }
    if (f->wild >> i & 1) {
        plan |= ~all;
    }
    body.plan_members = body.made_by = plan;
    return body;
}

/* The value that actor 0 makes of the closing statements. */
static struct view_body decided(const struct fate *f)
{
    int n = f->n > 0 ? f->n : 3;
    struct cast *c = cast_open((uint32_t)n);
    struct statement own;
    struct view_body v;
    struct prepare p;
    struct promise m;
    uint64_t ballot;

    own = statement(c, f, 0);
    proposes(c, &own, &ballot, &p);
    for (int i = 1; i < n; i++) {
        m = promise_of(c, i, &p);
        m.body.said = statement(c, f, i);
        m.body.said.restarted = f->restarted[i];
        answer(c, i, &m);
    }
    v = c->a[0]->ballot.proposal.value;
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

/* The round that is the newest where the first `n_for` of n voted for one
 * result and the others for none, or each for another one. */
static uint64_t fate_of(int n, int n_for, bool others)
{
    struct fate f = {.n = n};

    for (int i = 0; i < n; i++) {
        f.voted[i] = i < n_for || others;
        f.hash[i] = (uint8_t)(i < n_for ? 99 : 1 + i);
    }
    return decided(&f).round;
}

/* Who denies its vote, or votes otherwise, ends no round: half of all, two or
 * more, have the bytes. */
static void half_of_all_that_voted_the_same_commit(void **state)
{
    static const int least[] = {[2] = 2, 2, 3, 3, 3, 4, 4};

    (void)state;
    for (int n = 2; n <= FATES; n++) {
        for (int others = 0; others < 2; others++) {
            assert_int_equal(fate_of(n, least[n] - 1, others), 0);
            assert_int_equal(fate_of(n, least[n], others), 1);
            assert_int_equal(fate_of(n, n, others), 1);
        }
    }
}

/* But where all voted for it: then it may be a commit already. */
static void who_saw_that_a_plan_is_not_true_decides_nothing(void **state)
{
    struct fate f = {.n = 4, .voted = {true, true, true}, .hash = {5, 5, 5, 5}};

    (void)state;
    assert_int_equal(decided(&f).round, 1);
    for (int i = 0; i < 3; i++) {
        f.doubts = 1 << i;
        assert_int_equal(decided(&f).round, 0);
    }
    f.voted[3] = true;
    f.doubts = 15;
    assert_int_equal(decided(&f).round, 1);
}

/* Who said goodbye does not make fewer than two honest holders enough. */
static void two_more_than_may_lie_have_the_bytes(void **state)
{
    struct view_body v = {.n_members = 7};

    (void)state;
    assert_int_equal(view_deciders(&v, 0), 4);
    assert_int_equal(view_deciders(&v, 0x70), 4);
    v.n_members = 4;
    assert_int_equal(view_deciders(&v, 0), 3);
    v.n_members = 64;
    assert_int_equal(view_deciders(&v, 0), 32);
    assert_int_equal(view_deciders(&v, ~0ULL << 34), 23);
}

/* Of two results the one that more voted for, of equally many the lower one,
 * wherever they are among the members. */
static void of_two_results_most_votes_commit(void **state)
{
    (void)state;
    for (uint32_t mask = 0; mask < 256; mask++) {
        struct fate f = {.n = 8};
        int n_five = __builtin_popcount(mask);
        struct view_body v;

        for (int i = 0; i < 8; i++) {
            f.voted[i] = true;
            f.hash[i] = mask >> i & 1 ? 5 : 6;
        }
        v = decided(&f);
        assert_int_equal(v.round, 1);
        assert_int_equal(v.commit.b[0], n_five >= 4 ? 5 : 6);
    }
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

/* Of the members that are left, where those of its plan voted for it. */
static void the_newest_commit_goes_on(void **state)
{
    struct fate f = {.round = {3, 4, 3},
                     .commit = {5, 6, 5},
                     .voted = {true, false, true},
                     .hash = {6, 0, 6}};
    struct view_body v = decided(&f);

    (void)state;
    assert_int_equal(v.round, 4);
    assert_int_equal(v.commit.b[0], 6);
    f = (struct fate){.round = {3, 4, 3}, .commit = {5, 6, 5}};
    f.restarted[1] = true; /* it is not left, and the others did not vote */
    assert_int_equal(decided(&f).round, 3);
}

/* One of three names a commit that the two others did not vote for, of the same
 * round or of a later one, or other tokens than they. */
static void one_member_invents_no_commit(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        struct fate f = {.round = {3, 3, 3}, .commit = {5, 5, 5}};
        struct view_body v;

        f.commit[k] = 4;
        assert_int_equal(decided(&f).commit.b[0], 5);
        f.round[k] = 4;
        v = decided(&f);
        assert_int_equal(v.round, 3);
        assert_int_equal(v.commit.b[0], 5);
        f.round[k] = 1000;
        assert_int_equal(decided(&f).round, 3);
        f = (struct fate){.round = {3, 3, 3}, .commit = {5, 5, 5}};
        f.tokens[k] = 1 << 20;
        assert_int_equal(decided(&f).tokens, 0);
        /* It says that it voted, in a plan of its own. */
        f = (struct fate){.round = {3, 3, 3}, .commit = {5, 5, 5}};
        f.voted[k] = true;
        f.hash[k] = 9;
        f.alone = 1 << k;
        v = decided(&f);
        assert_int_equal(v.round, 3);
        assert_int_equal(v.commit.b[0], 5);
        f.wild = f.alone;
        assert_int_equal(decided(&f).round, 3);
        f = (struct fate){.round = {3, 3, 3}, .commit = {5, 5, 5}};
        f.round[k] = 4;
        f.commit[k] = 9;
        f.alone = f.wild = 1 << k;
        assert_int_equal(decided(&f).round, 3);
        /* Nor does it take one back that the two others hold. */
        f = (struct fate){.round = {4, 4, 4}, .commit = {6, 6, 6}};
        f.round[k] = 3;
        f.commit[k] = 5;
        v = decided(&f);
        assert_int_equal(v.round, 4);
        assert_int_equal(v.commit.b[0], 6);
    }
}

static void who_is_not_in_the_plan_does_not_stand_against_it(void **state)
{
    struct fate f = {
        .voted = {true, false, true}, .hash = {5, 0, 5}, .outside = 1};

    (void)state;
    assert_int_equal(decided(&f).round, 1);
    f.round[1] = 1; /* the others voted on what it holds already */
    f.commit[1] = 5;
    assert_int_equal(decided(&f).round, 1);
    assert_int_equal(decided(&f).commit.b[0], 5);
}

/* Actor i went on in another view, of a fork, and says so to actor k. */
static void is_elsewhere(struct cast *c, int k, int i)
{
    int row = members_find(&c->a[k]->members, &c->a[i]->identity.id);
    struct member *p = &c->a[k]->members.peers[row];

    p->has_beat = p->beat.has_view = true;
    p->beat.view = c->a[k]->ballot.hash;
    p->beat.view.b[0] ^= 1;
    c->a[i]->ballot.hash = p->beat.view; /* it answers no ballot of ours */
}

/* Once, and as it was: what it promised stays promised. */
static void who_returns_is_in_the_view_that_it_was_in(void **state)
{
    struct cast *c = cast_open(3);
    struct ballot *b = &c->a[0]->ballot;
    struct ballot_record r = {.n_certs = 1};
    struct hash32 hash = b->hash;
    int self = b->self_index;

    (void)state;
    assert_false(ballot_return(b, c->now_ms)); /* it is in it */
    r.certs[0] = b->cert;
    r.has_promised = true;
    r.promised = 77;
    ballot_restart(b, c->now_ms);
    assert_false(ballot_return(b, c->now_ms)); /* it was in none */
    ballot_restore(b, &r);
    assert_true(b->restored && !b->have);
    assert_true(ballot_return(b, c->now_ms));
    assert_true(b->have && !b->restored && b->promised == 77);
    assert_int_equal(b->self_index, self);
    assert_true(hash32_eq(&b->hash, &hash));
    assert_true(ballot_descends_from(b, &hash));
    assert_true(ballot_take_view(b));
    assert_false(ballot_return(b, c->now_ms));
    cast_close(c);
}

/* One whose last view went on without it is in none. */
static void who_was_left_out_returns_to_no_view(void **state)
{
    struct cast *c = cast_open(3);
    struct ballot *b = &c->a[2]->ballot;
    struct ballot_record r = {.n_certs = 1};

    (void)state;
    cast_lose(c, 2);
    cast_wait(c, 10000);
    assert_int_equal(c->a[0]->ballot.cert.body.n_members, 2);
    r.certs[0] = c->a[0]->ballot.cert;
    ballot_restart(b, c->now_ms);
    ballot_restore(b, &r);
    assert_false(ballot_return(b, c->now_ms));
    assert_true(b->restored);
    assert_int_equal(b->self_index, -1);
    cast_close(c);
}

/* Two of six are linked, too, and are in a view of theirs, which gives way to
 * ours: without us they would wait for ever, and we for them. */
static void members_in_another_view_make_no_majority(void **state)
{
    struct cast *c = cast_open(6);

    (void)state;
    is_elsewhere(c, 0, 2);
    assert_true(ballot_sees_majority(&c->a[0]->ballot)); /* 5 of 6 */
    for (int k = 0; k < 2; k++) {
        for (int i = 2; i < 4; i++) {
            is_elsewhere(c, k, i);
        }
        for (int i = 4; i < 6; i++) {
            cast_notice(c, k, i);
        }
    }
    cast_cut(c, 4);
    cast_cut(c, 5);
    assert_false(ballot_sees_majority(&c->a[0]->ballot));
    cast_wait(c, FORK_MS - 1000);
    assert_int_equal(c->a[0]->ballot.cert.body.epoch, 1);
    cast_wait(c, 8000);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(c->a[k]->ballot.cert.body.epoch, 2);
        assert_true(c->a[k]->ballot.cert.body.fork);
        assert_int_equal(c->a[k]->ballot.cert.body.n_members, 2);
    }
    cast_close(c);
}

/* Who is reached over others said nothing here since its link went: that its
 * beat of then names an older view proves nothing. */
static void an_old_beat_of_a_member_without_a_link_proves_nothing(void **state)
{
    struct cast *c = cast_open(5);
    struct members *m = &c->a[0]->members;
    int rows[5];

    (void)state;
    for (int i = 2; i < 5; i++) {
        is_elsewhere(c, 0, i);
    }
    for (uint32_t i = 0; i < 5; i++) {
        rows[i] = c->a[0]->ballot.rows[i];
    }
    members_watch(m, rows, 5, &c->a[0]->ballot.hash, c->now_ms);
    m->peers[row_of(c, 0, 1)].hears = 0x1f;
    m->peers[row_of(c, 0, 1)].hears_view = get_u16(c->a[0]->ballot.hash.b);
    assert_false(ballot_sees_majority(&c->a[0]->ballot));
    for (int i = 2; i < 5; i++) {
        members_link_down(m, (uint32_t)i + 1, c->now_ms);
        assert_true(members_reaches(m, row_of(c, 0, i)));
    }
    assert_true(ballot_sees_majority(&c->a[0]->ballot));
    cast_close(c);
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

static struct join join_by(const struct cast *c, int who, uint64_t round)
{
    struct join j = {.body = {.round = round}};

    j.body.view = c->a[0]->ballot.hash;
    j.body.commit = c->a[0]->commit;
    for (uint32_t i = 0; i < c->n; i++) {
        j.body.linked[j.body.n_linked++] =
            (uint32_t)(id_u64(&c->a[i]->identity.id) >> 32);
    }
    assert_int_equal(
        message_sign(&c->a[who]->signer, &join_body_schema, &j.body, j.sig), 0);
    return j;
}

static struct join join_of(const struct cast *c, uint64_t round)
{
    return join_by(c, CAST_STRANGE, round);
}

/* Member i has it from the stranger. */
static void wants_in(struct cast *c, int i, const struct join *j)
{
    ballot_joiner_add(&c->a[i]->ballot, row_of(c, i, CAST_STRANGE), j,
                      j->body.round, &j->body.commit, c->now_ms);
}

static void joiners_come_in_at_a_boundary_only(void **state)
{
    struct cast *c = cast_open(3);
    struct join j = join_of(c, 0);

    (void)state;
    all_contribute(c); /* a round is in flight */
    for (int i = 0; i < 3; i++) {
        assert_true(c->a[i]->round.has_plan);
        wants_in(c, i, &j);
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
    finish_round(c);
    j = join_of(c, 1); /* it has fetched this commit, too */
    for (int i = 0; i < 3; i++) {
        wants_in(c, i, &j);
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
        wants_in(c, i, &j);
    }
    for (int i = 0; i < 5; i++) {
        struct ballot_context ctx = context(c, i);

        ballot_tick(&c->a[i]->ballot, &ctx);
        assert_int_equal(c->a[i]->ballot.phase,
                         i == boss ? BALLOT_GATHER : BALLOT_IDLE);
        assert_int_equal(c->a[i]->ballot.frozen, i == boss);
    }
    cast_close(c);
}

/* Three ask at once. Two say that they are linked to all four members, and each
 * is so to two: the two others do not sign a view with it. */
static void who_lies_about_its_links_keeps_no_other_out(void **state)
{
    struct cast *c = cast_open(4);
    struct join j = join_of(c, 0);

    (void)state;
    for (int i = 0; i < 4; i++) {
        int liar = CAST_STRANGE - 1 - i % 2;
        struct join lie = join_by(c, liar, 0);

        link_up(c, i, liar);
        ballot_joiner_add(&c->a[i]->ballot, row_of(c, i, liar), &lie, 0,
                          &lie.body.commit, c->now_ms);
        wants_in(c, i, &j);
    }
    cast_wait(c, 20000);
    for (int i = 0; i < 4; i++) {
        const struct view_body *v = &c->a[i]->ballot.cert.body;

        assert_int_equal(v->epoch, 2);
        assert_int_equal(v->n_members, 5);
        assert_true(view_index(v, &c->a[CAST_STRANGE]->identity.id) >= 0);
    }
    cast_close(c);
}

/* Of the stranger, who is on probation: it offers work for that round. */
static void offers(struct cast *c, uint64_t round)
{
    const struct ballot *b = &c->a[0]->ballot;
    struct ready m = {.body = {.epoch = b->cert.body.epoch,
                               .view = b->hash,
                               .round = round,
                               .tokens = 100,
                               .last_step = CAST_PERIOD}};

    assert_int_equal(message_sign(&c->a[CAST_STRANGE]->signer,
                                  &ready_body_schema, &m.body, m.sig),
                     0);
    say(c, CAST_STRANGE, 0, MESSAGE_READY, &m);
}

/* It names rounds that were over when it came, and one that is to come. */
static void
a_newcomer_offers_work_for_rounds_that_it_lives_through(void **state)
{
    struct cast *c = cast_open(3);
    const struct peer_id *id = &c->a[CAST_STRANGE]->identity.id;
    const struct probation *p = &c->a[0]->ballot.probation;
    struct join j;

    (void)state;
    for (int i = 0; i < 3; i++) {
        ballot_configure(&c->a[i]->ballot, FORK_MS, EXCHANGE_RING, 3);
    }
    for (int k = 0; k < 2; k++) {
        all_contribute(c);
        finish_round(c);
    }
    j = join_of(c, 2);
    for (int i = 0; i < 3; i++) {
        wants_in(c, i, &j);
    }
    cast_wait(c, 5000);
    assert_int_equal(c->a[0]->ballot.cert.body.n_members, 4);
    assert_false(view_counts(&c->a[0]->ballot.cert.body, id));
    for (uint64_t round = 1; round < 5; round++) {
        offers(c, round); /* the third is under way */
    }
    assert_int_equal(probation_rounds(p, id), 1);
    all_contribute(c);
    finish_round(c);
    assert_int_equal(probation_rounds(p, id), 2); /* said early */
    offers(c, 3);
    offers(c, 4);
    assert_int_equal(probation_rounds(p, id), 2);
    cast_close(c);
}

/* Actor 1 says that it is at `ip`; whether the next view says `there`. */
static bool is_at(struct cast *c, const uint8_t ip[4], const uint8_t there[4])
{
    const struct view_body *v = &c->a[0]->ballot.cert.body;
    struct msg_address at = {.port = 4001};
    uint64_t epoch = v->epoch;

    memcpy(&at.ip[12], ip, 4);
    prefix_map_v4(at.ip);
    members_observed(&c->a[1]->members, &at);
    members_set_port(&c->a[1]->members, at.port);
    /* Each may ask three times. */
    ballot_want(&c->a[epoch % 2 * 2]->ballot, BALLOT_WANT_CHANGE, c->now_ms);
    for (int t = 0; t < 100 && v->epoch == epoch; t++) {
        cast_wait(c, 100);
    }
    assert_int_equal(v->epoch, epoch + 1);
    at = v->members[view_index(v, &c->a[1]->identity.id)].address;
    return memcmp(&at.ip[12], there, 4) == 0;
}

/* It joined at an address that its links bear out, and seats are of address
 * groups: what a member says of itself later does not take it out of its own.
 */
static void no_member_moves_to_another_group_by_its_own_word(void **state)
{
    static const uint8_t lan[4] = {10, 0, 0, 7}, first[4] = {89, 1, 2, 3},
                         near[4] = {89, 1, 2, 9}, far[4] = {90, 1, 2, 3};
    struct cast *c = cast_open(3);

    (void)state;
    assert_true(is_at(c, lan, lan));
    assert_true(is_at(c, first, first));
    assert_true(is_at(c, near, near));
    assert_true(is_at(c, far, near));
    assert_true(is_at(c, lan, near));
    assert_true(is_at(c, first, first));
    cast_close(c);
}

static void who_holds_an_older_commit_is_not_let_in(void **state)
{
    struct cast *c = cast_open(3);
    struct join j = join_of(c, 7);

    (void)state;
    for (int i = 0; i < 3; i++) {
        wants_in(c, i, &j);
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
    ballot_joiner_add(b, row_of(c, 0, CAST_STRANGE), &j, 7, &base, 1000);
    assert_true(k->used);
    ballot_joiners_follow(b, &other, 8, &next, 900); /* of another branch */
    ballot_joiners_follow(b, &base, 9, &next, 900);  /* one is missing */
    ballot_joiners_follow(b, &base, 8, &next, 1001); /* said too long ago */
    assert_int_equal(k->round, 7);
    assert_true(hash32_eq(&k->commit, &base));
    ballot_joiners_follow(b, &base, 8, &next, 1000);
    assert_int_equal(k->round, 8);
    assert_true(hash32_eq(&k->commit, &next));
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
        struct event e = {.type = EVENT_LINK_UP,
                          .link_up.link = 100 + (uint32_t)k,
                          .link_up.inbound = true};
        struct identity id;

        identity_fake(&id, 1000 + k);
        e.link_up.peer = id.id;
        memcpy(e.link_up.public_key, id.public, 32);
        assert_true(
            members_link_up(&c->a[0]->members, &e.link_up, e.now_ms, c->out));
        ballot_joiner_add(b, members_find(&c->a[0]->members, &id.id), &j, 7,
                          &j.body.commit, c->now_ms);
        members_link_down(&c->a[0]->members, e.link_up.link, c->now_ms);
    }
    wants_in(c, 0, &j);
    for (int k = 0; k < BALLOT_JOINERS_MAX; k++) {
        here += b->joiners[k].used &&
                b->joiners[k].peer == row_of(c, 0, CAST_STRANGE);
    }
    assert_int_equal(here, 1);
    cast_close(c);
}

/* Actor 0 was in a view with the others, and founds one with the stranger. */
static bool founds(uint32_t least, uint32_t least_old, bool old_one)
{
    struct cast *c = cast_open(3);
    struct ballot_founding f = {
        .epoch = 2, .least = least, .least_old = least_old};
    struct ballot_context ctx;
    const int rows[2] = {row_of(c, 0, CAST_STRANGE), row_of(c, 0, 1)};
    bool have;

    for (int i = 0; i < 3; i++) {
        ballot_drop_view(&c->a[i]->ballot, c->now_ms);
    }
    ctx = context(c, 0);
    ballot_found(&c->a[0]->ballot, &ctx, rows, old_one ? 2 : 1, &f);
    mail(c, 0);
    settle(c, 0);
    cast_run(c);
    cast_wait(c, BALLOT_MS);
    have = c->a[0]->ballot.have;
    assert_true(!have || c->a[0]->ballot.cert.body.epoch == 2);
    cast_close(c);
    return have;
}

static void a_founding_needs_enough_and_enough_of_the_old_view(void **state)
{
    (void)state;
    assert_true(founds(2, 1, false));
    assert_false(founds(3, 1, false));
    assert_false(founds(1, 2, false));
    assert_true(founds(3, 2, true));
    assert_false(founds(3, 3, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_member_leaves_by_the_next_view),
        cmocka_unit_test(who_was_left_out_by_the_others_is_known),
        cmocka_unit_test(the_highest_accepted_value_is_proposed_again),
        cmocka_unit_test(all_left_voted_the_same_commits),
        cmocka_unit_test(half_of_all_that_voted_the_same_commit),
        cmocka_unit_test(of_two_results_most_votes_commit),
        cmocka_unit_test(who_saw_that_a_plan_is_not_true_decides_nothing),
        cmocka_unit_test(two_more_than_may_lie_have_the_bytes),
        cmocka_unit_test(restarted_members_count_but_are_not_left),
        cmocka_unit_test(the_newest_commit_goes_on),
        cmocka_unit_test(one_member_invents_no_commit),
        cmocka_unit_test(who_is_not_in_the_plan_does_not_stand_against_it),
        cmocka_unit_test(who_returns_is_in_the_view_that_it_was_in),
        cmocka_unit_test(who_was_left_out_returns_to_no_view),
        cmocka_unit_test(members_in_another_view_make_no_majority),
        cmocka_unit_test(an_old_beat_of_a_member_without_a_link_proves_nothing),
        cmocka_unit_test(a_lone_survivor_forks_only_after_its_time),
        cmocka_unit_test(a_majority_never_forks),
        cmocka_unit_test(only_the_next_coordinator_asks_for_a_joiners_view),
        cmocka_unit_test(who_lies_about_its_links_keeps_no_other_out),
        cmocka_unit_test(joiners_come_in_at_a_boundary_only),
        cmocka_unit_test(
            a_newcomer_offers_work_for_rounds_that_it_lives_through),
        cmocka_unit_test(no_member_moves_to_another_group_by_its_own_word),
        cmocka_unit_test(who_holds_an_older_commit_is_not_let_in),
        cmocka_unit_test(
            who_said_of_late_that_it_holds_a_commit_follows_the_next),
        cmocka_unit_test(joiners_that_went_away_free_their_places),
        cmocka_unit_test(a_founding_needs_enough_and_enough_of_the_old_view),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
