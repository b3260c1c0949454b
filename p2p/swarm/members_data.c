/* members_data.c - how data goes to a peer.
 *
 * A data connection takes the way of the link: how that came about says what
 * works, in which direction.
 *   direct    we dialled the link, or the peer can be dialled
 *   reversed  the peer dialled the link and cannot be dialled: CALL
 *   relayed   through the relay of the link
 *   punched   the link came about by a meeting. A relay carries data at once,
 *             where there is no connection yet; beside that the two meet, and
 *             what that makes is used instead. Each meeting, whatever comes of
 *             it, doubles the time to the next one, until a hole lasts; where
 *             nothing carries data meanwhile, that is punch_ms at most
 * The relay of a punched link may be gone or may not hear the peer: then it is
 * another one that serves. Where there is none, the peer is dialled as it is,
 * so that the shell tells who waits when that fails.
 */
#include "p2p/swarm/members_internal.h"

#include "p2p/swarm/reach.h"
#include "proto/base/log.h"

#define CALLED_MS 250 /* a peer asks for a data connection so often */
/* Of the first back-off of links, in which a link is looked for: data waits for
 * nothing meanwhile, and a hole is known to be possible. */
#define SOONER 8
/* There was a direct connection: look again. */
#define LOOK_AGAIN_MS 1000

static void dial(const struct member *p, struct out *out)
{
    struct action *a = out_add(out, ACTION_BULK_OPEN);

    if (a != NULL) {
        a->bulk_open.peer = p->id;
        a->bulk_open.address = p->address;
        a->bulk_open.relay = (struct peer_id){0};
        a->bulk_open.meet = false;
    }
}

/* Through that row, or (`meet`) after a meeting there; false: `out` is full. */
static bool
over(struct members *m, int peer, int via, bool meet, struct out *out)
{
    struct action *a = out_add(out, ACTION_BULK_OPEN);

    if (a != NULL) {
        a->bulk_open.peer = m->peers[peer].id;
        a->bulk_open.address = m->peers[via].address;
        a->bulk_open.relay = m->peers[via].id;
        a->bulk_open.meet = meet;
    }
    return a != NULL;
}

/* Say once how data goes to a peer. */
static void say_way(struct member *p, const char *how, struct out *out)
{
    char text[ID_SHORT_MAX];

    if (p->way.data_way != how) {
        p->way.data_way = how;
        id_short(&p->id, text);
        out_log(out, LOG_DEBUG, "data to %s: %s", text, how);
    }
}

/* Who dialled can dial again; who was dialled may be behind a NAT. */
static void alone(struct members *m,
                  int peer,
                  const struct members_link *l,
                  struct out *out)
{
    struct member *p = &m->peers[peer];

    if (!l->inbound || members_dialable(p)) {
        say_way(p, "direct", out);
        dial(p, out);
    }
    if (l->inbound && !reach_is_dialable(p->way.reach)) {
        say_way(p, "reversed", out);
        members_call(m, peer, peer, true, out);
    }
}

/* There is no relay, and the link is direct only because both dialled. */
static void stranded(struct members *m, int peer, struct out *out)
{
    struct member *p = &m->peers[peer];

    say_way(p, "direct", out);
    dial(p, out);
    if (reach_is_dialable(m->reach)) {
        members_call(m, peer, peer, true, out);
    }
}

/* Who carries data, or introduces us: the relay of the link, unless it says
 * that it does not hear the peer, or another one; MEMBERS_NONE. A relay that is
 * full still introduces those whom it carries. */
static int through(struct members *m,
                   int peer,
                   const struct members_link *l,
                   enum members_service service)
{
    int own = members_find(m, &l->relay), other;
    bool may = service == SERVICE_MEET ? members_may_introduce(m, own, peer)
                                       : members_serves(m, own, peer, service);

    if (may && !members_deaf(m, own, peer)) {
        return own;
    }
    other = members_pick_via(m, peer, service);
    return other != MEMBERS_NONE ? other : may ? own : MEMBERS_NONE;
}

static void relayed(struct members *m,
                    int peer,
                    const struct members_link *l,
                    struct out *out)
{
    int via = members_find(m, &l->relay); /* its pipe works, whatever it says */

    via = via != MEMBERS_NONE ? via : through(m, peer, l, SERVICE_CARRY);
    if (via == MEMBERS_NONE) {
        stranded(m, peer, out);
        return;
    }
    say_way(&m->peers[peer], "relayed", out);
    (void)over(m, peer, via, false, out);
}

/* `alone`: nothing else is left to try. */
static bool
meeting_due(const struct members *m, const struct members_tries *t, bool alone)
{
    return members_tries_may(t, m->now_ms) ||
           (alone && !t->under_way &&
            m->now_ms - t->over_ms >= m->opt.punch_ms);
}

static void punched(struct members *m,
                    int peer,
                    const struct members_link *l,
                    struct out *out)
{
    int via = through(m, peer, l, SERVICE_CARRY);
    int at = through(m, peer, l, SERVICE_MEET);
    struct member *p = &m->peers[peer];

    if (via == MEMBERS_NONE) {
        stranded(m, peer, out);
    } else {
        (void)over(m, peer, via, false, out);
    }
    if (at != MEMBERS_NONE &&
        meeting_due(m, &p->way.data, via == MEMBERS_NONE) &&
        over(m, peer, at, true, out)) {
        say_way(p, "punched", out);
        p->way.data.under_way = true;
    }
}

void members_bulk_open(struct members *m, struct out *out, int peer)
{
    const struct members_link *l =
        peer == MEMBERS_NONE ? NULL : members_link_of_peer(m, peer);

    if (peer == MEMBERS_NONE) {
        return;
    }
    if (l == NULL) { /* the link will show the way */
        m->peers[peer].way.bulk_wanted = true;
        if (reach_is_dialable(m->peers[peer].way.reach)) {
            dial(&m->peers[peer], out);
        }
    } else if (l->relayed) {
        relayed(m, peer, l, out);
    } else if (l->punched) {
        punched(m, peer, l, out);
    } else {
        alone(m, peer, l, out);
    }
}

bool members_bulk_better(struct members *m, int peer, uint64_t now_ms)
{
    const struct members_link *l = members_link_of_peer(m, peer);

    /* Without a place to meet nothing would say when the next try is due. */
    return l != NULL && !l->relayed &&
           (!l->punched ||
            (members_tries_may(&m->peers[peer].way.data, now_ms) &&
             through(m, peer, l, SERVICE_MEET) != MEMBERS_NONE));
}

void members_on_bulk_met(struct members *m,
                         const struct event_bulk_met *met,
                         uint64_t now_ms)
{
    int peer = members_find(m, &met->peer);
    struct member *p = peer == MEMBERS_NONE ? NULL : &m->peers[peer];

    if (p == NULL) {
        return;
    }
    m->now_ms = now_ms;
    p->way.data.under_way = false;
    if (met->up && !met->made) {
        p->way.data.at_ms = now_ms + LOOK_AGAIN_MS;
        p->way.data.alive_ms = now_ms;
        return;
    }
    members_tries_over(m, &p->way.data, met->up, m->opt.punch_ms / SOONER,
                       now_ms);
}

void members_bulk_called(struct members *m,
                         int peer,
                         uint64_t now_ms,
                         struct out *out)
{
    struct member *p = &m->peers[peer];

    if (!members_relayed(m, peer) &&
        now_ms - p->way.bulk_called_ms >= CALLED_MS) {
        p->way.bulk_called_ms = now_ms;
        dial(p, out);
    }
}
