/* pair_test.c - turns with a random partner: a few pair cores in one process,
 * messages in a queue, segments moved by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/pair/pair.h"
#include "proto/base/err.h"
#include "proto/sign.h"

#define ACTORS   3
#define QUEUE    512
#define POSTS    64
#define GRACE_MS 5000
#define HOP_MS   2000
#define SEGMENTS 3 /* of one vector */

struct actor {
    struct identity identity;
    struct members members;
    void *members_memory;
    struct pair pair;
    bool dead;
    uint32_t n_sent, n_posts;
    struct segment posts[POSTS];
    struct segment waiting[POSTS]; /* sent, not posted at the receiver yet */
    uint32_t n_waiting;
    uint64_t hash_request; /* 0: none asked for */
    uint8_t hash;          /* what its next hash is made of */
};

struct letter {
    int from, to;
    uint16_t type;
    size_t len;
    uint8_t bytes[256];
};

struct stage {
    uint64_t now_ms;
    uint32_t n; /* actors that take part */
    uint32_t incarnation;
    struct actor a[ACTORS];
    struct letter queue[QUEUE];
    uint32_t head, tail;
    struct out out;
    bool (*lose)(const struct letter *l);
    bool no_bytes; /* segments stay where they are */
    _Alignas(16) uint8_t scratch[64 << 10];
};

static int find(const struct stage *s, const struct peer_id *id)
{
    for (int i = 0; i < ACTORS; i++) {
        if (id_eq(&s->a[i].identity.id, id)) {
            return i;
        }
    }
    fail_msg("nobody has that id");
    return -1;
}

static void link_up(struct stage *s, int at, int whom)
{
    struct event e = {.type = EVENT_LINK_UP,
                      .now_ms = s->now_ms,
                      .link_up.link = (uint32_t)whom + 1,
                      .link_up.peer = s->a[whom].identity.id,
                      .link_up.request = UINT32_MAX};

    memcpy(e.link_up.public_key, s->a[whom].identity.public, 32);
    assert_true(
        members_link_up(&s->a[at].members, &e.link_up, e.now_ms, &s->out));
}

static void link_down(struct stage *s, int at, int whom)
{
    members_link_down(&s->a[at].members, (uint32_t)whom + 1, s->now_ms);
}

/* `at` hears from the third one that `whom` is alive, or is not. */
static void hear_of(struct stage *s, int at, int whom, enum peer_state state)
{
    static struct gossip g;
    struct members *m = &s->a[at].members;
    int third = ACTORS - at - whom; /* 0 + 1 + 2 */
    int row = members_find(m, &s->a[whom].identity.id);

    g = (struct gossip){.n_rumours = 1};
    g.rumours[0] = (struct rumour){.id = s->a[whom].identity.id,
                                   .incarnation = ++s->incarnation,
                                   .state = (uint8_t)state};
    members_on_gossip(m, members_find(m, &s->a[third].identity.id), &g,
                      &s->out);
    assert_int_equal(m->peers[row].state, state);
    s->out.n = 0;
}

/* `at` knows that `whom` takes part, and is at that round. */
static void know(struct stage *s, int at, int whom, uint64_t round)
{
    struct members *m = &s->a[at].members;
    int row = members_find(m, &s->a[whom].identity.id);
    struct heartbeat beat = {.has_view = true, .round = round};

    members_beat(m, row, &beat, s->now_ms);
    hear_of(s, at, whom, PEER_ALIVE);
}

static void unpost(struct actor *a, uint32_t k)
{
    a->posts[k] = a->posts[--a->n_posts];
}

static void take_out(struct stage *s, int i)
{
    struct actor *a = &s->a[i];

    for (uint32_t k = 0; k < s->out.n; k++) {
        const struct action *x = &s->out.action[k];
        struct letter *l = &s->queue[s->tail % QUEUE];

        if (x->type == ACTION_SEND) {
            assert_true(x->send.bytes.len <= sizeof l->bytes &&
                        s->tail - s->head < QUEUE);
            *l = (struct letter){.from = i,
                                 .to = (int)x->send.link - 1,
                                 .type = x->send.message,
                                 .len = x->send.bytes.len};
            memcpy(l->bytes, s->out.bytes + x->send.bytes.at,
                   x->send.bytes.len);
            s->tail++;
        } else if (x->type == ACTION_POST_RECV) {
            assert_true(a->n_posts < POSTS);
            a->posts[a->n_posts++] = x->segment;
        } else if (x->type == ACTION_SEND_SEG) {
            assert_true(a->n_waiting < POSTS);
            a->n_sent++;
            a->waiting[a->n_waiting++] = x->segment;
        } else if (x->type == ACTION_JOB && x->job.type == JOB_HASH) {
            a->hash_request = x->job.hash.request;
        } else if (x->type == ACTION_CANCEL) {
            for (uint32_t p = 0; p < a->n_posts;) {
                if (a->posts[p].attempt <= x->cancel.attempt) {
                    unpost(a, p);
                } else {
                    p++;
                }
            }
        }
    }
    s->out.n = s->out.n_bytes = s->out.dropped = 0;
}

static void
report(struct stage *s, int at, const struct segment *seg, bool sent, int rc)
{
    struct event e = {.type = EVENT_SEG_DONE,
                      .now_ms = s->now_ms,
                      .seg_done.segment = *seg,
                      .seg_done.sent = sent,
                      .seg_done.rc = rc};

    pair_seg_done(&s->a[at].pair, &e.seg_done, e.now_ms, &s->out);
    take_out(s, at);
}

/* One segment that was sent and is posted; false: there is none. */
static bool move_one(struct stage *s)
{
    for (int i = 0; i < ACTORS && !s->no_bytes; i++) {
        struct actor *a = &s->a[i];

        for (uint32_t k = 0; k < a->n_waiting; k++) {
            struct segment seg = a->waiting[k], as;
            struct actor *b = &s->a[find(s, &seg.peer)];

            for (uint32_t p = 0; p < b->n_posts; p++) {
                if (b->dead || a->dead || b->posts[p].seg != seg.seg ||
                    b->posts[p].attempt != seg.attempt) {
                    continue;
                }
                as = b->posts[p];
                assert_true(as.buffer == seg.buffer && as.len == seg.len &&
                            as.offset == seg.offset && as.index == seg.index);
                unpost(b, p);
                memmove(a->waiting + k, a->waiting + k + 1,
                        (--a->n_waiting - k) * sizeof seg);
                report(s, i, &seg, true, 0);
                report(s, (int)(b - s->a), &as, false, 0);
                return true;
            }
        }
    }
    return false;
}

static void deliver(struct stage *s, const struct letter *l)
{
    struct actor *a = &s->a[l->to];
    int row = members_find(&a->members, &s->a[l->from].identity.id);
    const void *msg = s->scratch;

    assert_int_equal(
        msg_decode(message_schema(l->type), l->bytes, l->len, s->scratch), 0);
    if (l->type == MESSAGE_PAIR) {
        pair_on_offer(&a->pair, row, msg, s->now_ms, &s->out);
    } else {
        assert_int_equal(l->type, MESSAGE_PAIR_HAVE);
        pair_on_have(&a->pair, row, msg, s->now_ms, &s->out);
    }
    take_out(s, l->to);
}

static void settle(struct stage *s)
{
    bool any = true;

    while (any) {
        any = false;
        while (s->head != s->tail) {
            struct letter l = s->queue[s->head++ % QUEUE];

            any = true;
            if (!s->a[l.to].dead && !s->a[l.from].dead &&
                (s->lose == NULL || !s->lose(&l))) {
                deliver(s, &l);
            }
        }
        any = move_one(s) || any;
        for (int i = 0; i < ACTORS; i++) {
            struct actor *a = &s->a[i];
            struct hash32 h = {{a->hash}};

            if (a->hash_request != 0 && !a->dead) {
                uint64_t request = a->hash_request;

                a->hash_request = 0;
                any = true;
                pair_hashed(&a->pair, request, 0, &h, s->now_ms, &s->out);
                take_out(s, i);
            }
        }
    }
}

/* Time goes on in steps of 100 ms. */
static void wait(struct stage *s, uint64_t ms)
{
    for (uint64_t end = s->now_ms + ms; s->now_ms < end;) {
        s->now_ms += 100;
        for (int i = 0; i < ACTORS; i++) {
            if (!s->a[i].dead) {
                pair_tick(&s->a[i].pair, s->now_ms, &s->out);
                take_out(s, i);
            }
        }
        settle(s);
    }
}

static void begin(struct stage *s, int i, uint64_t turn)
{
    pair_begin(&s->a[i].pair, turn, 0, s->now_ms, &s->out);
    take_out(s, i);
}

static void pack(struct stage *s, int i)
{
    pair_pack(&s->a[i].pair, s->now_ms, &s->out);
    take_out(s, i);
}

static void open_actor(struct stage *s, int i, uint64_t life)
{
    struct pair_options opt = {.self = s->a[i].identity.id,
                               .life = life,
                               .seed = 42,
                               .first_attempt = life << 20,
                               .hop_ms = HOP_MS};
    struct run_terms terms = {.n_params = 10 * SEGMENTS - 3,
                              .segment_elements = 10,
                              .segment_wire_bytes = 20,
                              .grace_ms = GRACE_MS,
                              .progress_floor_bytes_per_s = 1000};

    pair_init(&s->a[i].pair, &opt, &s->a[i].members);
    pair_configure(&s->a[i].pair, &terms);
    s->a[i].n_posts = s->a[i].n_waiting = 0;
    s->a[i].hash_request = 0;
}

/* n peers that know and are linked to each other. */
static struct stage *stage_of(void **state, uint32_t n)
{
    struct stage *s = *state;

    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            if (i != k) {
                link_up(s, (int)i, (int)k);
                know(s, (int)i, (int)k, 0);
            }
        }
    }
    s->out.n = 0;
    return s;
}

static int open_stage(void **state)
{
    struct stage *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->now_ms = 1000;
    for (int i = 0; i < ACTORS; i++) {
        struct members_options opt = {.seed = 1};

        identity_fake(&s->a[i].identity, (uint32_t)i);
        opt.self = s->a[i].identity.id;
        s->a[i].members_memory = malloc(members_bytes(&opt));
        assert_non_null(s->a[i].members_memory);
        members_init(&s->a[i].members, &opt, s->a[i].members_memory, s->now_ms);
        open_actor(s, i, 1);
        s->a[i].hash = 7;
    }
    *state = s;
    return 0;
}

static int close_stage(void **state)
{
    struct stage *s = *state;

    for (int i = 0; i < ACTORS; i++) {
        free(s->a[i].members_memory);
    }
    free(s);
    return 0;
}

static enum pair_end end_of(const struct stage *s, int i)
{
    return s->a[i].pair.phase == PAIR_DECIDED ? s->a[i].pair.end
                                              : PAIR_END_NONE;
}

#define ENDS(i, how) assert_int_equal(end_of(s, i), how)

static void begin_both(struct stage *s)
{
    begin(s, 0, 1);
    begin(s, 1, 1);
    settle(s);
}

/* ---- tests ------------------------------------------------------------ */

static void two_partners_step_together(void **state)
{
    struct stage *s = stage_of(state, 2);

    begin_both(s);
    assert_int_equal(s->a[0].pair.phase, PAIR_MOVING);
    assert_int_equal(s->a[1].pair.phase, PAIR_MOVING);
    pack(s, 0);
    settle(s);
    ENDS(0, PAIR_END_NONE);
    pack(s, 1);
    settle(s);
    ENDS(0, PAIR_END_BOTH);
    ENDS(1, PAIR_END_BOTH);
    pair_finish(&s->a[0].pair, &s->out);
    assert_int_equal(s->a[0].pair.phase, PAIR_IDLE);
    assert_true(pair_deadline(&s->a[0].pair) == CORE_NEVER);
}

static void the_anchor_travels_before_the_displacement_is_packed(void **state)
{
    struct stage *s = stage_of(state, 2);

    begin_both(s);
    assert_int_equal(s->a[0].n_sent, SEGMENTS);
    assert_int_equal(s->a[1].pair.got, SEGMENTS);
    pack(s, 0);
    settle(s);
    assert_int_equal(s->a[0].n_sent, 2 * SEGMENTS);
    assert_int_equal(s->a[1].pair.got, 2 * SEGMENTS);
    assert_int_equal(s->a[1].n_sent, SEGMENTS); /* it is not packed */
}

static void of_three_one_has_a_bye(void **state)
{
    struct stage *s = stage_of(state, 3);
    int with = 0, odd = 0;

    for (int i = 0; i < 3; i++) {
        begin(s, i, 1);
    }
    settle(s);
    for (int i = 0; i < 3; i++) {
        pack(s, i);
    }
    settle(s);
    for (int i = 0; i < 3; i++) {
        with += end_of(s, i) == PAIR_END_BOTH;
        odd += end_of(s, i) == PAIR_END_ODD;
    }
    assert_int_equal(with, 2);
    assert_int_equal(odd, 1);
}

static void other_lists_are_no_pair(void **state)
{
    struct stage *s = stage_of(state, 2);

    /* One of them knows a third peer: two epochs. */
    link_up(s, 1, 2);
    know(s, 1, 2, 0);
    begin_both(s);
    pack(s, 0);
    pack(s, 1);
    wait(s, GRACE_MS - 200);
    ENDS(0, PAIR_END_NONE);
    wait(s, 500);
    ENDS(0, PAIR_END_UNMET);
    assert_true(end_of(s, 1) == PAIR_END_UNMET ||
                end_of(s, 1) == PAIR_END_PASSED ||
                end_of(s, 1) == PAIR_END_ODD);
    assert_int_equal(s->a[0].n_sent + s->a[1].n_sent, 0);
}

static void a_list_that_changes_draws_anew_until_both_agree(void **state)
{
    struct stage *s = stage_of(state, 2);

    link_up(s, 1, 2);
    know(s, 1, 2, 0);
    begin_both(s);
    assert_int_equal(s->a[0].pair.phase, PAIR_OPEN);
    /* The third one is gone: the lists are the same. */
    link_down(s, 1, 2);
    hear_of(s, 1, 2, PEER_DEAD);
    wait(s, 1500);
    assert_int_equal(s->a[0].pair.phase, PAIR_MOVING);
    assert_int_equal(s->a[1].pair.phase, PAIR_MOVING);
    /* From now on a change of the list does not matter to them. */
    hear_of(s, 1, 2, PEER_ALIVE);
    wait(s, 1000);
    pack(s, 0);
    pack(s, 1);
    wait(s, 500);
    ENDS(0, PAIR_END_BOTH);
    ENDS(1, PAIR_END_BOTH);
}

static void a_slow_partner_is_waited_for_only_so_long(void **state)
{
    struct stage *s = stage_of(state, 2);

    begin_both(s);
    pack(s, 0);
    wait(s, GRACE_MS - 300);
    ENDS(0, PAIR_END_NONE);
    wait(s, 500);
    ENDS(0, PAIR_END_UNMET);
    /* The other one holds everything of the first, and is told. */
    pack(s, 1);
    settle(s);
    ENDS(1, PAIR_END_PASSED);
}

static void a_partner_that_died_costs_a_bye(void **state)
{
    struct stage *s = stage_of(state, 2);

    begin_both(s);
    s->a[1].dead = true;
    link_down(s, 0, 1);
    pack(s, 0);
    wait(s, GRACE_MS + 500);
    ENDS(0, PAIR_END_LATE);
}

static void before_it_is_packed_a_dead_partner_is_replaced(void **state)
{
    struct stage *s = stage_of(state, 2);

    begin_both(s);
    s->a[1].dead = true;
    link_down(s, 0, 1);
    hear_of(s, 0, 1, PEER_DEAD);
    wait(s, 500);
    assert_int_equal(s->a[0].pair.phase, PAIR_OPEN);
    /* It is alone in its list now. */
    assert_int_equal(s->a[0].pair.list.n, 1);
    pack(s, 0);
    ENDS(0, PAIR_END_ODD);
}

static bool lose_have(const struct letter *l)
{
    return l->type == MESSAGE_PAIR_HAVE;
}

static void who_holds_everything_steps_when_the_partner_is_gone(void **state)
{
    struct stage *s = stage_of(state, 2);

    s->lose = lose_have;
    begin_both(s);
    pack(s, 0);
    pack(s, 1);
    settle(s);
    assert_int_equal(s->a[0].pair.phase, PAIR_HOLDING);
    s->a[1].dead = true;
    link_down(s, 0, 1);
    wait(s, GRACE_MS - 300);
    ENDS(0, PAIR_END_NONE);
    wait(s, 500);
    ENDS(0, PAIR_END_HOLDER);
}

static bool lose_have_of_0(const struct letter *l)
{
    return l->type == MESSAGE_PAIR_HAVE && l->from == 0;
}

static void a_lost_confirmation_is_said_again_from_the_past(void **state)
{
    struct stage *s = stage_of(state, 2);

    s->lose = lose_have_of_0;
    begin_both(s);
    pack(s, 0);
    pack(s, 1);
    settle(s);
    ENDS(0, PAIR_END_BOTH);
    ENDS(1, PAIR_END_NONE);
    pair_finish(&s->a[0].pair, &s->out);
    s->out.n = 0;
    begin(s, 0, 2); /* two turns on it still knows */
    s->lose = NULL;
    wait(s, 1500);
    ENDS(1, PAIR_END_BOTH);
}

static void who_gives_up_says_so_and_the_holder_steps_alone(void **state)
{
    struct stage *s = stage_of(state, 2);

    begin_both(s);
    pack(s, 0);
    settle(s); /* 1 holds all of 0 */
    s->no_bytes = true;
    pack(s, 1);
    settle(s);
    assert_int_equal(s->a[1].pair.phase, PAIR_HOLDING);
    assert_int_equal(s->a[0].pair.phase, PAIR_MOVING);
    wait(s, HOP_MS + 500);
    ENDS(0, PAIR_END_LATE);
    ENDS(1, PAIR_END_PASSED);
}

static void other_bytes_are_not_applied(void **state)
{
    struct stage *s = stage_of(state, 2);

    s->a[1].hash = 8;
    begin_both(s);
    pack(s, 0);
    pack(s, 1);
    settle(s);
    assert_false(pair_with_partner(&s->a[0].pair));
    assert_false(pair_with_partner(&s->a[1].pair));
}

static void a_transfer_that_breaks_goes_on_from_there(void **state)
{
    struct stage *s = stage_of(state, 2);
    struct segment seg;
    uint32_t before;

    s->no_bytes = true;
    begin_both(s);
    s->no_bytes = false;
    assert_true(move_one(s));
    assert_true(s->a[0].pair.got + s->a[1].pair.got == 1);
    /* 1 receives no more: its connection broke. */
    seg = s->a[1].posts[0];
    before = s->a[1].pair.got;
    s->a[0].n_waiting = 0;
    s->a[1].n_posts = 0;
    report(s, 1, &seg, false, LOCO_ECLOSED);
    wait(s, 2500);
    assert_int_equal(s->a[1].pair.got, SEGMENTS);
    assert_int_equal(s->a[1].pair.n_resumed, 1);
    assert_true(s->a[0].n_sent <= 2 * SEGMENTS - before);
    pack(s, 0);
    pack(s, 1);
    settle(s);
    ENDS(0, PAIR_END_BOTH);
    ENDS(1, PAIR_END_BOTH);
}

static void a_partner_that_restarted_begins_again(void **state)
{
    struct stage *s = stage_of(state, 2);

    begin_both(s);
    pack(s, 0);
    settle(s);
    open_actor(s, 1, 2);
    begin(s, 1, 1);
    wait(s, 1500);
    assert_int_equal(s->a[0].pair.phase, PAIR_MOVING);
    assert_int_equal(s->a[1].pair.got, 2 * SEGMENTS);
    pack(s, 1);
    settle(s);
    ENDS(0, PAIR_END_BOTH);
    ENDS(1, PAIR_END_BOTH);
}

static void who_is_behind_counts_on_from_the_others(void **state)
{
    struct stage *s = stage_of(state, 2);

    know(s, 0, 1, 6);
    begin(s, 0, 3);
    assert_int_equal(s->a[0].pair.turn, 7);
    pair_finish(&s->a[0].pair, &s->out);
    pair_begin(&s->a[0].pair, 3, 5, s->now_ms, &s->out);
    assert_int_equal(s->a[0].pair.turn, 5); /* the run ends there */
}

/* Of three, two behind and one ahead: the two follow it, or it would be alone
 * for the rest of the run. */
static void half_of_the_others_take_us_along(void **state)
{
    struct stage *s = stage_of(state, 3);

    know(s, 0, 1, 3);
    know(s, 0, 2, 6);
    begin(s, 0, 4);
    assert_int_equal(s->a[0].pair.turn, 7);
}

/* 1 has all of ours, and asks for the last segment again each second. */
static void who_asks_for_ever_does_not_hold_us_up_for_ever(void **state)
{
    struct stage *s = stage_of(state, 2);
    uint64_t limit = GRACE_MS + 2 * SEGMENTS * (HOP_MS + 20);
    struct pair_offer m = {.kind = PAIR_PACKED, .turn = 1, .life = 1};
    struct segment seg;
    uint64_t from_ms;

    begin_both(s);
    s->no_bytes = true;
    pack(s, 0);
    from_ms = s->now_ms;
    s->a[1].dead = true; /* its own words are those below */
    m.epoch = s->a[0].pair.epoch;
    m.from = 2 * SEGMENTS - 1;
    for (m.attempt = 1000000000; end_of(s, 0) == PAIR_END_NONE; m.attempt++) {
        wait(s, 1000);
        assert_true(s->now_ms < from_ms + limit + 2000);
        s->a[0].n_waiting = 0;
        pair_on_offer(&s->a[0].pair,
                      members_find(&s->a[0].members, &s->a[1].identity.id), &m,
                      s->now_ms, &s->out);
        take_out(s, 0);
        if (s->a[0].n_waiting > 0) {
            seg = s->a[0].waiting[0];
            report(s, 0, &seg, true, 0);
        }
    }
    ENDS(0, PAIR_END_LATE);
    assert_true(s->now_ms >= from_ms + limit);
}

static void who_waits_moves_on_once(void **state)
{
    struct stage *s = stage_of(state, 2);

    begin(s, 0, 1);
    know(s, 0, 1, 4); /* while we trained */
    know(s, 1, 0, 0);
    begin(s, 1, 5);
    pack(s, 1);
    settle(s);
    pack(s, 0);
    assert_int_equal(s->a[0].pair.turn, 5);
    wait(s, 500);
    ENDS(0, PAIR_END_BOTH);
    ENDS(1, PAIR_END_BOTH);
}

static void what_was_said_twice_changes_nothing(void **state)
{
    struct stage *s = stage_of(state, 2);
    struct letter l[8];
    uint32_t n = 0;

    begin(s, 0, 1);
    begin(s, 1, 1);
    while (s->head != s->tail && n < 8) {
        l[n] = s->queue[s->head++ % QUEUE];
        deliver(s, &l[n]);
        deliver(s, &l[n++]);
    }
    settle(s);
    pack(s, 0);
    pack(s, 1);
    settle(s);
    ENDS(0, PAIR_END_BOTH);
    ENDS(1, PAIR_END_BOTH);
    for (uint32_t k = 0; k < n; k++) {
        deliver(s, &l[k]);
    }
    settle(s);
    assert_int_equal(s->a[0].pair.ends[PAIR_END_BOTH], 1);
    assert_int_equal(s->a[1].pair.ends[PAIR_END_BOTH], 1);
}

static void nonsense_is_dropped(void **state)
{
    struct stage *s = stage_of(state, 2);
    struct pair_offer m = {.kind = 200, .turn = 1};
    struct pair_have h = {.turn = 99};

    begin(s, 0, 1);
    pair_on_offer(&s->a[0].pair, 0, &m, s->now_ms, &s->out);
    assert_int_equal(s->a[0].pair.malformed, 1);
    pair_on_have(&s->a[0].pair, 0, &h, s->now_ms, &s->out);
    m = (struct pair_offer){.kind = PAIR_AGREED,
                            .turn = 1,
                            .epoch = s->a[0].pair.epoch,
                            .attempt = 5,
                            .from = UINT32_MAX};
    pair_on_offer(&s->a[0].pair, 0, &m, s->now_ms, &s->out);
    assert_int_equal(s->a[0].pair.to_next, 0);
}

#define TEST(name)                                                             \
    cmocka_unit_test_setup_teardown(name, open_stage, close_stage)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_partners_step_together),
        TEST(the_anchor_travels_before_the_displacement_is_packed),
        TEST(of_three_one_has_a_bye),
        TEST(other_lists_are_no_pair),
        TEST(a_list_that_changes_draws_anew_until_both_agree),
        TEST(a_slow_partner_is_waited_for_only_so_long),
        TEST(a_partner_that_died_costs_a_bye),
        TEST(before_it_is_packed_a_dead_partner_is_replaced),
        TEST(who_holds_everything_steps_when_the_partner_is_gone),
        TEST(a_lost_confirmation_is_said_again_from_the_past),
        TEST(who_gives_up_says_so_and_the_holder_steps_alone),
        TEST(other_bytes_are_not_applied),
        TEST(a_transfer_that_breaks_goes_on_from_there),
        TEST(a_partner_that_restarted_begins_again),
        TEST(who_is_behind_counts_on_from_the_others),
        TEST(half_of_the_others_take_us_along),
        TEST(who_asks_for_ever_does_not_hold_us_up_for_ever),
        TEST(who_waits_moves_on_once),
        TEST(what_was_said_twice_changes_nothing),
        TEST(nonsense_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
