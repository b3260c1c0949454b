/* lease.c - see lease.h. */
#include "p2p/round/lease.h"

#include <string.h>

#include "p2p/round/view.h"

/* ---- who just came ------------------------------------------------------ */

void lease_slots(const struct view_body *old, struct view_body *v)
{
    bool same = old != NULL && hash32_eq(&old->commit, &v->commit);

    v->slots = same ? old->slots : 0;
    for (uint32_t i = 0; i < v->n_members; i++) {
        struct view_member *m = &v->members[i];
        int at = same ? view_index_key(old, m->public_key) : -1;

        m->slot = 0;
        if (m->joined == v->epoch && v->slots < LEDGER_SLOTS_MAX) {
            m->slot = ++v->slots;
        } else if (at >= 0 && m->joined != v->epoch) {
            m->slot = old->members[at].slot;
        }
    }
}

bool lease_slots_valid(const struct view_body *v)
{
    bool taken[LEDGER_SLOTS_MAX + 1] = {false};

    if (v->slots > LEDGER_SLOTS_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < v->n_members; i++) {
        uint32_t slot = v->members[i].slot;

        if (slot > v->slots || (slot > 0 && taken[slot])) {
            return false;
        }
        taken[slot] = true;
    }
    return true;
}

/* ---- what nobody holds -------------------------------------------------- */

static void returned_remove(struct ledger *l, uint32_t at)
{
    l->n_returned--;
    memmove(&l->returned[at], &l->returned[at + 1],
            (l->n_returned - at) * sizeof l->returned[0]);
}

/* Whether b begins where a ends, and both are one range. */
static bool joins(const struct lease_range *a, const struct lease_range *b)
{
    return a->first + a->n == b->first && b->n <= UINT32_MAX - a->n;
}

/* Make room for `r`: forget the shortest range. False: `r` is the shortest. */
static bool returned_room(struct ledger *l, const struct lease_range *r)
{
    uint32_t shortest = 0;

    if (l->n_returned < LEDGER_RETURNED_MAX) {
        return true;
    }
    for (uint32_t i = 1; i < l->n_returned; i++) {
        if (l->returned[i].n < l->returned[shortest].n) {
            shortest = i;
        }
    }
    if (r->n <= l->returned[shortest].n) {
        return false;
    }
    returned_remove(l, shortest);
    return true;
}

static void give_back(struct ledger *l, const struct lease_range *r)
{
    uint32_t at = 0;

    if (r->n == 0 || !returned_room(l, r)) {
        return;
    }
    while (at < l->n_returned && l->returned[at].first < r->first) {
        at++;
    }
    memmove(&l->returned[at + 1], &l->returned[at],
            (l->n_returned - at) * sizeof l->returned[0]);
    l->returned[at] = *r;
    l->n_returned++;
    if (at + 1 < l->n_returned &&
        joins(&l->returned[at], &l->returned[at + 1])) {
        l->returned[at].n += l->returned[at + 1].n;
        returned_remove(l, at + 1);
    }
    if (at > 0 && joins(&l->returned[at - 1], &l->returned[at])) {
        l->returned[at - 1].n += l->returned[at].n;
        returned_remove(l, at);
    }
}

/* Remove the positions [first, first + n): they are trained. */
static void returned_spend(struct ledger *l, uint64_t first, uint64_t n)
{
    uint64_t end = n > UINT64_MAX - first ? UINT64_MAX : first + n;

    for (uint32_t i = l->n_returned; i-- > 0;) {
        struct lease_range *r = &l->returned[i], behind;
        uint64_t r_end = r->first + r->n;

        if (end <= r->first || first >= r_end) {
            continue;
        }
        behind.first = end;
        behind.n = end < r_end ? (uint32_t)(r_end - end) : 0;
        if (first > r->first) {
            r->n = (uint32_t)(first - r->first);
        } else {
            returned_remove(l, i);
        }
        give_back(l, &behind);
    }
}

/* ---- what somebody holds ------------------------------------------------ */

uint64_t lease_count(const struct lease *lease)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < lease->n_ranges; i++) {
        n += lease->ranges[i].n;
    }
    return n;
}

bool lease_at(const struct lease *lease, uint64_t i, uint64_t *position)
{
    for (uint32_t k = 0; k < lease->n_ranges; k++) {
        if (i < lease->ranges[k].n) {
            *position = lease->ranges[k].first + i;
            return true;
        }
        i -= lease->ranges[k].n;
    }
    return false;
}

/* At the back of the queue; false: it has as many ranges as it may. */
static bool append(struct lease *lease, uint64_t first, uint32_t n)
{
    struct lease_range r = {.first = first, .n = n};
    uint32_t last = lease->n_ranges;

    if (last > 0 && joins(&lease->ranges[last - 1], &r)) {
        lease->ranges[last - 1].n += n;
        return true;
    }
    if (last == LEASE_RANGES_MAX) {
        return false;
    }
    lease->ranges[lease->n_ranges++] = r;
    return true;
}

/* Off the front of the queue. */
static void spend(struct lease *lease, uint64_t steps)
{
    uint32_t gone = 0;

    while (gone < lease->n_ranges && steps >= lease->ranges[gone].n) {
        steps -= lease->ranges[gone].n;
        gone++;
    }
    lease->n_ranges -= gone;
    memmove(lease->ranges, lease->ranges + gone,
            lease->n_ranges * sizeof lease->ranges[0]);
    if (lease->n_ranges > 0) {
        lease->ranges[0].first += steps;
        lease->ranges[0].n -= (uint32_t)steps;
    }
}

static struct lease *find(struct ledger *l, uint64_t holder)
{
    for (uint32_t i = 0; i < l->n_held; i++) {
        if (l->held[i].holder == holder) {
            return &l->held[i];
        }
    }
    return NULL;
}

static void held_end(struct ledger *l, uint32_t at)
{
    for (uint32_t k = 0; k < l->held[at].n_ranges; k++) {
        give_back(l, &l->held[at].ranges[k]);
    }
    l->n_held--;
    memmove(&l->held[at], &l->held[at + 1],
            (l->n_held - at) * sizeof l->held[0]);
}

static bool is_member(const struct lease_commit *c, uint64_t holder)
{
    for (uint32_t i = 0; i < c->view->n_members; i++) {
        if (c->holders[i] == holder) {
            return true;
        }
    }
    return false;
}

/* Remove the holder that has been away longest; of several the first. */
static void held_room(struct ledger *l, const struct lease_commit *c)
{
    uint32_t longest = LEDGER_HELD_MAX;

    for (uint32_t i = 0; i < l->n_held; i++) {
        if (!is_member(c, l->held[i].holder) &&
            (longest == LEDGER_HELD_MAX ||
             l->held[i].missed > l->held[longest].missed)) {
            longest = i;
        }
    }
    if (l->n_held == LEDGER_HELD_MAX && longest < LEDGER_HELD_MAX) {
        held_end(l, longest);
    }
}

/* An empty lease; NULL: no room. */
static struct lease *
held_new(struct ledger *l, const struct lease_commit *c, uint64_t holder)
{
    uint32_t at = 0;

    held_room(l, c);
    if (l->n_held == LEDGER_HELD_MAX) {
        return NULL;
    }
    while (at < l->n_held && l->held[at].holder < holder) {
        at++;
    }
    memmove(&l->held[at + 1], &l->held[at],
            (l->n_held - at) * sizeof l->held[0]);
    l->n_held++;
    memset(&l->held[at], 0, sizeof l->held[at]);
    l->held[at].holder = holder;
    return &l->held[at];
}

/* ---- a commit ------------------------------------------------------------ */

static struct lease_range
slot_range(const struct ledger *l, uint32_t quota, uint32_t slot)
{
    return (struct lease_range){.first = l->next + (uint64_t)(slot - 1) * quota,
                                .n = quota};
}

/* Whose slot that is: index in the view, or n_members. */
static uint32_t owner_of(const struct view_body *v, uint32_t slot)
{
    uint32_t i = 0;

    while (i < v->n_members && v->members[i].slot != slot) {
        i++;
    }
    return i;
}

/* A member that holds positions gets no slot on top of them: the front of its
 * lease names what it has trained and no commit contains yet. And it may lose a
 * slot, so what it trains on a slot must be named by that slot alone. */
static bool slot_joins(struct lease *lease, const struct lease_range *r)
{
    return lease->n_ranges == 0 && append(lease, r->first, r->n);
}

/* The owner of this slot has left the view, and may come back with what it
 * trained. Reserve the slot under a separate key for the usual absence period.
 */
static void hold_slot(struct ledger *l,
                      const struct lease_commit *c,
                      const struct lease_range *r)
{
    struct lease *lease = held_new(l, c, ~r->first);

    if (lease == NULL || !append(lease, r->first, r->n)) {
        give_back(l, r);
    }
}

/* Turn the slots of the view into leases. */
static void take_slots(struct ledger *l, const struct lease_commit *c)
{
    uint32_t slots = c->view->slots;

    slots = slots < LEDGER_SLOTS_MAX ? slots : LEDGER_SLOTS_MAX;
    for (uint32_t s = 1; s <= slots; s++) {
        struct lease_range r = slot_range(l, c->quota, s);
        uint32_t i = owner_of(c->view, s);
        struct lease *lease;

        if (i == c->view->n_members) {
            hold_slot(l, c, &r);
            continue;
        }
        lease = find(l, c->holders[i]);
        lease = lease != NULL ? lease : held_new(l, c, c->holders[i]);
        if (lease == NULL || !slot_joins(lease, &r)) {
            give_back(l, &r);
        }
    }
    l->next += (uint64_t)slots * c->quota;
}

static bool begins(const struct lease *lease, uint64_t first)
{
    return lease != NULL && lease->n_ranges > 0 &&
           lease->ranges[0].first == first;
}

/* The lease whose front a contribution trained: its maker's, or the reserved
 * slot of an owner that was away at a commit. NULL: there is none. */
static struct lease *lease_named(struct ledger *l, const struct lease_spent *s)
{
    struct lease *own = find(l, s->holder);
    struct lease *slot = find(l, ~(s->lease - 1));

    return begins(own, s->lease - 1)    ? own
           : begins(slot, s->lease - 1) ? slot
                                        : NULL;
}

/* The part of a range that is in a span. */
static struct lease_range part(const struct lease_range *r,
                               const struct text_span *text)
{
    uint64_t first = r->first > text->first ? r->first : text->first;
    uint64_t end = r->first + r->n;

    end = end < text->end ? end : text->end;
    return (struct lease_range){.first = first,
                                .n = end > first ? (uint32_t)(end - first) : 0};
}

/* Return the positions that the holder cannot read: another member trains them.
 */
static void
give_back_rest(struct ledger *l, struct lease *lease, const struct text_span *t)
{
    struct lease old = *lease;

    lease->n_ranges = 0;
    for (uint32_t i = 0; i < old.n_ranges; i++) {
        const struct lease_range *r = &old.ranges[i];
        struct lease_range kept = part(r, t), before = *r, behind;

        if (kept.n == 0) {
            give_back(l, r);
            continue;
        }
        before.n = (uint32_t)(kept.first - r->first);
        behind.first = kept.first + kept.n;
        behind.n = r->n - before.n - kept.n;
        give_back(l, &before);
        give_back(l, &behind);
        (void)append(lease, kept.first, kept.n);
    }
}

/* Returned positions first, the lowest first; keep one range for new text.
 * Where the table is full, take nothing that would cut a returned range in two.
 */
static void fill(struct ledger *l,
                 struct lease *lease,
                 uint32_t quota,
                 const struct text_span *text)
{
    uint64_t have = lease_count(lease), rest;
    uint32_t want = have < quota ? (uint32_t)(quota - have) : 0;

    for (uint32_t i = 0; want > 0 && i < l->n_returned &&
                         lease->n_ranges < LEASE_RANGES_MAX - 1;) {
        const struct lease_range *r = &l->returned[i];
        struct lease_range take = part(r, text);
        bool cuts;

        take.n = take.n < want ? take.n : want;
        cuts = take.first > r->first && take.first + take.n < r->first + r->n &&
               l->n_returned == LEDGER_RETURNED_MAX;
        if (take.n == 0 || cuts) {
            i++;
            continue;
        }
        (void)append(lease, take.first, take.n);
        want -= take.n;
        returned_spend(l, take.first, take.n);
    }
    rest =
        l->next >= text->first && l->next < text->end ? text->end - l->next : 0;
    want = want < rest ? want : (uint32_t)rest;
    if (want > 0 && append(lease, l->next, want)) {
        l->next += want;
    }
}

/* The positions that member i of the view can read, as far as is known. */
static struct text_span text_of(const struct lease_commit *c, uint32_t i)
{
    struct text_span all = {.first = 0, .end = UINT64_MAX};

    return c->texts == NULL || c->texts[i].end == 0 ? all : c->texts[i];
}

static void fill_all(struct ledger *l, const struct lease_commit *c)
{
    for (uint32_t i = 0; i < c->view->n_members; i++) {
        struct lease *lease = find(l, c->holders[i]);
        struct text_span text = text_of(c, i);

        if (lease != NULL && c->texts != NULL && c->texts[i].end > 0) {
            give_back_rest(l, lease, &text);
        }
    }
    for (uint32_t i = 0; i < c->view->n_members; i++) {
        struct lease *lease = find(l, c->holders[i]);
        struct text_span text = text_of(c, i);

        lease = lease != NULL ? lease : held_new(l, c, c->holders[i]);
        if (lease != NULL) {
            fill(l, lease, c->quota, &text);
        }
    }
}

void lease_settle(struct ledger *l, const struct lease_commit *c)
{
    if (c->first) {
        take_slots(l, c);
    }
    for (uint32_t k = 0; k < c->n_spent; k++) {
        const struct lease_spent *s = &c->spent[k];
        struct lease *lease = lease_named(l, s);
        /* A false number of steps takes at most a quota from the others. */
        uint64_t steps = s->steps < c->quota ? s->steps : c->quota;

        if (lease != NULL) {
            spend(lease, steps);
        } else if (s->lease > 0) {
            returned_spend(l, s->lease - 1, steps);
        }
    }
    for (uint32_t i = l->n_held; i-- > 0;) {
        struct lease *lease = &l->held[i];

        lease->missed = is_member(c, lease->holder)
                            ? 0
                            : (uint8_t)(lease->missed < LEASE_MISSED_MAX
                                            ? lease->missed + 1
                                            : LEASE_MISSED_MAX);
        if (lease->missed == LEASE_MISSED_MAX ||
            (lease->missed > 0 && lease->n_ranges == 0)) {
            held_end(l, i);
        }
    }
    fill_all(l, c);
}

bool lease_of(const struct ledger *l,
              uint32_t quota,
              const struct view_body *view,
              uint32_t index,
              uint64_t holder,
              bool first,
              struct lease *out)
{
    uint32_t slot = first ? view->members[index].slot : 0;

    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < l->n_held; i++) {
        if (l->held[i].holder == holder) {
            *out = l->held[i];
        }
    }
    out->holder = holder;
    if (slot > 0 && slot <= view->slots && slot <= LEDGER_SLOTS_MAX &&
        owner_of(view, slot) == index) {
        struct lease_range r = slot_range(l, quota, slot);

        (void)slot_joins(out, &r);
    }
    return out->n_ranges > 0;
}

/* ---- comparing ----------------------------------------------------------- */

static bool ranges_eq(const struct lease_range *a,
                      uint32_t n_a,
                      const struct lease_range *b,
                      uint32_t n_b)
{
    bool same = n_a == n_b;

    for (uint32_t i = 0; same && i < n_a; i++) {
        same = a[i].first == b[i].first && a[i].n == b[i].n;
    }
    return same;
}

bool ledger_eq(const struct ledger *a, const struct ledger *b)
{
    bool same =
        a->next == b->next && a->n_held == b->n_held &&
        ranges_eq(a->returned, a->n_returned, b->returned, b->n_returned);

    for (uint32_t i = 0; same && i < a->n_held; i++) {
        const struct lease *x = &a->held[i], *y = &b->held[i];

        same = x->holder == y->holder && x->missed == y->missed &&
               ranges_eq(x->ranges, x->n_ranges, y->ranges, y->n_ranges);
    }
    return same;
}
