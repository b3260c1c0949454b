/* admit.c - who may speak to us at all: versions, runs for invited peers.
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
#include "daemon/node/internal.h"

#include <stdio.h>
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
    [REFUSAL_INVALID] =
        "the invitation is not from this run's author: ask for another",
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
        if (n->admit.gates[i].used && n->admit.gates[i].link == link) {
            return &n->admit.gates[i];
        }
    }
    return NULL;
}

/* `g`: NULL where the run is for everybody. */
static bool is_shut(const struct node_gate *g)
{
    return g != NULL && !g->open;
}

static struct node_gate *gate_free(struct node *n)
{
    for (unsigned i = 0; i < NODE_GATES_MAX; i++) {
        if (!n->admit.gates[i].used) {
            return &n->admit.gates[i];
        }
    }
    return NULL;
}

static void refuse(struct node *n, struct node_gate *g, enum refusal reason)
{
    struct refused m = {.reason = (uint8_t)reason};
    char who[ID_SHORT_MAX];

    if (g->refused) {
        return;
    }
    g->refused = true;
    n->admit.n_refused++;
    id_short(&g->peer, who);
    out_log(n->out, LOG_INFO, "peer %s is refused: %s", who, sentences[reason]);
    node_say(n, g->link, MESSAGE_REFUSED, &m);
    node_hang_up(n, g->link);
}

static bool is_revoked(const struct node *n, uint32_t number)
{
    const struct revocation_body *r = &n->admit.revoked.body;

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
    return n->data.configured && n->terms.invited;
}

bool node_admit_link_up(struct node *n, const struct event_link_up *ev)
{
    struct node_gate *g;

    if (n->opt.has_admission) {
        node_say(n, ev->link, MESSAGE_ADMISSION, &n->opt.admission);
    }
    if (!is_guarded(n)) {
        return false;
    }
    g = gate_free(n);
    if (g == NULL) {
        node_hang_up(n, ev->link);
        if (!ev->inbound) {
            members_dial_failed(&n->members, ev->request, 0, n->now);
        }
        return true;
    }
    *g = (struct node_gate){
        .used = true,
        .link = ev->link,
        .peer = ev->peer,
        .due_ms = n->now + node_scaled(n, GATE_MS),
        .up = *ev,
        .up_ms = n->now,
    };
    return true;
}

bool node_admit_link_down(struct node *n, const struct event_link_down *ev)
{
    struct node_gate *g = gate_of(n, ev->link);
    bool open = g != NULL && g->open;

    if (g == NULL) {
        return false;
    }
    g->used = false;
    if (!open && !g->up.inbound) {
        members_dial_failed(&n->members, g->up.request, ev->rc, g->up_ms);
    }
    return !open;
}

void node_on_admission(struct node *n, uint32_t link, const struct admission *m)
{
    struct node_gate *g = gate_of(n, link);
    enum refusal reason;

    if (!is_shut(g) || g->refused) {
        return;
    }
    reason = judge(n, &g->peer, m);
    if (reason != REFUSAL_NONE) {
        refuse(n, g, reason);
        return;
    }
    g->open = true;
    g->number = m->invitation.body.number;
    node_link_up(n, &g->up);
    if (n->admit.revoked.body.sequence > 0) {
        node_say(n, g->link, MESSAGE_REVOCATION, &n->admit.revoked);
    }
}

/* That peer and we have nothing to say to each other. */
static void note_refusal(struct node *n,
                         uint32_t link,
                         enum refusal reason,
                         const char *why)
{
    members_shun(&n->members, link, n->now + node_scaled(n, SHUN_MS));
    node_hang_up(n, link); /* it is to be the last word on it */
    if (reason == REFUSAL_TWIN) {
        return; /* PRESENT has shown it, or nobody has */
    }
    if (reason != n->admit.refusal) {
        (void)snprintf(n->admit.why, sizeof n->admit.why, "%s", why);
        out_log(n->out, LOG_WARN, "refused: %s", why);
    }
    if (n->admit.refusal == REFUSAL_NONE) {
        n->admit.refused_ms = n->now;
    }
    n->admit.refusal = reason;
}

void node_on_refused(struct node *n, uint32_t link, const struct refused *m)
{
    enum refusal reason = m->reason > REFUSAL_NONE && m->reason < REFUSAL_COUNT
                              ? (enum refusal)m->reason
                              : REFUSAL_INVALID;

    note_refusal(n, link, reason, sentences[reason]);
}

bool node_admit_version(struct node *n,
                        uint32_t link,
                        const struct peer_id *peer,
                        const struct hello *m)
{
    struct refused r = {.reason = REFUSAL_VERSION};
    char theirs[HELLO_VERSIONS_MAX], ours[HELLO_VERSIONS_MAX];
    char who[ID_SHORT_MAX], why[NODE_REFUSAL_MAX];

    if (hello_fits(m, n->opt.oldest, n->opt.newest)) {
        return true;
    }
    hello_versions(m->oldest, m->newest, theirs);
    hello_versions(n->opt.oldest, n->opt.newest, ours);
    (void)snprintf(why, sizeof why,
                   "it speaks %s of the protocol, this one %s: update the "
                   "older of the two",
                   theirs, ours);
    id_short(peer, who);
    out_log(n->out, LOG_INFO, "peer %s is refused: %s", who, why);
    n->admit.n_refused++;
    node_say(n, link, MESSAGE_REFUSED, &r);
    note_refusal(n, link, REFUSAL_VERSION, why);
    return false;
}

const char *node_refusal(const struct node *n)
{
    return n->admit.refusal != REFUSAL_NONE &&
                   members_n_linked(&n->members) == 0
               ? n->admit.why
               : NULL;
}

static void keep_revocation(struct node *n, const struct revocation *m)
{
    uint8_t bytes[2048];
    int len = msg_encode(&revocation_schema, m, bytes, sizeof bytes);
    uint32_t at = len > 0 ? out_bytes(n->out, bytes, (size_t)len) : UINT32_MAX;
    struct job *job = at == UINT32_MAX ? NULL : out_job(n->out, JOB_REVOKED);

    if (job != NULL) {
        job->revoked = (struct out_span){at, (uint32_t)len};
    }
}

static void take_revocation(struct node *n, const struct revocation *m)
{
    if (!is_guarded(n) || m->body.sequence <= n->admit.revoked.body.sequence) {
        return;
    }
    if (!hash32_eq(&m->body.run, &n->opt.run_id) ||
        !message_verify(&n->opt.signer, n->terms.author,
                        &revocation_body_schema, &m->body, m->sig)) {
        n->malformed++;
        return;
    }
    n->admit.revoked = *m;
    out_log(n->out, LOG_INFO, "the run's author has revoked %u invitations",
            m->body.n_numbers);
    for (unsigned i = 0; i < NODE_GATES_MAX; i++) {
        struct node_gate *g = &n->admit.gates[i];

        if (!g->used || !g->open || g->refused) {
            continue;
        }
        if (is_revoked(n, g->number)) {
            refuse(n, g, REFUSAL_REVOKED);
        } else {
            node_say(n, g->link, MESSAGE_REVOCATION, &n->admit.revoked);
        }
    }
    keep_revocation(n, m);
}

void node_on_revocation(struct node *n,
                        uint32_t link,
                        const struct revocation *m)
{
    struct node_gate *g = gate_of(n, link);

    if (is_shut(g)) {
        refuse(n, g, REFUSAL_NOT_INVITED);
    } else {
        take_revocation(n, m);
    }
}

bool node_admit_recv(struct node *n, const struct event_recv *ev)
{
    struct node_gate *g = gate_of(n, ev->link);

    if (!is_shut(g)) {
        return false;
    }
    if (node_decode(n, ev)) {
        refuse(n, g, REFUSAL_NOT_INVITED);
    }
    return true;
}

bool node_is_admitted(const struct node *n, const struct peer_id *peer)
{
    if (!is_guarded(n)) {
        return true;
    }
    for (unsigned i = 0; i < NODE_GATES_MAX; i++) {
        if (n->admit.gates[i].used && n->admit.gates[i].open &&
            id_eq(&n->admit.gates[i].peer, peer)) {
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
            node_hang_up(n, n->members.links[i].link);
        }
    }
}

/* What an earlier life knew, or the author says to his own daemon. */
void node_on_told_revocation(struct node *n, const uint8_t *bytes, size_t len)
{
    const struct revocation *m = n->scratch;

    if (msg_decode(&revocation_schema, bytes, len, n->scratch) != 0) {
        n->malformed++;
    } else if (n->data.configured) {
        take_revocation(n, m);
    } else if (hash32_eq(&m->body.run, &n->opt.run_id) &&
               m->body.sequence > n->admit.revoked.body.sequence) {
        n->admit.revoked = *m; /* from our own disk: it was verified before */
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
    for (unsigned i = 0; i < NODE_GATES_MAX && is_guarded(n); i++) {
        struct node_gate *g = &n->admit.gates[i];

        if (g->used && !g->open && n->now >= g->due_ms) {
            refuse(n, g, REFUSAL_NOT_INVITED);
        }
    }
    if (n->admit.refusal == REFUSAL_NONE || n->data.configured || n->stopped ||
        n->data.manifest_got > 0) {
        return;
    }
    if (is_answered(n)) {
        n->admit.refused_ms = n->now;
    }
    if (n->now < n->admit.refused_ms + node_scaled(n, REFUSED_MS)) {
        return;
    }
    node_stop(n, LOCO_EXIT_INCOMPATIBLE);
    out_log(n->out, LOG_ERROR, "%s", n->admit.why);
}

void node_admit_refused(struct node *n)
{
    n->admit.n_refused++;
}
