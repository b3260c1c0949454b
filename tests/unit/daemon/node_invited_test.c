/* node_invited_test.c - a run for invited peers: who is let in, and who is not
 * any more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/daemon/hand.h"

#define NUMBER 7 /* of puppet 0's invitation; puppet 1 has the next one */
#define WALL_S 1700000000ULL

struct fixture {
    struct hand *h;
    struct identity author, guest; /* the invitations' own key */
    struct signer author_pen, guest_pen;
};

/* A node that knows that the run is for invited peers, and is linked to nobody.
 */
static struct fixture *open_fixture(void)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->h = hand_open(2);
    f->h->obedient = false;
    identity_fake(&f->author, 5000);
    identity_fake(&f->guest, 5001);
    f->author_pen = signer_keyed(&f->author);
    f->guest_pen = signer_keyed(&f->guest);
    f->h->terms.invited = true;
    memcpy(f->h->terms.author, f->author.public, 32);
    hand_wait(f->h, 1000);
    assert_true(f->h->in.data->configured);
    assert_int_equal(f->h->n_hang_ups, 2); /* they come again, and are judged */
    return f;
}

static void close_fixture(struct fixture *f)
{
    hand_close(f->h);
    free(f);
}

static void author_signs(const struct fixture *f, struct admission *m)
{
    assert_int_equal(message_sign(&f->author_pen, &invitation_body_schema,
                                  &m->invitation.body, m->invitation.sig),
                     0);
}

static void guest_proves(const struct fixture *f,
                         const struct peer_id *peer,
                         struct admission *m)
{
    const struct admission_body body = {.peer = *peer};

    assert_int_equal(
        message_sign(&f->guest_pen, &admission_body_schema, &body, m->proof),
        0);
}

/* What puppet p shows. */
static struct admission admission_of(const struct fixture *f, uint32_t p)
{
    struct admission m = {.invitation.body = {.number = NUMBER + p}};

    memcpy(m.invitation.body.key, f->guest.public, 32);
    author_signs(f, &m);
    guest_proves(f, &f->h->puppet[p].id, &m);
    return m;
}

/* Puppet p is there again, and says nothing yet. */
static void knock(struct fixture *f, uint32_t p)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .link_up.link = ++f->h->next_link,
                      .link_up.inbound = true,
                      .link_up.peer = f->h->puppet[p].id,
                      .link_up.address = {.port = (uint16_t)(4001 + p)}};

    memcpy(e.link_up.public_key, f->h->puppet[p].public, 32);
    f->h->link[p] = e.link_up.link;
    hand_post(f->h, &e);
}

static void show(struct fixture *f, uint32_t p, const struct admission *m)
{
    knock(f, p);
    hand_say(f->h, p, MESSAGE_ADMISSION, m);
    hand_drain(f->h, HAND_EVENTS);
}

static bool is_in(const struct fixture *f, uint32_t p)
{
    int row = members_find(f->h->in.members, &f->h->puppet[p].id);

    return row != MEMBERS_NONE && f->h->in.members->peers[row].n_links > 0;
}

/* What the node said last to somebody whom it refused. */
static enum refusal said(const struct fixture *f)
{
    const struct hand_message *last = &f->h->last[MESSAGE_REFUSED];
    struct refused m;

    if (f->h->n_sent[MESSAGE_REFUSED] == 0) {
        return REFUSAL_NONE;
    }
    assert_int_equal(msg_decode(&refused_schema, last->bytes, last->len, &m),
                     0);
    return (enum refusal)m.reason;
}

static void who_shows_an_invitation_of_the_author_is_let_in(void **state)
{
    (void)state;
    for (int how = 0; how < 9; how++) {
        struct fixture *f = open_fixture();
        struct admission m = admission_of(f, 0);
        struct invitation_body *b = &m.invitation.body;
        enum refusal want = REFUSAL_INVALID;

        switch (how) {
        case 0: /* to another run */
            b->run.b[0] ^= 1;
            author_signs(f, &m);
            break;
        case 1: /* of nobody that is known */
            m.invitation.sig[0] ^= 1;
            break;
        case 2: /* which it has changed */
            b->number++;
            break;
        case 3: /* which another one has shown */
            guest_proves(f, &f->h->puppet[1].id, &m);
            break;
        case 4: /* without its secret */
            m.proof[0] ^= 1;
            break;
        case 5:
            b->expiry_s = WALL_S;
            author_signs(f, &m);
            want = REFUSAL_EXPIRED;
            break;
        case 6:
            b->expiry_s = WALL_S + 1000;
            author_signs(f, &m);
            want = REFUSAL_NONE;
            break;
        default: /* without an end */
            want = REFUSAL_NONE;
            break;
        }
        show(f, 0, &m);
        assert_int_equal(said(f), want);
        assert_int_equal(is_in(f, 0), want == REFUSAL_NONE);
        assert_int_equal(f->h->link[0] != 0, want == REFUSAL_NONE);
        close_fixture(f);
    }
}

static void who_shows_none_is_told_so(void **state)
{
    struct fixture *f = open_fixture();
    struct hello hello = {
        .life = 7, .oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};
    struct revocation r = {.body = {.sequence = 1}};

    (void)state;
    knock(f, 0);
    hand_say(f->h, 0, MESSAGE_HELLO, &hello);
    hand_drain(f->h, HAND_EVENTS);
    assert_int_equal(said(f), REFUSAL_NOT_INVITED);
    assert_int_equal(f->h->link[0], 0);
    knock(f, 0);
    hand_say(f->h, 0, MESSAGE_REVOCATION, &r);
    hand_drain(f->h, HAND_EVENTS);
    assert_int_equal(f->h->n_sent[MESSAGE_REFUSED], 2);
    knock(f, 1); /* and who says nothing, later */
    hand_wait(f->h, 4900);
    assert_int_equal(f->h->n_sent[MESSAGE_REFUSED], 2);
    hand_wait(f->h, 1000);
    assert_int_equal(f->h->n_sent[MESSAGE_REFUSED], 3);
    assert_int_equal(said(f), REFUSAL_NOT_INVITED);
    assert_false(is_in(f, 0) || is_in(f, 1));
    assert_int_equal(f->h->n_sent[MESSAGE_HELLO], 2); /* of the first links */
    close_fixture(f);
}

/* The second one comes before the link is down. */
static void who_was_refused_is_not_heard_again_on_that_link(void **state)
{
    struct fixture *f = open_fixture();
    struct admission bad = admission_of(f, 0), good = bad;

    (void)state;
    bad.proof[3] ^= 1;
    knock(f, 0);
    hand_say(f->h, 0, MESSAGE_ADMISSION, &bad);
    hand_say(f->h, 0, MESSAGE_ADMISSION, &good);
    hand_drain(f->h, 3); /* the link, and these two */
    assert_false(is_in(f, 0));
    hand_drain(f->h, HAND_EVENTS);
    assert_int_equal(f->h->n_sent[MESSAGE_REFUSED], 1);
    show(f, 0, &good); /* on a new one it may */
    assert_true(is_in(f, 0));
    hand_say(f->h, 0, MESSAGE_ADMISSION, &bad); /* it is in */
    hand_drain(f->h, HAND_EVENTS);
    assert_true(is_in(f, 0));
    assert_int_equal(f->h->n_sent[MESSAGE_REFUSED], 1);
    close_fixture(f);
}

/* Whoever has an invitation shows it, wherever it comes. */
static void a_run_for_everybody_asks_for_none(void **state)
{
    struct hand *h = hand_open(2);
    struct admission m = {.invitation.body = {.number = 1}};
    struct revocation r = {.body = {.sequence = 1}};

    (void)state;
    hand_wait(h, 1000);
    hand_say(h, 0, MESSAGE_ADMISSION, &m);
    hand_say(h, 0, MESSAGE_REVOCATION, &r);
    hand_drain(h, HAND_EVENTS);
    assert_int_equal(h->n_hang_ups, 0);
    assert_int_equal(h->n_sent[MESSAGE_REFUSED], 0);
    assert_int_equal(h->n_jobs[JOB_REVOKED], 0);
    hand_close(h);
}

/* Whoever is not in is not carried to who is. */
static void a_relay_is_for_who_is_let_in(void **state)
{
    struct fixture *f = open_fixture();
    struct event ask = {.type = EVENT_RELAY, .relay.request = 1};
    struct admission m = admission_of(f, 1);

    (void)state;
    show(f, 1, &m);
    knock(f, 0);
    ask.relay.peer = f->h->puppet[0].id;
    ask.relay.other = f->h->puppet[1].id;
    hand_post(f->h, &ask);
    hand_drain(f->h, HAND_EVENTS);
    assert_int_equal(f->h->n_actions[ACTION_RELAY_REFUSE], 1);
    assert_int_equal(f->h->n_sent[MESSAGE_CALLED], 0);
    m = admission_of(f, 0);
    show(f, 0, &m);
    hand_post(f->h, &ask);
    hand_drain(f->h, HAND_EVENTS);
    assert_int_equal(f->h->n_sent[MESSAGE_CALLED], 1);
    close_fixture(f);
}

/* ---- revocations --------------------------------------------------------- */

/* The author's list, with that number alone, from puppet 1. */
static struct revocation
list_of(const struct fixture *f, uint32_t sequence, uint32_t number)
{
    struct revocation m = {
        .body = {.sequence = sequence, .n_numbers = 1, .numbers = {number}}};

    assert_int_equal(
        message_sign(&f->author_pen, &revocation_body_schema, &m.body, m.sig),
        0);
    return m;
}

static void tell(struct fixture *f, const struct revocation *m)
{
    hand_say(f->h, 1, MESSAGE_REVOCATION, m);
    hand_drain(f->h, HAND_EVENTS);
}

static void both_are_let_in(struct fixture *f)
{
    for (uint32_t p = 0; p < 2; p++) {
        struct admission m = admission_of(f, p);

        show(f, p, &m);
        assert_true(is_in(f, p));
    }
}

static void whose_invitation_is_revoked_goes_and_stays_out(void **state)
{
    struct fixture *f = open_fixture();
    struct revocation m = list_of(f, 1, NUMBER);
    struct admission again = admission_of(f, 0);

    (void)state;
    both_are_let_in(f);
    tell(f, &m);
    assert_int_equal(said(f), REFUSAL_REVOKED);
    assert_false(is_in(f, 0));
    assert_true(is_in(f, 1)); /* who is told, too */
    assert_int_equal(f->h->n_sent[MESSAGE_REVOCATION], 1);
    assert_int_equal(f->h->last_to[MESSAGE_REVOCATION], f->h->link[1]);
    assert_int_equal(f->h->n_jobs[JOB_REVOKED], 1);
    show(f, 0, &again);
    assert_int_equal(f->h->n_sent[MESSAGE_REFUSED], 2);
    assert_int_equal(said(f), REFUSAL_REVOKED);
    assert_false(is_in(f, 0));
    tell(f, &m); /* no news */
    assert_int_equal(f->h->n_jobs[JOB_REVOKED], 1);
    close_fixture(f);
}

static void only_the_author_revokes_and_never_takes_it_back(void **state)
{
    struct fixture *f = open_fixture();
    struct revocation m = list_of(f, 5, NUMBER);
    struct node_status s;

    (void)state;
    both_are_let_in(f);
    m.sig[0] ^= 1;
    tell(f, &m);
    m = list_of(f, 5, NUMBER);
    m.body.run.b[0] ^= 1;
    assert_int_equal(
        message_sign(&f->author_pen, &revocation_body_schema, &m.body, m.sig),
        0);
    tell(f, &m);
    node_status(f->h->node, &s);
    assert_int_equal(s.malformed, 2);
    assert_true(is_in(f, 0));
    m = list_of(f, 5, NUMBER + 100);
    tell(f, &m);
    assert_int_equal(f->h->n_jobs[JOB_REVOKED], 1);
    m = list_of(f, 4, NUMBER); /* of before */
    tell(f, &m);
    assert_int_equal(f->h->n_jobs[JOB_REVOKED], 1);
    assert_true(is_in(f, 0));
    close_fixture(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_shows_an_invitation_of_the_author_is_let_in),
        cmocka_unit_test(who_shows_none_is_told_so),
        cmocka_unit_test(who_was_refused_is_not_heard_again_on_that_link),
        cmocka_unit_test(a_run_for_everybody_asks_for_none),
        cmocka_unit_test(a_relay_is_for_who_is_let_in),
        cmocka_unit_test(whose_invitation_is_revoked_goes_and_stays_out),
        cmocka_unit_test(only_the_author_revokes_and_never_takes_it_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
