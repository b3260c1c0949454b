/* chain_test.c - chains of views: what proves, what does not, how short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/round/chain.h"
#include "p2p/round/history.h"
#include "proto/base/err.h"

#define PEERS 2400U

static struct identity who[PEERS];
static struct signer pen[PEERS];
static struct hash32 run = {{7}};
static struct chain_rules rules = {.min_peers = 3};

struct fixture {
    struct chain c, other;
    uint8_t bytes[CHAIN_BYTES_MAX], other_bytes[CHAIN_BYTES_MAX];
};

static int start(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    for (uint64_t i = 0; i < PEERS && rules.signer == NULL; i++) {
        identity_fake(&who[i], 100 + i);
        pen[i] = signer_keyed(&who[i]);
    }
    rules.run = run;
    rules.signer = &pen[0];
    chain_init(&f->c, f->bytes);
    chain_init(&f->other, f->other_bytes);
    *state = f;
    return 0;
}

static int stop(void **state)
{
    free(*state);
    return 0;
}

/* Signed anew, by [signers, signers + n). */
static void seal(struct view_cert *c, uint32_t signers, uint32_t n)
{
    struct ballot_body b = {.ballot = c->ballot};

    view_hash(&c->body, &b.view);
    c->n_sigs = 0;
    for (uint32_t i = signers; i < signers + n; i++) {
        struct view_signature *s = &c->sigs[c->n_sigs++];

        memcpy(s->public_key, who[i].public, 32);
        assert_int_equal(message_sign(&pen[i], &ballot_body_schema, &b, s->sig),
                         0);
    }
}

/* Peers [from, from + n), signed by [signers, signers + n_signers). */
static struct view_cert view_of(uint64_t epoch,
                                enum view_mode mode,
                                uint32_t from,
                                uint32_t n,
                                uint32_t signers,
                                uint32_t n_signers)
{
    struct view_cert c = {.ballot = 5};

    c.body.run = run;
    c.body.epoch = epoch;
    c.body.prev = run;
    c.body.mode = (uint8_t)mode;
    c.body.n_members = n;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(c.body.members[i].public_key, who[from + i].public, 32);
    }
    assert_int_equal(view_sort(&c.body), 0);
    if (mode != VIEW_FOUND || epoch > 1) {
        c.body.round = epoch;
        c.body.tokens = epoch * 1000;
        c.body.commit.b[0] = (uint8_t)epoch;
    }
    seal(&c, signers, n_signers);
    return c;
}

/* The same, marked as a fork of a view of the peers [root, root + n_roots). */
static struct view_cert fork_of(struct view_cert c,
                                uint32_t root,
                                uint32_t n_roots,
                                uint32_t signers,
                                uint32_t n_signers)
{
    struct view_body old = {.n_members = n_roots};

    for (uint32_t i = 0; i < n_roots; i++) {
        memcpy(old.members[i].public_key, who[root + i].public, 32);
    }
    assert_int_equal(view_sort(&old), 0);
    c.body.fork = true;
    c.body.n_roots = n_roots;
    for (uint32_t i = 0; i < n_roots; i++) {
        c.body.roots[i] = view_member_id(&old.members[i]);
    }
    seal(&c, signers, n_signers);
    return c;
}

static struct view_cert genesis(void)
{
    return view_of(1, VIEW_FOUND, 0, 4, 0, 4);
}

static void extend(struct fixture *f, struct view_cert c, int rv)
{
    struct chain before = f->c;

    assert_int_equal(chain_extend(&f->c, &rules, &c), rv);
    if (rv != 0) {
        assert_memory_equal(&before, &f->c, sizeof before);
    } else {
        struct hash32 hash;

        view_hash(&c.body, &hash);
        assert_true(chain_proves(&f->c, &hash));
    }
}

static void read_again(struct fixture *f)
{
    assert_int_equal(chain_read(&f->other, &rules, f->c.bytes, f->c.used), 0);
    assert_int_equal(f->other.used, f->c.used);
    assert_memory_equal(f->other.bytes, f->c.bytes, f->c.used);
    assert_int_equal(chain_n_weak(&f->other), chain_n_weak(&f->c));
}

static void a_chain_begins_with_a_founding_that_all_signed(void **state)
{
    struct fixture *f = *state;
    struct view_cert c = genesis();

    extend(f, view_of(1, VIEW_FOUND, 0, 4, 0, 3), LOCO_ESIG);
    extend(f, view_of(1, VIEW_FOUND, 0, 2, 0, 2), LOCO_ESIG); /* min_peers */
    extend(f, view_of(1, VIEW_MAJORITY, 0, 4, 0, 4), LOCO_ESIG);
    extend(f, view_of(2, VIEW_FOUND, 0, 4, 0, 4), LOCO_ESIG); /* a round */
    c.body.run.b[0] ^= 1;
    extend(f, c, LOCO_EPROTO);
    c = genesis();
    c.sigs[2].sig[5] ^= 1;
    extend(f, c, LOCO_ESIG);
    c = genesis();
    c.sigs[2] = c.sigs[1]; /* one signs twice */
    extend(f, c, LOCO_ESIG);
    extend(f, genesis(), 0);
    read_again(f);
}

/* Nobody has committed anything in it, and nothing was before it. */
static void a_founding_has_no_past(void **state)
{
    struct fixture *f = *state;

    for (int how = 0; how < 7; how++) {
        struct view_cert c = genesis();
        struct view_member first = c.body.members[0];

        c.body.mode = how == 1 ? VIEW_MAJORITY : c.body.mode;
        c.body.prev.b[0] ^= how == 2;
        c.body.round = how == 3;
        c.body.tokens = how == 4;
        c.body.commit.b[0] = how == 5;
        if (how == 6) { /* nor are its members in any order */
            c.body.members[0] = c.body.members[1];
            c.body.members[1] = first;
        }
        seal(&c, 0, 4);
        chain_init(&f->c, f->bytes);
        extend(f, c, how == 0 ? 0 : how < 6 ? LOCO_ESIG : LOCO_EPROTO);
    }
}

static void members_that_stay_prove_any_number_of_epochs_with_two(void **state)
{
    struct fixture *f = *state;

    extend(f, genesis(), 0);
    for (uint32_t e = 2; e < 500; e++) {
        extend(f, view_of(e, VIEW_MAJORITY, 0, 4 + e % 3, 0, 3), 0);
        assert_int_equal(f->c.n, 2);
    }
    read_again(f);
}

/* One of four goes and one comes in each epoch. */
static void what_is_kept_grows_with_the_turnover(void **state)
{
    struct fixture *f = *state;

    extend(f, genesis(), 0);
    for (uint32_t e = 2; e < 80; e++) {
        extend(f, view_of(e, VIEW_MAJORITY, e - 1, 4, e - 2, 4), 0);
    }
    assert_true(f->c.n > 20 && f->c.n <= 52);
    assert_int_equal(chain_n_weak(&f->c), 0);
    read_again(f);
}

static void half_of_a_view_ties_nothing(void **state)
{
    struct fixture *f = *state;
    uint32_t lowest = 0;

    extend(f, genesis(), 0);
    for (uint32_t i = 1; i < 4; i++) {
        lowest = id_cmp(&who[i].id, &who[lowest].id) < 0 ? i : lowest;
    }
    /* A half counts only with the lowest id in it. */
    extend(f,
           lowest < 2 ? view_of(2, VIEW_MAJORITY, 2, 4, 2, 2)
                      : view_of(2, VIEW_MAJORITY, 0, 2, 0, 2),
           LOCO_ESIG);
    extend(f, view_of(2, VIEW_MAJORITY, 10, 4, 10, 4), LOCO_ESIG);
    extend(f, view_of(1, VIEW_MAJORITY, 0, 4, 0, 4), LOCO_ESIG); /* epoch */
}

static void a_fork_is_a_weak_tie_until_more_than_half_is_back(void **state)
{
    struct fixture *f = *state;

    extend(f, genesis(), 0);
    extend(f, fork_of(view_of(2, VIEW_FORK, 3, 1, 3, 1), 0, 4, 3, 1), 0);
    assert_int_equal(chain_n_weak(&f->c), 1);
    /* The fork grows. */
    extend(f, fork_of(view_of(3, VIEW_MAJORITY, 3, 3, 3, 1), 0, 4, 3, 1), 0);
    assert_int_equal(f->c.n, 3);
    read_again(f);
    extend(f, view_of(4, VIEW_MAJORITY, 0, 6, 0, 6), 0); /* healed */
    assert_int_equal(f->c.n, 2);
    assert_int_equal(chain_n_weak(&f->c), 0);
    read_again(f);
    /* All its members must have signed, one of them of the view before. */
    extend(f, fork_of(view_of(5, VIEW_FORK, 0, 2, 0, 1), 0, 6, 0, 1),
           LOCO_ESIG);
    extend(f, fork_of(view_of(5, VIEW_FORK, 20, 2, 20, 2), 0, 6, 20, 2),
           LOCO_ESIG);
    extend(f, fork_of(view_of(5, VIEW_FORK, 0, 2, 0, 2), 0, 6, 0, 2), 0);
}

/* Else whoever forks alone would found a branch as good as all others'. */
static void the_mark_of_a_fork_cannot_be_dropped(void **state)
{
    struct fixture *f = *state;

    extend(f, genesis(), 0);
    extend(f, view_of(2, VIEW_FORK, 3, 1, 3, 1), LOCO_ESIG); /* none */
    extend(f, fork_of(view_of(2, VIEW_FORK, 3, 1, 3, 1), 3, 1, 3, 1),
           LOCO_ESIG); /* its own root only: then it holds all of them */
    extend(f, fork_of(view_of(2, VIEW_FORK, 3, 1, 3, 1), 1, 4, 3, 1),
           LOCO_ESIG); /* another root */
    extend(f, fork_of(view_of(2, VIEW_FORK, 3, 1, 3, 1), 0, 4, 3, 1), 0);
    /* With 20 that nobody knows it is one of four roots still. */
    extend(f, view_of(3, VIEW_MAJORITY, 3, 21, 3, 1), LOCO_ESIG);
    extend(f, fork_of(view_of(3, VIEW_MAJORITY, 3, 21, 3, 1), 0, 4, 3, 1), 0);
    /* More than half of the roots: a mark would be wrong. */
    extend(f, fork_of(view_of(4, VIEW_MAJORITY, 0, 4, 0, 24), 0, 4, 0, 24),
           LOCO_ESIG);
    extend(f, view_of(4, VIEW_MAJORITY, 0, 4, 0, 24), 0);
    read_again(f);
}

static void what_follows_is_signed_by_more_than_half(void **state)
{
    struct view_cert from = genesis();
    struct view_cert to = view_of(7, VIEW_MAJORITY, 0, 3, 0, 3);
    struct hash32 hash;

    (void)state;
    view_hash(&from.body, &hash);
    assert_true(chain_follows(&from.body, &hash, &to, &pen[0]));
    seal(&to, 0, 1);
    assert_false(chain_follows(&from.body, &hash, &to, &pen[0]));
    to = fork_of(view_of(7, VIEW_FORK, 3, 1, 3, 1), 0, 4, 3, 1);
    assert_false(chain_follows(&from.body, &hash, &to, &pen[0]));
    to = view_of(7, VIEW_MAJORITY, 0, 3, 0, 3);
    to.sigs[0].sig[0] ^= 1;
    to.sigs[1].sig[0] ^= 1;
    assert_false(chain_follows(&from.body, &hash, &to, &pen[0]));
}

static void who_comes_back_after_all_had_stopped_is_tied(void **state)
{
    struct fixture *f = *state;

    extend(f, genesis(), 0);
    extend(f, view_of(9, VIEW_FOUND, 0, 3, 0, 3), 0);
    assert_int_equal(chain_n_weak(&f->c), 0);
    extend(f, fork_of(view_of(12, VIEW_FOUND, 2, 1, 2, 1), 0, 3, 2, 1), 0);
    assert_int_equal(chain_n_weak(&f->c), 1);
    read_again(f);
}

static void damaged_chains_prove_nothing(void **state)
{
    struct fixture *f = *state;
    uint8_t *copy = malloc(CHAIN_BYTES_MAX);
    uint32_t used;

    assert_non_null(copy);
    extend(f, genesis(), 0);
    extend(f, view_of(2, VIEW_MAJORITY, 0, 4, 0, 4), 0);
    used = f->c.used;
    for (uint32_t len = 0; len < used; len += 1 + len / 50) {
        bool whole = len == f->c.link[0].at + f->c.link[0].len;

        assert_int_equal(chain_read(&f->other, &rules, f->c.bytes, len) == 0,
                         whole);
        assert_int_equal(f->other.n, whole);
    }
    for (uint32_t at = 0; at < used; at += 7) {
        int rv;

        memcpy(copy, f->c.bytes, used);
        copy[at] ^= 4;
        rv = chain_read(&f->other, &rules, copy, used);
        /* Three of four signatures are enough for the second view. */
        assert_true(rv != 0 || at > f->c.link[1].at);
        assert_false(rv == 0 && !chain_proves(&f->other, &f->c.link[1].hash));
    }
    free(copy);
}

static void a_chain_that_is_full_stays_as_it_is(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 1;

    extend(f, genesis(), 0);
    for (; n < CHAIN_LINKS_MAX; n++) { /* a new group each time */
        extend(f, view_of(n + 1, VIEW_MAJORITY, 4 * n, 4, 4 * n - 4, 4), 0);
    }
    assert_int_equal(f->c.n, CHAIN_LINKS_MAX);
    extend(f, view_of(n + 1, VIEW_MAJORITY, 4 * n, 4, 4 * n - 4, 4),
           LOCO_EFULL);
    read_again(f);
}

/* 64 members, 12 KB of each view. */
static void a_chain_of_large_views_ends_before_its_memory(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 1;
    int rv = 0;

    extend(f, view_of(1, VIEW_FOUND, 0, 64, 0, 64), 0);
    for (; rv == 0; n++) { /* a new group each time */
        struct view_cert c =
            view_of(n + 1, VIEW_MAJORITY, 64 * n, 64, 64 * (n - 1), 64);

        rv = chain_extend(&f->c, &rules, &c);
    }
    assert_int_equal(rv, LOCO_EFULL);
    assert_true(f->c.n < CHAIN_LINKS_MAX && f->c.used <= CHAIN_BYTES_MAX);
    assert_true(f->c.used > CHAIN_BYTES_MAX / 10 * 9);
    read_again(f);
}

/* ---- commits ------------------------------------------------------------ */

/* All members of its plan vote for it, in that view. */
static void vote_for(struct commit *c, const struct view_cert *v)
{
    const struct plan_body *p = &c->plan.body;
    struct vote_body vote = {.epoch = v->body.epoch, .round = p->round};

    view_hash(&v->body, &vote.view);
    vote.result = c->result;
    message_hash(&plan_body_schema, "loco-plan-1", p, &vote.plan);
    c->n_votes = p->n_members;
    for (uint32_t i = 0; i < p->n_members; i++) {
        const uint8_t *key = v->body.members[p->members[i].index].public_key;

        for (uint32_t k = 0; k < PEERS; k++) {
            if (memcmp(who[k].public, key, 32) == 0) {
                assert_int_equal(message_sign(&pen[k], &vote_body_schema, &vote,
                                              c->votes[i].sig),
                                 0);
            }
        }
    }
}

static struct commit
commit_of(const struct view_cert *v, uint64_t round, uint32_t n_members)
{
    struct commit c = {.result = {{3}}};

    c.plan.body.epoch = v->body.epoch;
    c.plan.body.round = round;
    c.plan.body.n_members = n_members;
    view_hash(&v->body, &c.plan.body.view);
    for (uint32_t i = 0; i < n_members; i++) {
        c.plan.body.members[i].index = (uint8_t)i;
    }
    vote_for(&c, v);
    return c;
}

/* Whatever its members sign. */
static void a_commit_is_one_of_its_view(void **state)
{
    struct view_cert v = view_of(3, VIEW_MAJORITY, 0, 4, 0, 4);
    struct hash32 hash;

    (void)state;
    view_hash(&v.body, &hash);
    for (int how = 0; how < 5; how++) {
        struct commit c = commit_of(&v, 4, 3);
        struct plan_body *p = &c.plan.body;

        p->epoch += how == 1;
        p->view.b[0] ^= how == 2;
        for (uint32_t k = 0; k < 3 && how == 3; k++) {
            p->members[k].index = 3; /* one is not three */
        }
        p->n_members = how == 4 ? 0 : 3;
        vote_for(&c, &v);
        assert_int_equal(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]),
                         how == 0);
    }
}

static void a_commit_needs_the_votes_of_its_plan_in_its_view(void **state)
{
    struct view_cert v = view_of(3, VIEW_MAJORITY, 0, 4, 0, 4);
    struct commit c = commit_of(&v, 4, 3);
    struct hash32 hash, other = {{1}};

    (void)state;
    view_hash(&v.body, &hash);
    assert_true(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    assert_false(chain_commit_valid(&v.body, &other, 0, &c, &pen[0]));
    c.votes[1].sig[0] ^= 1;
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    c.votes[1].sig[0] ^= 1;
    c.result.b[9] ^= 1;
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    c = commit_of(&v, 4, 1); /* signed, but not by more than half */
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    c = commit_of(&v, 4, 3);
    c.n_votes = 0;
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    c.plan.body.members[0].index = 200;
    c.n_votes = 3;
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
}

/* Member i of the view says that it has no part in the plan and follows it. */
static void
witness(struct commit *c, const struct view_cert *v, uint32_t i, bool honest)
{
    struct vote_body vote = {.epoch = v->body.epoch,
                             .round = c->plan.body.round};
    struct view_signature *s = &c->votes[c->n_votes++];

    view_hash(&v->body, &vote.view);
    vote.result.b[0] = !honest;
    message_hash(&plan_body_schema, "loco-plan-1", &c->plan.body, &vote.plan);
    memcpy(s->public_key, v->body.members[i].public_key, 32);
    for (uint32_t k = 0; k < PEERS; k++) {
        if (memcmp(who[k].public, s->public_key, 32) == 0) {
            assert_int_equal(
                message_sign(&pen[k], &vote_body_schema, &vote, s->sig), 0);
        }
    }
}

/* Three of five may be one liar's and two, twice. */
static void a_commit_of_few_needs_witnesses(void **state)
{
    struct view_cert v = view_of(3, VIEW_MAJORITY, 0, 5, 0, 4);
    struct commit c = commit_of(&v, 4, 3);
    struct hash32 hash;

    (void)state;
    view_hash(&v.body, &hash);
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    witness(&c, &v, 1, true); /* has a part in it: counts once */
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    witness(&c, &v, 3, false);
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    assert_true(chain_commit_valid(&v.body, &hash, 1U << 4, &c, &pen[0]));
    witness(&c, &v, 4, true);
    assert_true(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    memset(c.votes[5].public_key, 7, 32); /* of nobody */
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
}

static void a_view_vouches_for_the_commit_that_it_starts_from(void **state)
{
    struct view_cert v = view_of(3, VIEW_MAJORITY, 0, 4, 0, 4);
    struct commit c = {.result = {{3}}};
    struct hash32 hash;

    (void)state;
    c.plan.body.round = v.body.round;
    message_commit_hash(&c.plan.body, &c.result, &v.body.commit);
    view_hash(&v.body, &hash);
    assert_true(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
    c.result.b[0] ^= 1;
    assert_false(chain_commit_valid(&v.body, &hash, 0, &c, &pen[0]));
}

/* As many as there may be, of two ranges each. */
static void hold_leases(struct plan_body *p)
{
    p->n_ledgers = 1;
    p->ledgers[0].n_held = LEDGER_HELD_MAX;
    for (uint32_t i = 0; i < LEDGER_HELD_MAX; i++) {
        p->ledgers[0].held[i] =
            (struct lease){.holder = UINT64_MAX - LEDGER_HELD_MAX + i,
                           .n_ranges = 2,
                           .ranges = {{1 << 24, 500}, {1 << 25, 500}}};
    }
}

static void a_history_keeps_the_newest_records_of_one_branch(void **state)
{
    struct view_cert v = view_of(3, VIEW_MAJORITY, 0, 64, 0, 4);
    struct history *h = calloc(1, sizeof *h);
    struct commit c, got;

    (void)state;
    assert_non_null(h);
    for (uint64_t r = 1; r <= 24 + HISTORY_MAX; r++) {
        c = commit_of(&v, r, 2);
        history_add(h, &c);
    }
    assert_int_equal(h->n, HISTORY_MAX);
    assert_false(history_get(h, 24, &got));
    assert_true(history_get(h, 25, &got));
    assert_int_equal(got.plan.body.round, 25);
    c = commit_of(&v, 30, 4); /* another branch */
    history_add(h, &c);
    assert_true(history_get(h, 30, &got));
    assert_int_equal(got.n_votes, 4);
    assert_false(history_get(h, 31, &got));
    for (uint64_t r = 31; r <= 60; r++) { /* 64 members: 12 KB each */
        c = commit_of(&v, r, 64);
        hold_leases(&c.plan.body);
        history_add(h, &c);
        assert_true(history_get(h, r, &got));
        assert_int_equal(got.plan.body.n_members, 64);
    }
    assert_true(h->n >= 3 && h->n < HISTORY_MAX);
    assert_true(h->used <= HISTORY_BYTES);
    free(h);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_chain_begins_with_a_founding_that_all_signed),
        TEST(a_founding_has_no_past),
        TEST(members_that_stay_prove_any_number_of_epochs_with_two),
        TEST(what_is_kept_grows_with_the_turnover),
        TEST(half_of_a_view_ties_nothing),
        TEST(a_fork_is_a_weak_tie_until_more_than_half_is_back),
        TEST(the_mark_of_a_fork_cannot_be_dropped),
        TEST(what_follows_is_signed_by_more_than_half),
        TEST(who_comes_back_after_all_had_stopped_is_tied),
        TEST(damaged_chains_prove_nothing),
        TEST(a_chain_that_is_full_stays_as_it_is),
        TEST(a_chain_of_large_views_ends_before_its_memory),
        TEST(a_commit_is_one_of_its_view),
        TEST(a_commit_needs_the_votes_of_its_plan_in_its_view),
        TEST(a_commit_of_few_needs_witnesses),
        TEST(a_view_vouches_for_the_commit_that_it_starts_from),
        TEST(a_history_keeps_the_newest_records_of_one_branch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
