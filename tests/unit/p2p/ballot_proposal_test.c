/* ballot_proposal_test.c - what the owner of a ballot shows, and what it makes
 * up: who is asked to sign makes the value again. */
#include "tests/unit/p2p/ballots.h"

/* ---- what the owner of a ballot makes up -------------------------------- */

#define N_INVENTED 13

/* Two of four, without the one whose half counts as more than half. */
static uint32_t minority(const struct cast *c)
{
    int lowest = actor_of(c, 0);

    return 15U ^ 1U << lowest ^ 1U << (lowest == 3 ? 2 : 3);
}

/* Of four: what actor 1 would like to be signed, where it owns the ballot. Its
 * own name is under all of it, and of the others under what they said. */
static void invent(const struct cast *c, int how, struct accept *a)
{
    struct proposal *p = &a->of.proposal;
    struct view_body *v = &p->value;
    struct prepare q = prepare_of(c, a->ballot);
    struct identity made_up;
    struct statement said = says(c, 0);

    identity_fake(&made_up, 99);
    switch (how) {
    case 1: /* itself and keys of its own: attacks.md, finding 2 */
        memcpy(v->members[0].public_key, made_up.public, 32);
        (void)view_sort(v);
        break;
    case 2: /* without a member that promised */
        v->n_members--;
        break;
    case 3: /* another commit than theirs */
        v->commit.b[0] ^= 1;
        break;
    case 4: /* more tokens than they have */
        v->tokens++;
        break;
    case 5: /* a later round */
        v->round++;
        break;
    case 6: /* two of four promised */
        accept_by(c, a->ballot, minority(c), NULL, a);
        break;
    case 7: /* what another one said, changed by the owner */
        said.tokens = 777;
        accept_by(c, a->ballot, 15, &said, a);
        p->n_promises = promises_of(c, &q, 15, NULL, p->promises);
        for (uint32_t i = 0; i < p->n_promises; i++) {
            p->promises[i].said.tokens = 777;
        }
        break;
    case 8: /* what it said of another ballot */
        q.ballot--;
        p->n_promises = promises_of(c, &q, 15, NULL, p->promises);
        break;
    case 9: /* one promise twice */
        p->promises[1] = p->promises[0];
        break;
    case 10: /* a pair that is cut off, which nobody said */
        v->n_edges = 1;
        v->edges[0] = 1 << 8;
        break;
    case 11: /* a joiner that did not ask */
        memcpy(v->members[v->n_members].public_key, made_up.public, 32);
        v->members[v->n_members].joined = v->epoch;
        v->members[v->n_members++].slot = ++v->slots;
        (void)view_sort(v);
        break;
    case 12: /* two of four have accepted something: it must be proposed */
        said.has_accepted = true;
        accept_by(c, a->ballot, 15, NULL, a);
        for (uint32_t i = 0; i < 2; i++) {
            p->promises[i].said = said;
            sign_promise(c, actor_of(c, i), &q, &p->promises[i]);
        }
        break;
    default:
        break;
    }
    sign_accept(c, a);
}

static void a_value_is_what_its_promises_give(void **state)
{
    (void)state;
    for (int how = 0; how < N_INVENTED; how++) {
        struct cast *c = cast_open(4);
        struct prepare p = prepare_of(c, ballot_of(c, 1, 1));
        struct accept *a = accept_of(c, p.ballot);

        say(c, 1, 0, MESSAGE_PREPARE, &p);
        invent(c, how, a);
        say(c, 1, 0, MESSAGE_ACCEPT, a);
        assert_int_equal(c->a[0]->ballot.has_accepted, how == 0);
        assert_int_equal(c->a[0]->ballot.malformed, how > 0);
        free(a);
        cast_close(c);
    }
}

/* An owner that is wrong once gets no second look in the same ballot. */
static void a_ballot_is_looked_at_once(void **state)
{
    struct cast *c = cast_open(4);
    struct prepare p = prepare_of(c, ballot_of(c, 1, 1));
    struct accept *a = accept_of(c, p.ballot);

    (void)state;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    a->of.sig[0] ^= 1; /* its owner did not sign it */
    say(c, 1, 0, MESSAGE_ACCEPT, a);
    assert_int_equal(c->a[0]->ballot.malformed, 1);
    a->of.sig[0] ^= 1;
    say(c, 1, 0, MESSAGE_ACCEPT, a);
    assert_false(c->a[0]->ballot.has_accepted);
    assert_int_equal(c->a[0]->ballot.malformed, 1);
    free(a);
    cast_close(c);
}

/* The owner has promises of three of four and says nothing of the fourth. Who
 * hears that one refuses, until another owner leaves it out as well. */
static void a_member_that_is_heard_is_left_out_by_two_owners(void **state)
{
    (void)state;
    for (int heard = 0; heard < 2; heard++) {
        struct cast *c = cast_open(4);
        const struct ballot *b = &c->a[0]->ballot;
        uint64_t first = ballot_of(c, 1, 1), second;
        struct prepare p = prepare_of(c, first);
        struct accept *a = accept_of(c, first);
        struct member *third = &c->a[0]->members.peers[row_of(c, 0, 3)];

        third->heard_ms = c->a[0]->members.now_ms - (heard ? 0 : 1);
        say(c, 1, 0, MESSAGE_PREPARE, &p);
        accept_by(c, first, 7, NULL, a);
        say(c, 1, 0, MESSAGE_ACCEPT, a);
        assert_int_equal(b->has_accepted, !heard);
        assert_int_equal(b->malformed, 0);
        first = ballot_of(c, 1, first + 1); /* it tries again */
        accept_by(c, first, 7, NULL, a);
        say(c, 1, 0, MESSAGE_ACCEPT, a);
        assert_int_equal(b->has_accepted, !heard);
        second = ballot_of(c, 2, first + 1);
        accept_by(c, second, 7, NULL, a);
        say(c, 2, 0, MESSAGE_ACCEPT, a);
        assert_int_equal(b->has_accepted, true);
        free(a);
        cast_close(c);
    }
}

/* It does not come into the next view, and still minds who does. */
static void a_restarted_member_agrees_as_others_do(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct cast *c = cast_open(4);
        struct ballot *b = &c->a[0]->ballot;
        uint64_t ballot = ballot_of(c, 1, 1);
        struct prepare p = prepare_of(c, ballot);
        struct accept *a = accept_of(c, ballot);

        accept_by(c, ballot, how == 1 ? 7 : how == 2 ? 14 : 15, NULL, a);
        ballot_drop_view(b, c->now_ms);
        say(c, 1, 0, MESSAGE_PREPARE, &p);
        assert_true(b->has_promised);
        say(c, 1, 0, MESSAGE_ACCEPT, a);
        /* 1: it hears the one that is left out; 2: it promised, too */
        assert_int_equal(b->has_accepted, how == 0);
        assert_int_equal(b->malformed, 0);
        free(a);
        cast_close(c);
    }
}

static void who_promised_signs_no_view_without_itself(void **state)
{
    struct cast *c = cast_open(4);
    uint64_t ballot = ballot_of(c, 1, 1);
    struct prepare p = prepare_of(c, ballot);
    struct accept *a = accept_of(c, ballot);

    (void)state;
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    accept_by(c, ballot, 14, NULL, a);
    say(c, 1, 0, MESSAGE_ACCEPT, a);
    assert_false(c->a[0]->ballot.has_accepted);
    assert_int_equal(c->a[0]->ballot.malformed, 0);
    free(a);
    cast_close(c);
}

/* Actor 1 proposes a view with one more: `who`, whose JOIN names `n` members of
 * four as linked, the others first. */
static struct accept *
with_joiner(const struct cast *c, uint64_t ballot, int who, uint32_t n, int how)
{
    struct accept *a = accept_of(c, ballot);
    struct proposal *p = &a->of.proposal;
    struct view_member *m = &p->value.members[p->value.n_members++];
    struct joining *j = &p->joins[p->n_joins++];
    const struct identity *id = &c->a[who]->identity;
    struct identity made_up;
    struct signer pen;

    identity_fake(&made_up, 99);
    id = how == 1 ? &made_up : id; /* nobody has that key */
    pen = signer_keyed(id);
    memcpy(j->public_key, id->public, 32);
    j->join.body.run = p->value.run;
    j->join.body.round = p->value.round + (how == 2); /* of no such round */
    j->join.body.commit = p->value.commit;
    j->join.body.commit.b[0] ^= how == 3; /* of another commit */
    message_join_proof(&j->join.body, &c->a[0]->past.sample, &id->id,
                       &j->join.body.proof);
    j->join.body.proof.b[3] ^= how == 6; /* it holds no state */
    j->join.body.state.b[0] ^= how == 7; /* but another one */
    for (int i = 3; i >= 0 && n > 0; i--, n--) {
        j->join.body.linked[j->join.body.n_linked++] =
            (uint32_t)(id_u64(&c->a[i]->identity.id) >> 32);
    }
    assert_int_equal(
        message_sign(&pen, &join_body_schema, &j->join.body, j->join.sig), 0);
    j->join.sig[0] ^= how == 4; /* it did not ask */
    memcpy(m->public_key, id->public, 32);
    m->joined = p->value.epoch;
    m->full_since = how == 5 ? FULL_NEVER : (uint32_t)p->value.epoch;
    assert_int_equal(view_sort(&p->value), 0);
    lease_slots(&c->a[0]->ballot.cert.body, &p->value);
    sign_accept(c, a);
    return a;
}

static bool takes_in_after(uint32_t rounds, uint32_t n_linked, int how)
{
    struct cast *c = cast_open(4);
    struct prepare p = prepare_of(c, ballot_of(c, 1, 1));
    struct accept *a;
    bool signs;

    c->a[0]->has_past = how != 8; /* it never had that state */
    c->a[0]->past.round = c->a[0]->known;
    c->a[0]->past.commit = c->a[0]->commit;
    c->a[0]->past.sample.b[0] = 77;
    a = with_joiner(c, p.ballot, CAST_STRANGE, n_linked, how == 8 ? 6 : how);
    ballot_configure(&c->a[0]->ballot, FORK_MS, EXCHANGE_RING, rounds);
    if (how == 9) { /* a proof is held that it lied */
        ballot_convict(&c->a[0]->ballot, &c->a[CAST_STRANGE]->identity.id);
    }
    say(c, 1, 0, MESSAGE_PREPARE, &p);
    say(c, 1, 0, MESSAGE_ACCEPT, a);
    signs = c->a[0]->ballot.has_accepted;
    assert_true(signs || (how == 0 && rounds == 0) || how == 1 || how == 6 ||
                how == 7 || how == 9 || c->a[0]->ballot.malformed == 1);
    free(a);
    cast_close(c);
    return signs;
}

static bool takes_in(uint32_t n_linked, int how)
{
    return takes_in_after(0, n_linked, how);
}

/* Where the member had the state that it names. */
static void a_newcomer_that_an_owner_shows_proves_its_state(void **state)
{
    (void)state;
    assert_false(takes_in(4, 6));
    assert_false(takes_in(4, 7));
    assert_true(takes_in(4, 8)); /* it cannot tell */
}

static void a_newcomer_that_lied_is_not_let_in(void **state)
{
    (void)state;
    assert_true(takes_in(4, 0));
    assert_false(takes_in(4, 9));
    assert_false(takes_in(3, 9)); /* which is not linked to us */
}

/* No owner of a ballot makes anybody full, nor leaves it on probation. */
static void a_newcomer_is_on_probation_where_the_run_says_so(void **state)
{
    (void)state;
    assert_true(takes_in_after(3, 4, 5));
    assert_false(takes_in_after(3, 4, 0));
    assert_false(takes_in_after(0, 4, 5));
}

/* Who says that it is linked to us is; else more than half are to say so. */
static void a_newcomer_is_there_and_holds_the_commit(void **state)
{
    (void)state;
    assert_true(takes_in(4, 0));
    assert_true(takes_in(3, 0)); /* not to us */
    assert_false(takes_in(2, 0));
    assert_false(takes_in(4, 1));
    for (int how = 2; how < 5; how++) {
        assert_false(takes_in(4, how));
    }
}

/* ---- a value that is proposed again ------------------------------------- */

/* Three of four answer in a later ballot, of another owner; `claim`: of those,
 * who say that they accepted the value of the first one. */
static struct accept *again(const struct cast *c,
                            uint64_t ballot,
                            uint32_t who,
                            uint32_t claim,
                            const struct accept *first)
{
    struct accept *a = calloc(1, sizeof *a);
    struct prepare p = prepare_of(c, ballot);

    assert_non_null(a);
    *a = *first;
    a->ballot = ballot;
    a->n_promises = promises_of(c, &p, who, NULL, a->promises);
    for (uint32_t i = 0; i < a->n_promises; i++) {
        int actor = actor_of(c, a->promises[i].member);

        if (claim >> actor & 1) {
            a->promises[i].said.has_accepted = true;
            a->promises[i].said.accepted_ballot = first->ballot;
            view_hash(&first->of.proposal.value,
                      &a->promises[i].said.accepted_view);
            sign_promise(c, actor, &p, &a->promises[i]);
        }
    }
    sign_accept(c, a);
    return a;
}

/* The value of ballot `first`, which some have accepted, is proposed by actor 2
 * in a later one. */
static void a_value_is_proposed_again_where_it_may_be_in_force(void **state)
{
    (void)state;
    for (int how = 0; how < 8; how++) {
        struct cast *c = cast_open(4);
        uint64_t ballot = ballot_of(c, 1, 1);
        uint64_t later = ballot_of(c, 2, ballot + 1);
        struct prepare p = prepare_of(c, later);
        struct accept *first = accept_of(c, ballot), *a;
        /* Who answered is two claims and one that is not there; three of whom
         * nobody claims; two, too few. */
        uint32_t who = how == 3 ? minority(c) : 14;
        uint32_t claim = how == 2 ? 0 : 6;

        say(c, 2, 0, MESSAGE_PREPARE, &p);
        a = again(c, later, who, claim, first);
        if (how == 1) { /* not in order */
            a->promises[1].member = a->promises[0].member;
        }
        if (how == 4) { /* of another value */
            a->of.proposal.value.tokens++;
        } else if (how == 5) { /* they did not say that */
            a->promises[0].sig[0] ^= 1;
        } else if (how == 6) { /* it is none of its first ballot */
            a->of.proposal.ballot--;
        } else if (how == 7) { /* not in this ballot */
            a->n_promises = 0;
        }
        sign_accept(c, a);
        say(c, 2, 0, MESSAGE_ACCEPT, a);
        assert_int_equal(c->a[0]->ballot.has_accepted, how == 0);
        assert_int_equal(c->a[0]->ballot.malformed, how > 0);
        free(a);
        free(first);
        cast_close(c);
    }
}

/* Another owner has to propose again what the first one made without a member
 * that is heard here. The next one goes through: it may be in force. */
static void a_value_without_a_member_is_refused_once_again(void **state)
{
    struct cast *c = cast_open(4);
    uint64_t ballot = ballot_of(c, 1, 1);
    uint64_t later = ballot_of(c, 2, ballot + 1);
    struct prepare p = prepare_of(c, later);
    struct accept *first = accept_of(c, ballot), *a;

    (void)state;
    accept_by(c, ballot, 7, NULL, first);
    say(c, 2, 0, MESSAGE_PREPARE, &p);
    a = again(c, later, 7, 6, first);
    say(c, 2, 0, MESSAGE_ACCEPT, a);
    assert_false(c->a[0]->ballot.has_accepted);
    free(a);
    later = ballot_of(c, 2, later + 1);
    a = again(c, later, 7, 6, first);
    say(c, 2, 0, MESSAGE_ACCEPT, a);
    assert_true(c->a[0]->ballot.has_accepted);
    assert_int_equal(c->a[0]->ballot.malformed, 0);
    free(a);
    free(first);
    cast_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_what_its_promises_give),
        cmocka_unit_test(a_ballot_is_looked_at_once),
        cmocka_unit_test(a_member_that_is_heard_is_left_out_by_two_owners),
        cmocka_unit_test(a_restarted_member_agrees_as_others_do),
        cmocka_unit_test(a_value_without_a_member_is_refused_once_again),
        cmocka_unit_test(who_promised_signs_no_view_without_itself),
        cmocka_unit_test(a_newcomer_is_there_and_holds_the_commit),
        cmocka_unit_test(a_newcomer_that_lied_is_not_let_in),
        cmocka_unit_test(a_newcomer_is_on_probation_where_the_run_says_so),
        cmocka_unit_test(a_newcomer_that_an_owner_shows_proves_its_state),
        cmocka_unit_test(a_value_is_proposed_again_where_it_may_be_in_force),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
