/* node_admit.c - who may speak to us at all: versions, runs for invited peers.
 *
 * HELLO says from which to which version of the protocol a peer speaks. Two
 * peers use the newest that both do (members.h, `version`), so that a swarm is
 * upgraded one by one; who shares none with us is told so and let go of.
 *
 * A run may be for invited peers. In such a run (`invited` in the manifest,
 * terms.invited here) a control link is kept back from the rest of the node
 * until the peer has shown an ADMISSION: an invitation signed by the run's
 * author and the proof that its secret was used for this peer. Then the link
 * comes up as any other. Who says anything else first, or nothing for GATE_MS,
 * or shows one that does not hold, is told why (REFUSED) and its link is
 * closed. We show ours first thing on every link.
 *
 * A joiner that has no manifest yet cannot judge and has nothing to keep: it
 * takes every link, and when it knows that the run is for invited peers it
 * closes all of them, so that they come again and are judged.
 *
 * Revocation: the author's signed list of numbers goes from peer to peer, on
 * every new link and at once to all when it is news; links that came about by
 * such a number are closed. A member that is revoked is then heard by nobody
 * and leaves the view as one that is lost.
 *
 * A joiner that was refused and that nobody tells the manifest for REFUSED_MS
 * stops with the reason: it would wait for ever. While it has a link to
 * somebody who did not refuse it, what one host says is that host's matter. One
 * that knows the run goes on trying and shows it.
 */
#include "daemon/node_internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"

#define GATE_MS    5000
#define SHUN_MS    4000 /* who refused us is not asked again so soon */
#define REFUSED_MS 5000 /* that nobody lets us in */

static const char *const sentences[REFUSAL_COUNT] = {
    [REFUSAL_NONE] = "",
    [REFUSAL_NOT_INVITED] = "this run takes invited peers only: ask its author "
                            "for an address with an invitation",
    [REFUSAL_INVALID] = "the invitation is not one of this run's author: ask "
                        "for another",
    [REFUSAL_EXPIRED] = "the invitation has expired: ask the run's author for "
                        "another",
    [REFUSAL_REVOKED] = "the invitation was revoked by the run's author",
    [REFUSAL_VERSION] = "it speaks other versions of the protocol than this "
                        "one: update the older of the two",
    [REFUSAL_TWIN] = "another daemon with this identity takes part",
};

const char *node_refusal_sentence(enum refusal reason)
{
    return sentences[reason < REFUSAL_COUNT ? reason : REFUSAL_INVALID];
}

static struct node_gate *gate_of(struct node *n, uint32_t link)
{
    for (unsigned i = 0; i < NODE_GATES_MAX; i++) {
        if (n->gates[i].used && n->gates[i].link == link) {
            return &n->gates[i];
        }
    }
    return NULL;
}

static struct node_gate *gate_free(struct node *n)
{
    for (unsigned i = 0; i < NODE_GATES_MAX; i++) {
        if (!n->gates[i].used) {
            return &n->gates[i];
        }
    }
    return NULL;
}

static void hang_up(struct node *n, uint32_t link)
{
    struct action *a = out_add(n->out, ACTION_HANG_UP);

    if (a != NULL) {
        a->link = link;
    }
}

static void say(struct node *n,
                uint32_t link,
                enum message_type type,
                const struct msg_schema *schema,
                const void *message)
{
    uint8_t bytes[2048]; /* REVOCATION is the longest */
    int len = msg_encode(schema, message, bytes, sizeof bytes);

    if (len > 0) {
        (void)out_send(n->out, link, (uint16_t)type, bytes, (size_t)len);
    }
}

static void refuse(struct node *n, struct node_gate *g, enum refusal reason)
{
    struct refused m = {.reason = (uint8_t)reason};
    char who[ID_SHORT_MAX];

    if (g->refused) {
        return;
    }
    g->refused = true;
    n->n_refused++;
    id_short(&g->peer, who);
    out_log(n->out, LOG_INFO, "peer %s is refused: %s", who, sentences[reason]);
    say(n, g->link, MESSAGE_REFUSED, &refused_schema, &m);
    hang_up(n, g->link);
}

static bool is_revoked(const struct node *n, uint32_t number)
{
    const struct revocation_body *r = &n->revoked.body;

    for (uint32_t i = 0; i < r->n_numbers; i++) {
        if (r->numbers[i] == number) {
            return true;
        }
    }
    return false;
}

static enum refusal judge(const struct node *n,
                          const struct peer_id *peer,
                          const struct admission *m)
{
    const struct invitation_body *b = &m->invitation.body;
    struct admission_body proof = {.run = n->opt.run_id, .peer = *peer};

    if (!hash32_eq(&b->run, &n->opt.run_id) ||
        !message_verify(&n->opt.signer, n->terms.author,
                        &invitation_body_schema, b, m->invitation.sig) ||
        !message_verify(&n->opt.signer, b->key, &admission_body_schema, &proof,
                        m->proof)) {
        return REFUSAL_INVALID;
    }
    if (b->expiry_s != 0 && n->wall_s > b->expiry_s) {
        return REFUSAL_EXPIRED;
    }
    return is_revoked(n, b->number) ? REFUSAL_REVOKED : REFUSAL_NONE;
}

static bool is_guarded(const struct node *n)
{
    return n->configured && n->terms.invited;
}

bool node_admit_link_up(struct node *n, const struct event *ev)
{
    struct node_gate *g;

    if (n->opt.has_admission) {
        say(n, ev->link, MESSAGE_ADMISSION, &admission_schema,
            &n->opt.admission);
    }
    if (!is_guarded(n)) {
        return false;
    }
    g = gate_free(n);
    if (g == NULL) {
        hang_up(n, ev->link);
        if (!ev->inbound) {
            members_dial_failed(&n->members, ev);
        }
        return true;
    }
    *g = (struct node_gate){
        .used = true,
        .link = ev->link,
        .peer = ev->peer,
        .due_ms = n->now + (uint64_t)GATE_MS * n->opt.time_scale,
        .up = *ev,
    };
    return true;
}

bool node_admit_link_down(struct node *n, const struct event *ev)
{
    struct node_gate *g = gate_of(n, ev->link);
    bool open = g != NULL && g->open;

    if (g == NULL) {
        return false;
    }
    g->used = false;
    if (!open && !g->up.inbound) {
        g->up.rc = ev->rc;
        members_dial_failed(&n->members, &g->up);
    }
    return !open;
}

static void on_admission(struct node *n, struct node_gate *g, const void *m)
{
    enum refusal reason = judge(n, &g->peer, m);
    struct event up;

    if (reason != REFUSAL_NONE) {
        refuse(n, g, reason);
        return;
    }
    g->open = true;
    g->number = ((const struct admission *)m)->invitation.body.number;
    up = g->up;
    up.now_ms = n->now;
    node_link_up(n, &up);
    if (n->revoked.body.sequence > 0) {
        say(n, g->link, MESSAGE_REVOCATION, &revocation_schema, &n->revoked);
    }
}

/* That peer and we have nothing to say to each other. */
static void note_refusal(struct node *n, uint32_t link, enum refusal reason)
{
    members_shun(&n->members, link,
                 n->now + (uint64_t)SHUN_MS * n->opt.time_scale);
    hang_up(n, link); /* it is to be the last word on it */
    if (reason == REFUSAL_TWIN) {
        return; /* PRESENT has shown it, or nobody has */
    }
    if (reason != n->refusal) {
        out_log(n->out, LOG_WARN, "refused: %s", sentences[reason]);
    }
    if (n->refusal == REFUSAL_NONE) {
        n->refused_ms = n->now;
    }
    n->refusal = reason;
}

static void on_refused(struct node *n, uint32_t link, const struct refused *m)
{
    note_refusal(n, link,
                 m->reason > REFUSAL_NONE && m->reason < REFUSAL_COUNT
                     ? (enum refusal)m->reason
                     : REFUSAL_INVALID);
}

bool node_admit_version(struct node *n,
                        uint32_t link,
                        const struct peer_id *peer,
                        const struct hello *m)
{
    struct refused r = {.reason = REFUSAL_VERSION};
    char who[ID_SHORT_MAX];

    if (m->oldest <= m->newest && m->oldest <= n->opt.newest &&
        n->opt.oldest <= m->newest) {
        return true;
    }
    id_short(peer, who);
    out_log(n->out, LOG_INFO,
            "peer %s is refused: it speaks the versions %u to %u of the "
            "protocol, this one %u to %u",
            who, m->oldest, m->newest, n->opt.oldest, n->opt.newest);
    n->n_refused++;
    say(n, link, MESSAGE_REFUSED, &refused_schema, &r);
    note_refusal(n, link, REFUSAL_VERSION);
    return false;
}

const char *node_refusal(const struct node *n)
{
    return n->refusal != REFUSAL_NONE && members_n_linked(&n->members) == 0
               ? sentences[n->refusal]
               : NULL;
}

static void on_revocation(struct node *n, const struct revocation *m)
{
    struct action *a;

    if (!is_guarded(n) || m->body.sequence <= n->revoked.body.sequence) {
        return;
    }
    if (!hash32_eq(&m->body.run, &n->opt.run_id) ||
        !message_verify(&n->opt.signer, n->terms.author,
                        &revocation_body_schema, &m->body, m->sig)) {
        n->malformed++;
        return;
    }
    n->revoked = *m;
    out_log(n->out, LOG_INFO, "the run's author has revoked %u invitations",
            m->body.n_numbers);
    for (unsigned i = 0; i < NODE_GATES_MAX; i++) {
        struct node_gate *g = &n->gates[i];

        if (!g->used || !g->open || g->refused) {
            continue;
        }
        if (is_revoked(n, g->number)) {
            refuse(n, g, REFUSAL_REVOKED);
        } else {
            say(n, g->link, MESSAGE_REVOCATION, &revocation_schema,
                &n->revoked);
        }
    }
    a = out_add(n->out, ACTION_REVOKED);
    if (a != NULL) {
        uint8_t bytes[2048];
        int len = msg_encode(&revocation_schema, m, bytes, sizeof bytes);

        a->bytes = len > 0 ? out_bytes(n->out, bytes, (size_t)len) : UINT32_MAX;
        a->len = len > 0 ? (uint32_t)len : 0;
    }
}

bool node_admit_recv(struct node *n, const struct event *ev)
{
    struct node_gate *g = gate_of(n, ev->link);
    bool shut = g != NULL && !g->open;
    const struct msg_schema *schema;

    if (!shut && ev->message != MESSAGE_ADMISSION &&
        ev->message != MESSAGE_REVOCATION && ev->message != MESSAGE_REFUSED) {
        return false;
    }
    schema = message_schema(ev->message);
    if (schema == NULL ||
        msg_decode(schema, ev->bytes, ev->len, n->scratch) != 0) {
        n->malformed++;
        hang_up(n, ev->link);
        return true;
    }
    if (ev->message == MESSAGE_REFUSED) {
        on_refused(n, ev->link, n->scratch);
    } else if (shut && !g->refused && ev->message == MESSAGE_ADMISSION) {
        on_admission(n, g, n->scratch);
    } else if (shut) {
        refuse(n, g, REFUSAL_NOT_INVITED);
    } else if (ev->message == MESSAGE_REVOCATION) {
        on_revocation(n, n->scratch);
    }
    return true;
}

bool node_is_admitted(const struct node *n, const struct peer_id *peer)
{
    if (!is_guarded(n)) {
        return true;
    }
    for (unsigned i = 0; i < NODE_GATES_MAX; i++) {
        if (n->gates[i].used && n->gates[i].open &&
            id_eq(&n->gates[i].peer, peer)) {
            return true;
        }
    }
    return false;
}

void node_admit_configured(struct node *n)
{
    if (!n->terms.invited) {
        return;
    }
    for (uint32_t i = 0; i < n->members.n_links_used; i++) {
        if (n->members.links[i].used) {
            hang_up(n, n->members.links[i].link);
        }
    }
}

/* What an earlier life knew, or the author says to his own daemon. */
void node_on_told_revocation(struct node *n, const uint8_t *bytes, size_t len)
{
    const struct revocation *m = n->scratch;

    if (msg_decode(&revocation_schema, bytes, len, n->scratch) != 0) {
        n->malformed++;
    } else if (n->configured) {
        on_revocation(n, m);
    } else if (hash32_eq(&m->body.run, &n->opt.run_id) &&
               m->body.sequence > n->revoked.body.sequence) {
        n->revoked = *m; /* from our own disk: it was verified before */
    }
}

/* Whether somebody who has a link to us speaks with us. A bare link says
 * nothing: who refuses us has one, too, each time that we come again. */
static bool is_answered(const struct node *n)
{
    const struct members *m = &n->members;

    for (uint32_t i = 0; i < m->n_links_used; i++) {
        if (m->links[i].used && !m->links[i].closing &&
            m->peers[m->links[i].peer].version > 0) {
            return true;
        }
    }
    return false;
}

void node_admit_advance(struct node *n)
{
    struct action *a;

    for (unsigned i = 0; i < NODE_GATES_MAX && is_guarded(n); i++) {
        struct node_gate *g = &n->gates[i];

        if (g->used && !g->open && n->now >= g->due_ms) {
            refuse(n, g, REFUSAL_NOT_INVITED);
        }
    }
    if (n->refusal == REFUSAL_NONE || n->configured || n->stopped ||
        n->manifest_got > 0) {
        return;
    }
    if (is_answered(n)) {
        n->refused_ms = n->now;
    }
    if (n->now < n->refused_ms + (uint64_t)REFUSED_MS * n->opt.time_scale) {
        return;
    }
    a = out_add(n->out, ACTION_STOP);
    if (a != NULL) {
        a->rc = LOCO_EXIT_INCOMPATIBLE;
    }
    out_log(n->out, LOG_ERROR, "%s", sentences[n->refusal]);
    n->stopped = true;
}
