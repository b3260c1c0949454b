/* lease_test.c - the ledger of leases: small cases, then random histories of
 * a swarm in which it decides what is trained. What must hold there:
 *
 *   W1  a position is spent once at most
 *   W2  every position below `next` is spent, held by one holder, or returned
 *   W3  nothing new is given out while something returned could be
 *   W4  when faults end, what was returned is spent within the next rounds
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "p2p/round/lease.h"
#include "p2p/round/text.h"
#include "proto/base/rng.h"

#define PEERS     12
#define QUOTA_MAX 12
#define SHARDS    6
#define SPAN      (1U << 16) /* positions that a history may reach */

/* ---- small cases -------------------------------------------------------- */

/* Members 1..n; bit i of `joined`: member i came with this view. */
static struct view_body view_of(uint32_t n, uint64_t epoch, uint64_t joined)
{
    struct view_body v = {.epoch = epoch, .n_members = n};

    for (uint32_t i = 0; i < n; i++) {
        v.members[i].public_key[0] = (uint8_t)(i + 1);
        v.members[i].joined = joined >> i & 1 ? epoch : 1;
    }
    return v;
}

static const uint64_t ids[VIEW_MEMBERS_MAX] = {10, 20, 30, 40, 50};

static void settle(struct ledger *l,
                   const struct view_body *v,
                   bool first,
                   const struct lease_spent *spent,
                   uint32_t n_spent)
{
    struct lease_commit c = {
        .quota = 4,
        .view = v,
        .holders = ids,
        .first = first,
        .spent = spent,
        .n_spent = n_spent,
    };

    lease_settle(l, &c);
}

static void a_first_view_gives_each_member_its_own_text(void **state)
{
    struct ledger l = {0};
    struct view_body v = view_of(3, 1, 7);
    struct lease lease;

    (void)state;
    lease_slots(NULL, &v);
    assert_int_equal(v.slots, 3);
    assert_true(lease_slots_valid(&v));
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(lease_of(&l, 4, &v, i, ids[i], true, &lease));
        assert_int_equal(lease.ranges[0].first, 4 * i);
        assert_int_equal(lease_count(&lease), 4);
    }
    assert_false(lease_of(&l, 4, &v, 0, ids[0], false, &lease));
}

static void a_commit_spends_the_front_and_fills_the_back(void **state)
{
    const struct lease_spent spent[2] = {{10, 1, 3}, {20, 5, 4}};
    struct ledger l = {0};
    struct view_body v = view_of(3, 1, 7);
    uint64_t at;

    (void)state;
    lease_slots(NULL, &v);
    settle(&l, &v, true, spent, 2);
    assert_int_equal(l.next, 12 + 3 + 4);
    assert_int_equal(l.n_held, 3);
    assert_true(lease_at(&l.held[0], 0, &at));
    assert_int_equal(at, 3); /* the fourth of its first four */
    assert_true(lease_at(&l.held[0], 3, &at));
    assert_int_equal(at, 14);
    assert_false(lease_at(&l.held[0], 4, &at));
    assert_true(lease_at(&l.held[1], 0, &at));
    assert_int_equal(at, 15);
    assert_true(lease_at(&l.held[2], 0, &at)); /* late: as before */
    assert_int_equal(at, 8);
    assert_int_equal(l.n_returned, 0);
}

static void who_is_gone_gives_back_after_some_commits(void **state)
{
    const struct lease_spent spent[1] = {{10, 1, 4}};
    struct ledger l = {0};
    struct view_body v = view_of(2, 1, 3), one = view_of(1, 2, 0);
    struct lease lease;

    (void)state;
    lease_slots(NULL, &v);
    settle(&l, &v, true, spent, 1); /* 10: [8, 12), 20: [4, 8) */
    for (uint32_t k = 0; k < LEASE_MISSED_MAX - 1; k++) {
        settle(&l, &one, false, NULL, 0);
        assert_int_equal(l.n_returned, 0);
    }
    /* Until then it may come back and find what it had. */
    assert_true(lease_of(&l, 4, &v, 1, 20, false, &lease));
    assert_int_equal(lease.ranges[0].first, 4);
    settle(&l, &one, false, NULL, 0);
    assert_int_equal(l.n_held, 1);
    assert_int_equal(l.n_returned, 1);
    assert_int_equal(l.returned[0].first, 4);
    settle(&l, &one, false, &(struct lease_spent){10, 9, 4}, 1);
    assert_int_equal(l.n_returned, 0); /* given out before anything new */
    assert_int_equal(l.held[0].ranges[0].first, 4);
    assert_int_equal(l.next, 12);
}

static void a_contribution_of_other_text_spends_nothing(void **state)
{
    const struct lease_spent other[2] = {{10, 3, 4}, {99, 1, 4}};
    struct ledger l = {0}, before;
    struct view_body v = view_of(2, 1, 3);

    (void)state;
    lease_slots(NULL, &v);
    settle(&l, &v, true, NULL, 0);
    before = l;
    settle(&l, &v, false, other, 2);
    assert_true(ledger_eq(&l, &before));
}

static void slots_of_who_left_again_come_back(void **state)
{
    struct ledger l = {0}, y;
    struct view_body v = view_of(1, 1, 1), w = view_of(3, 2, 6), x;
    struct lease lease;

    (void)state;
    lease_slots(NULL, &v);
    lease_slots(&v, &w); /* two join */
    assert_int_equal(w.slots, 3);
    x = w;
    x.epoch = 3;
    x.n_members = 2; /* the last one leaves */
    lease_slots(&w, &x);
    assert_int_equal(x.slots, 3);
    assert_true(lease_of(&l, 4, &x, 1, ids[1], true, &lease));
    assert_int_equal(lease.ranges[0].first, 4);
    settle(&l, &x, true, NULL, 0);
    assert_int_equal(l.next, 12);
    assert_int_equal(l.n_held, 3); /* two, and what the third one had */
    assert_int_equal(l.n_returned, 0);
    y = l;
    settle(&y, &x, false, &(struct lease_spent){30, 9, 3}, 1); /* is back */
    for (uint32_t k = 1; k < LEASE_MISSED_MAX; k++) {
        settle(&l, &x, false, NULL, 0);
        settle(&y, &x, false, NULL, 0);
    }
    assert_int_equal(l.n_held, 2);
    assert_int_equal(l.returned[0].first, 8);
    assert_int_equal(l.returned[0].n, 4);
    assert_int_equal(y.returned[0].first, 11);
    assert_int_equal(y.returned[0].n, 1);
}

/* A view that says nonsense: two with one slot, slots that are too many. */
static void wrong_slots_are_seen_and_harm_nobody(void **state)
{
    struct ledger l = {0};
    struct view_body v = view_of(2, 1, 3);
    struct lease lease;

    (void)state;
    lease_slots(NULL, &v);
    v.members[1].slot = v.members[0].slot;
    assert_false(lease_slots_valid(&v));
    assert_true(lease_of(&l, 4, &v, 0, 10, true, &lease));
    assert_false(lease_of(&l, 4, &v, 1, 20, true, &lease));
    v.members[1].slot = 3;
    assert_false(lease_slots_valid(&v));
    v.slots = UINT32_MAX;
    assert_false(lease_slots_valid(&v));
    settle(&l, &v, true, NULL, 0);
    assert_int_equal(l.next, 4ULL * LEDGER_SLOTS_MAX);
    assert_int_equal(l.n_held, LEDGER_HELD_MAX);
}

static void tables_that_are_full_lose_the_least(void **state)
{
    struct ledger l = {.next = 1000000};
    struct view_body v = view_of(1, 1, 0);

    (void)state;
    for (uint32_t i = 0; i < LEDGER_RETURNED_MAX; i++) {
        l.returned[i] = (struct lease_range){.first = 100 * i, .n = 10 + i};
    }
    l.n_returned = LEDGER_RETURNED_MAX;
    for (uint32_t i = 0; i < LEDGER_HELD_MAX; i++) {
        l.held[i] = (struct lease){.holder = 1000 + i, .n_ranges = 1};
        l.held[i].missed = i == 7;
        l.held[i].ranges[0] =
            (struct lease_range){.first = 500000 + 100 * i, .n = 50};
    }
    l.n_held = LEDGER_HELD_MAX;
    settle(&l, &v, false, NULL, 0);
    assert_int_equal(l.n_held, LEDGER_HELD_MAX);
    assert_int_equal(l.n_returned, LEDGER_RETURNED_MAX);
    assert_int_equal(l.held[0].holder, 10);
    /* The shortest was forgotten, the next one is in use by now. */
    assert_int_equal(l.held[0].ranges[0].first, 100);
    for (uint32_t i = 0; i < l.n_held; i++) {
        assert_true(l.held[i].holder != 1007);
    }
}

/* Who has not the text of what it holds gives it to somebody who has. */
static void a_member_holds_what_it_can_read(void **state)
{
    /* 10 has all, 20 has positions 3 to 5, 30 none that anybody was given. */
    const struct text_span texts[VIEW_MEMBERS_MAX] = {{0, 0}, {3, 6}, {1, 1}};
    struct ledger l = {0};
    struct view_body v = view_of(3, 1, 7);
    struct lease_commit c = {
        .quota = 4, .view = &v, .holders = ids, .texts = texts, .first = true};

    (void)state;
    lease_slots(NULL, &v);
    lease_settle(&l, &c); /* slots: [0, 4), [4, 8), [8, 12) */
    assert_int_equal(l.next, 12);
    assert_int_equal(l.held[0].ranges[0].first, 0);
    assert_int_equal(l.held[1].n_ranges, 1);
    assert_int_equal(l.held[1].ranges[0].first, 4);
    assert_int_equal(l.held[1].ranges[0].n, 2);
    assert_int_equal(l.held[2].n_ranges, 0);
    assert_int_equal(l.n_returned, 1);
    assert_int_equal(l.returned[0].first, 6);
    assert_int_equal(l.returned[0].n, 6);
    c.first = false;
    c.spent = &(struct lease_spent){10, 1, 4};
    c.n_spent = 1;
    lease_settle(&l, &c); /* who has all gets it before anything new */
    assert_int_equal(l.held[0].ranges[0].first, 6);
    assert_int_equal(l.next, 12);
}

/* Out of the middle of a returned range, and to the end of what is here. */
static void a_lease_ends_where_the_text_does(void **state)
{
    const struct text_span texts[VIEW_MEMBERS_MAX] = {{12, 14}};
    struct ledger l = {.next = 20, .n_returned = 1, .returned = {{10, 5}}};
    struct view_body v = view_of(1, 1, 0);
    struct lease_commit c = {
        .quota = 4, .view = &v, .holders = ids, .texts = texts};

    (void)state;
    lease_settle(&l, &c);
    assert_int_equal(lease_count(&l.held[0]), 2);
    assert_int_equal(l.held[0].ranges[0].first, 12);
    assert_int_equal(l.n_returned, 2);
    assert_int_equal(l.returned[0].first, 10);
    assert_int_equal(l.returned[0].n, 2);
    assert_int_equal(l.returned[1].first, 14);
    assert_int_equal(l.returned[1].n, 1);
    assert_int_equal(l.next, 20);
    c.texts = &(struct text_span){12, 21};
    lease_settle(&l, &c); /* 12, 13, 14 and one that is new */
    assert_int_equal(lease_count(&l.held[0]), 4);
    assert_int_equal(l.held[0].ranges[1].first, 20);
    assert_int_equal(l.next, 21);
}

/* ---- histories ---------------------------------------------------------- */

/* A process, and what it trained that is in no commit. */
struct worker {
    bool alive, member;
    uint32_t missed;  /* commits since it was a member */
    uint32_t n, made; /* of the contribution, 0: none; with steps beside */
    uint64_t lease;
    uint64_t at[QUOTA_MAX];
    uint64_t here; /* bit s: shard s of the text is */
    bool planned;  /* it is in the plan */
};

struct history {
    uint64_t rng;
    bool late; /* shards come while they train */
    uint32_t quota, overlap;
    struct ledger ledger;
    struct view_body view;
    uint64_t holders[VIEW_MEMBERS_MAX];
    bool first;
    struct worker workers[PEERS];
    uint8_t spent[SPAN];
    uint32_t most; /* ranges returned at a time */
    uint32_t contributed, foreign, leases, short_ones;
};

static uint64_t holder_of(uint32_t peer)
{
    return 0x9000 + 3 * ((peer * 7) % PEERS); /* in no order */
}

static uint32_t peer_at(const struct history *h, uint32_t index)
{
    return h->view.members[index].public_key[0];
}

/* The next view: who is a member now; bit i of `joined`: peer i just came. */
static void view_next(struct history *h, uint64_t joined)
{
    struct view_body v = {.epoch = h->view.epoch + 1};

    v.commit = h->view.commit;
    if (!h->first) { /* commits since then: it names the last one */
        v.commit.b[0]++;
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        struct view_member *m = &v.members[v.n_members];

        if (h->workers[i].member) {
            int at;

            m->public_key[0] = (uint8_t)i;
            at = joined >> i & 1 ? -1 : 0;
            for (uint32_t k = 0; at == 0 && k < h->view.n_members; k++) {
                if (peer_at(h, k) == i) {
                    m->joined = h->view.members[k].joined;
                }
            }
            m->joined = at < 0 ? v.epoch : m->joined;
            h->holders[v.n_members++] = holder_of(i);
        }
    }
    lease_slots(h->view.epoch == 0 ? NULL : &h->view, &v);
    assert_true(lease_slots_valid(&v));
    h->view = v;
    h->first = true;
}

/* What member `index` says of its text: the span of its lease's front, or else
 * of what comes next. */
static struct text_span text_of(const struct history *h, uint32_t index)
{
    static struct run_terms t = {
        .n_shards = SHARDS, .lease_quota = 1, .window_batch = 1};
    const struct worker *w = &h->workers[peer_at(h, index)];
    struct lease lease;
    struct text_span s;

    for (uint32_t i = 0; i < SHARDS; i++) {
        t.shards[i].windows = 40 + i;
        t.shards[i].held = !h->late || (w->here >> i & 1);
    }
    if (lease_of(&h->ledger, h->quota, &h->view, index, h->holders[index],
                 h->first, &lease)) {
        s = text_span_at(&t, lease.ranges[0].first);
        if (text_has(&s, lease.ranges[0].first)) {
            return s;
        }
    }
    return text_span_at(&t, h->ledger.next);
}

/* Positions of its lease that it can read. */
static uint32_t
readable(const struct history *h, uint32_t index, const struct lease *lease)
{
    struct text_span s = text_of(h, index);
    uint32_t n = 0;
    uint64_t at;

    while (lease_at(lease, n, &at) && text_has(&s, at)) {
        n++;
    }
    return n;
}

static void train(struct history *h, uint32_t index)
{
    struct worker *w = &h->workers[peer_at(h, index)];
    uint32_t steps = 1 + (uint32_t)rng_below(&h->rng, h->quota - h->overlap);
    struct lease lease;
    uint32_t most;

    if (!w->alive || w->n > 0 || rng_below(&h->rng, 4) == 0) {
        return;
    }
    if (!lease_of(&h->ledger, h->quota, &h->view, index, h->holders[index],
                  h->first, &lease)) {
        assert_true(h->late);
        return;
    }
    h->leases++;
    h->short_ones += lease_count(&lease) < h->quota;
    most = readable(h, index, &lease);
    if (most == 0) {
        assert_true(h->late);
        return;
    }
    for (uint32_t i = 0; i < w->made; i++) { /* made beside: the same text */
        uint64_t at;

        assert_true(lease_at(&lease, i, &at));
        assert_int_equal(at, w->at[i]);
    }
    w->n = steps > w->made ? steps : w->made;
    w->made = w->n + (uint32_t)rng_below(&h->rng, h->overlap + 1);
    w->n = w->n > most ? most : w->n;
    w->made = w->made > most ? most : w->made;
    w->made = w->made > h->quota ? h->quota : w->made;
    for (uint32_t i = 0; i < w->made; i++) {
        assert_true(lease_at(&lease, i, &w->at[i]));
    }
    w->lease = lease.ranges[0].first + 1;
}

/* Whether what it trained on was a slot, and it has left the view since. */
static bool slot_is_lost(const struct history *h, uint32_t peer)
{
    const struct worker *w = &h->workers[peer];
    struct lease lease;

    for (uint32_t i = 0; i < h->view.n_members; i++) {
        if (peer_at(h, i) == peer &&
            lease_of(&h->ledger, h->quota, &h->view, i, h->holders[i], h->first,
                     &lease)) {
            return lease.ranges[0].first + 1 != w->lease;
        }
    }
    return false;
}

/* Whether somebody else may read it by now: it was a slot of who left before
 * the first commit, came back, and was late until that was given back. */
static bool is_foreign(const struct history *h, const struct worker *w)
{
    const struct ledger *l = &h->ledger;
    uint64_t at = w->lease - 1;

    for (uint32_t i = 0; i < l->n_held; i++) {
        if (l->held[i].ranges[0].first == at) {
            return false;
        }
    }
    return at < l->next;
}

/* A contribution is in a commit: as its maker knows it, or inherited. */
static void
contribute(struct history *h, uint32_t peer, struct lease_spent *spent)
{
    struct worker *w = &h->workers[peer];

    *spent = (struct lease_spent){
        .holder = holder_of(peer),
        .lease = w->lease,
        .steps = w->n,
    };
    h->contributed++;
    h->foreign += is_foreign(h, w);
    for (uint32_t i = 0; i < w->n && !is_foreign(h, w); i++) {
        assert_true(w->at[i] < SPAN);
        h->spent[w->at[i]]++;
        assert_int_equal(h->spent[w->at[i]], 1); /* W1 */
    }
    if (slot_is_lost(h, peer)) {
        w->made = w->n; /* what was made beside is of no use any more */
    }
    w->made -= w->n;
    memmove(w->at, w->at + w->n, w->made * sizeof w->at[0]);
    w->n = 0;
}

static void commit(struct history *h, bool all)
{
    struct lease_spent spent[2 * PEERS];
    struct text_span texts[VIEW_MEMBERS_MAX] = {{0, 0}};
    struct lease_commit c = {
        .texts = texts,
        .quota = h->quota,
        .view = &h->view,
        .holders = h->holders,
        .first = h->first,
        .spent = spent,
    };

    for (uint32_t i = 0; i < h->view.n_members; i++) {
        struct worker *w = &h->workers[peer_at(h, i)];

        w->planned = w->alive && (all || rng_below(&h->rng, 4) > 0);
        if (w->planned) {
            texts[i] = text_of(h, i);
        }
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        struct worker *w = &h->workers[i];
        bool inherited = w->n > 0 && !w->alive && rng_below(&h->rng, 3) == 0;
        bool in = w->n > 0 && w->alive && w->member && w->planned;

        w->here |= all ? UINT64_MAX : 1ULL << rng_below(&h->rng, 4 * SHARDS);

        w->missed = w->member ? 0 : w->missed + 1;
        if (in || inherited) {
            contribute(h, i, &spent[c.n_spent++]);
        }
        if (!w->alive) {
            w->n = w->made = 0;
        }
    }
    lease_settle(&h->ledger, &c);
    h->first = false;
}

/* A process ends; comes back as another one; stands still; is there again. */
static void fault(struct history *h)
{
    uint32_t peer = (uint32_t)rng_below(&h->rng, PEERS), others = 0;
    struct worker *w = &h->workers[peer];
    uint64_t what = rng_below(&h->rng, 4);

    for (uint32_t i = 0; i < PEERS; i++) {
        others += i != peer && h->workers[i].member;
    }
    if (w->member && others > 0 && what == 0) {
        w->alive = w->member = false;
        view_next(h, 0);
    } else if (w->member && others > 0 && what == 1) {
        w->member = false; /* lives on, with its work */
        view_next(h, 0);
    } else if (w->member && what == 2) {
        w->n = w->made = 0; /* a new process joins in its place */
        view_next(h, 1ULL << peer);
    } else if (!w->member) {
        if (!w->alive || w->missed > LEASE_MISSED_MAX - 1) {
            w->n = w->made = 0; /* too old to count: dropped */
        }
        w->alive = w->member = true;
        view_next(h, 1ULL << peer);
    }
}

static void check(struct history *h)
{
    const struct ledger *l = &h->ledger;
    uint8_t *seen = calloc(SPAN, 1);

    assert_non_null(seen);
    assert_true(l->next + 512 < SPAN);
    memcpy(seen, h->spent, SPAN);
    for (uint32_t i = 0; i < l->n_held; i++) {
        uint64_t at;

        for (uint64_t k = 0; lease_at(&l->held[i], k, &at); k++) {
            seen[at]++;
        }
        assert_true(i == 0 || l->held[i - 1].holder < l->held[i].holder);
    }
    for (uint32_t i = 0; i < l->n_returned; i++) {
        for (uint32_t k = 0; k < l->returned[i].n; k++) {
            seen[l->returned[i].first + k]++;
        }
    }
    for (uint64_t at = 0; at < l->next + 512; at++) {
        assert_int_equal(seen[at], at < l->next); /* W2, and W1 again */
    }
    h->most = l->n_returned > h->most ? l->n_returned : h->most;
    free(seen);
}

/* W3, as a commit grants: `next` moves only when nothing is returned, or every
 * lease has as many ranges as it may. */
static void check_grants(const struct ledger *before, const struct ledger *l)
{
    bool full = false;

    for (uint32_t i = 0; i < l->n_held; i++) {
        full = full || l->held[i].n_ranges >= LEASE_RANGES_MAX - 1;
    }
    assert_true(l->next == before->next || l->n_returned == 0 || full);
}

static void live(struct history *h, uint32_t rounds)
{
    for (uint32_t i = 0; i < 1 + rng_below(&h->rng, PEERS - 1); i++) {
        h->workers[i].alive = h->workers[i].member = true;
    }
    view_next(h, UINT64_MAX);
    for (uint32_t r = 0; r < rounds + 24; r++) {
        bool calm = r >= rounds;
        struct ledger before;

        for (uint64_t k = calm ? 0 : rng_below(&h->rng, 4); k > 0; k--) {
            for (uint32_t i = 0; i < h->view.n_members; i++) {
                train(h, i);
            }
            fault(h);
        }
        for (uint32_t i = 0; i < h->view.n_members; i++) {
            train(h, i);
        }
        before = h->ledger;
        before.next += h->first ? (uint64_t)h->view.slots * h->quota : 0;
        commit(h, calm);
        check(h);
        if (!h->late || r > rounds) { /* else some is of text that is missing */
            check_grants(&before, &h->ledger);
        }
    }
    assert_int_equal(h->ledger.n_returned, 0); /* W4 */
}

static void nothing_is_trained_twice_and_nothing_is_lost(void **state)
{
    struct history *h = calloc(1, sizeof *h);
    uint32_t most = 0, contributed = 0, foreign = 0, leases = 0, shorts = 0;

    (void)state;
    assert_non_null(h);
    for (uint64_t seed = 1; seed <= 400; seed++) {
        memset(h, 0, sizeof *h);
        h->rng = seed;
        h->late = seed % 2 == 0;
        h->overlap = (uint32_t)rng_below(&h->rng, 4);
        h->quota = h->overlap + 1 + (uint32_t)rng_below(&h->rng, 8);
        live(h, 5 + (uint32_t)rng_below(&h->rng, 36));
        most = h->most > most ? h->most : most;
        contributed += h->contributed;
        foreign += h->foreign;
        leases += h->late ? 0 : h->leases;
        shorts += h->late ? 0 : h->short_ones;
    }
    assert_true(most > 0 && most < LEDGER_RETURNED_MAX);
    assert_true(contributed > 10000 && foreign * 1000 < contributed);
    /* In many pieces a lease may be short, and of who was away. */
    assert_true(shorts * 20 < leases);
    print_message("%u contributions, %u foreign, %u ranges, %u of %u leases "
                  "short\n",
                  contributed, foreign, most, shorts, leases);
    free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_view_gives_each_member_its_own_text),
        cmocka_unit_test(a_commit_spends_the_front_and_fills_the_back),
        cmocka_unit_test(who_is_gone_gives_back_after_some_commits),
        cmocka_unit_test(a_contribution_of_other_text_spends_nothing),
        cmocka_unit_test(slots_of_who_left_again_come_back),
        cmocka_unit_test(wrong_slots_are_seen_and_harm_nobody),
        cmocka_unit_test(tables_that_are_full_lose_the_least),
        cmocka_unit_test(a_member_holds_what_it_can_read),
        cmocka_unit_test(a_lease_ends_where_the_text_does),
        cmocka_unit_test(nothing_is_trained_twice_and_nothing_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
