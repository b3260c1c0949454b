/* members_meets.c - how often we dial where somebody says, at meetings.
 *
 * Who says an address pays for it, whoever it is said of. In an hour we dial
 *   for one relay        MEETS_OF_RELAY times, if it is of our view or a guest;
 *                        else MEETS_OF_STRANGER
 *   for all of a kind    MEETS_OF_GUESTS for all guests, MEETS_OF_STRANGERS for
 *                        all that are neither
 * and where a link by a meeting is from that IP address already,
 * PROVEN_OF_RELAY or PROVEN_OF_STRANGER, and PROVEN_OF_ALL, instead.
 *
 * Each of these is shared, by the rule that budget.h has for bytes: a *group*
 * may use as much as is left. One alone uses half, two a third each. Groups are
 *   of one relay         those of the address that is named (/24 or /48, or one
 *                        private address): an honest relay says where a
 *                        connection comes from. So who asks it for one meeting
 *                        after the other, with a thousand keys, leaves half of
 *                        its hour to all others
 *   of all of a kind     those of the relay: a liar names whatever it likes,
 * but its thousand keys are where it is. Who owns k networks owns k groups, and
 * leaves one part of k + 1 to all others.
 *
 * Memory: MEMBERS_SHARES_MAX rows for all windows. Where there are more groups,
 * the one that used least is forgotten: that helps nobody who used much.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "p2p/prefix.h"
#include "p2p/swarm/reach.h"

#define HOUR_MS            3600000U
#define MEETS_OF_RELAY     64
#define MEETS_OF_STRANGER  16
#define MEETS_OF_GUESTS    256
#define MEETS_OF_STRANGERS 64
#define PROVEN_OF_RELAY    256
#define PROVEN_OF_STRANGER 64
#define PROVEN_OF_ALL      256

/* Names of windows; those of one relay follow, two for each row. */
enum { ALL_STRANGERS, ALL_GUESTS, ALL_COUNT = 4 };

struct window {
    struct members_calls *calls;
    uint32_t most;
    uint64_t name;
    const struct address *of; /* its group */
};

static void group_of(const struct address *a, uint8_t group[16])
{
    memset(group, 0, 16);
    memcpy(group, a->ip, reach_is_global(a) ? prefix_bytes(a->ip) : 16);
}

/* What is lost if that row is forgotten. */
static uint32_t worth(const struct members *m, const struct members_share *s)
{
    return m->now_ms - s->since_ms >= HOUR_MS ? 0 : s->n;
}

/* The row of that group in that window, a new one if need be. */
static struct members_share *share_of(struct members *m, const struct window *w)
{
    struct members_share *least = &m->shares[0];
    uint8_t group[16];

    group_of(w->of, group);
    for (uint32_t i = 0; i < MEMBERS_SHARES_MAX; i++) {
        struct members_share *s = &m->shares[i];

        if (s->n > 0 && s->window == w->name &&
            s->since_ms == w->calls->since_ms &&
            memcmp(s->group, group, sizeof group) == 0) {
            return s;
        }
        if (worth(m, s) < worth(m, least)) {
            least = s;
        }
    }
    *least = (struct members_share){.window = w->name,
                                    .since_ms = w->calls->since_ms};
    memcpy(least->group, group, sizeof group);
    return least;
}

static bool take(struct members *m, const struct window *w)
{
    struct members_share *s;

    if (!members_take(w->calls, w->most, HOUR_MS, m->now_ms)) {
        return false;
    }
    s = share_of(m, w);
    if (s->n > w->most - w->calls->n) {
        w->calls->n--;
        return false;
    }
    s->n++;
    return true;
}

static void give_back(struct members *m, const struct window *w)
{
    struct members_share *s = share_of(m, w);

    w->calls->n--;
    s->n -= s->n > 0;
}

bool members_meets_take(struct members *m,
                        int by,
                        bool proven,
                        const struct address *a)
{
    struct member *b = &m->peers[by];
    const struct members_link *l = members_link_of_peer(m, by);
    bool ours = b->watched || b->named, known = ours || b->guest;
    struct members_meets *kind = b->guest ? &m->guests_meets : &m->meets;
    struct window one = {
        .calls = proven ? &b->way.meets.proven : &b->way.meets.named,
        .most = proven  ? known ? PROVEN_OF_RELAY : PROVEN_OF_STRANGER
                : known ? MEETS_OF_RELAY
                        : MEETS_OF_STRANGER,
        .name = ALL_COUNT + 2 * (uint64_t)by + proven,
        .of = a};
    struct window all = {
        .calls = proven ? &kind->proven : &kind->named,
        .most = proven     ? PROVEN_OF_ALL
                : b->guest ? MEETS_OF_GUESTS
                           : MEETS_OF_STRANGERS,
        .name = 2 * (uint64_t)(b->guest ? ALL_GUESTS : ALL_STRANGERS) + proven,
        .of = l != NULL ? &l->from : &b->address};

    if (!take(m, &one)) {
        return false;
    }
    if (!ours && !take(m, &all)) {
        give_back(m, &one);
        return false;
    }
    if (!proven && !members_may_dial_at(m, a)) { /* too many at once */
        give_back(m, &one);
        if (!ours) {
            give_back(m, &all);
        }
        return false;
    }
    return true;
}
