/* twin.c - one identity, one process: who comes second is refused.
 *
 * A copied state directory gives two processes one identity. Where both take
 * part, each looks to the others like a restart of the other one. So a second
 * link of a peer is kept back until its HELLO tells the life of the process
 * behind it:
 *
 *   the life that we know   the same process dialled again: it is let in
 *   another one             the process that we know is asked whether it is
 *                           there (CLAIM). It answers with a signed PRESENT:
 *                           the newcomer gets that and REFUSED. Its links
 *                           break, or no answer comes for ANSWER_MS: it is
 *                           gone, and the newcomer is its restart
 *
 * Only an answer to our question counts, never what was still on its way. So a
 * restart is let in, after a crash at the latest after ANSWER_MS, and nobody
 * who has the key moves a process that answers.
 *
 * PRESENT names both lives and is signed by the key of the identity. So the
 * second process need not believe a peer: nobody can make up that there is
 * another one, or keep an old proof for a later life. It stops (exit 5) if the
 * other one is older and it has not taken part for SETTLED_MS itself; one that
 * has goes on, whatever is shown to it, and says so. So does one that finds
 * its own identity, in another process, at an address that it was told to join
 * by (LOCO_ETWIN, p2p/link/handshake.h).
 *
 * What it does not do: two processes of which no peer sees both are not
 * noticed. Members of a view are linked to all others of it.
 */
#include "daemon/node/internal.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/log.h"

#define HELLO_MS   5000
#define ANSWER_MS  2000 /* less than dead_ms: nobody gives us up before */
#define ASK_MS     500
#define SETTLED_MS 60000
#define WARN_MS    60000 /* at most one line about it in this time */

static struct node_second *twin_of(struct node *n, uint32_t link)
{
    for (unsigned i = 0; i < NODE_TWINS_MAX && n->twin.n > 0; i++) {
        if (n->twin.second[i].used && n->twin.second[i].up.link == link) {
            return &n->twin.second[i];
        }
    }
    return NULL;
}

static void drop(struct node *n, struct node_second *t)
{
    t->used = false;
    n->twin.n--;
}

static bool may_warn(struct node *n)
{
    if (n->now < n->twin.warn_ms) {
        return false;
    }
    n->twin.warn_ms = n->now + node_scaled(n, WARN_MS);
    return true;
}

/* ---- as one of the others ------------------------------------------------ */

bool node_twin_link_up(struct node *n, const struct event_link_up *ev)
{
    int peer = members_find(&n->members, &ev->peer);
    struct node_second *t = NULL;

    if (peer == MEMBERS_NONE || !members_linked(&n->members, peer)) {
        return false;
    }
    for (unsigned i = 0; i < NODE_TWINS_MAX && t == NULL; i++) {
        t = n->twin.second[i].used ? NULL : &n->twin.second[i];
    }
    if (t == NULL) {
        node_hang_up(n, ev->link);
        if (!ev->inbound) {
            members_dial_failed(&n->members, ev->request, 0, n->now);
        }
        return true;
    }
    *t = (struct node_second){.used = true,
                              .due_ms = n->now + node_scaled(n, HELLO_MS),
                              .up = *ev,
                              .up_ms = n->now};
    n->twin.n++;
    return true;
}

bool node_twin_link_down(struct node *n, const struct event_link_down *ev)
{
    struct node_second *t = twin_of(n, ev->link);

    if (t == NULL) {
        return false;
    }
    drop(n, t);
    if (!t->up.inbound) {
        members_dial_failed(&n->members, t->up.request, ev->rc, t->up_ms);
    }
    return true;
}

static void let_in(struct node *n, struct node_second *t)
{
    struct hello hello = t->hello;
    struct event_link_up up = t->up;
    int peer;

    drop(n, t);
    node_link_open(n, &up);
    peer = members_find(&n->members, &up.peer);
    if (peer != MEMBERS_NONE && members_linked(&n->members, peer)) {
        node_on_hello(n, peer, &hello);
    }
}

/* We stood still: an answer may lie in front of us, and is waited for again. */
void node_twin_gap(struct node *n)
{
    for (uint32_t i = 0; i < NODE_TWINS_MAX; i++) {
        struct node_second *t = &n->twin.second[i];

        t->due_ms = n->now + node_scaled(n, t->told ? ANSWER_MS : HELLO_MS);
        t->ask_ms = 0;
    }
}

static void look(struct node *n, struct node_second *t)
{
    int peer = members_find(&n->members, &t->up.peer);
    const struct member *p =
        peer == MEMBERS_NONE ? NULL : &n->members.peers[peer];
    struct claim m = {.life = t->hello.life};

    if (!t->told) {
        if (n->now >= t->due_ms) {
            t->refused = true;
            node_hang_up(n, t->up.link);
        }
        return;
    }
    if (p == NULL || !members_linked(&n->members, peer) || p->life == 0 ||
        p->life == t->hello.life) {
        let_in(n, t);
        return;
    }
    if (n->now >= t->due_ms) {
        members_hang_up_all(&n->members, peer, n->out);
        let_in(n, t);
        return;
    }
    if (n->now >= t->ask_ms) {
        t->ask_ms = n->now + node_scaled(n, ASK_MS);
        memcpy(m.from.ip, t->up.address.ip, sizeof m.from.ip);
        m.from.port = t->up.address.port;
        (void)members_send(&n->members, n->out, peer, MESSAGE_CLAIM, &m);
    }
}

bool node_twin_recv(struct node *n, const struct event_recv *ev)
{
    struct node_second *t = twin_of(n, ev->link);
    const struct message_row *row = message_row(ev->message);

    if (t == NULL) {
        return false;
    }
    if (t->refused || row == NULL || row->gate != GATE_SECOND) {
        return true; /* what is not repeated is asked for, once it is in */
    }
    if (!node_decode(n, ev)) {
        t->refused = true;
    } else if (ev->message == MESSAGE_PRESENT) {
        node_on_present(n, MEMBERS_NONE, n->scratch);
    } else if (!node_admit_version(n, ev->link, &t->up.peer, n->scratch)) {
        t->refused = true;
    } else if (!t->told) {
        t->told = true;
        t->hello = *(const struct hello *)n->scratch;
        t->due_ms = n->now + node_scaled(n, ANSWER_MS);
        look(n, t);
    }
    return true;
}

/* The first HELLO of a peer with two links may come over the later one. Another
 * life on the other link: it has to come again, and is kept back then. */
bool node_twin_hello(struct node *n,
                     int peer,
                     uint32_t link,
                     const struct hello *m)
{
    const struct member *p = &n->members.peers[peer];

    if (p->n_links < 2 || p->life == 0 || p->life == m->life) {
        return true;
    }
    node_hang_up(n, link);
    return false;
}

static void
refuse(struct node *n, struct node_second *t, const struct present *m)
{
    struct refused r = {.reason = REFUSAL_TWIN};
    char who[ID_SHORT_MAX], at[ADDRESS_TEXT_MAX];

    id_short(&t->up.peer, who);
    address_text(&t->up.address, at);
    out_log(n->out, LOG_INFO,
            "a second process with the identity %s, at %s, is refused: the "
            "first one answers",
            who, at);
    node_admit_refused(n);
    t->refused = true;
    node_say(n, t->up.link, MESSAGE_PRESENT, m);
    node_say(n, t->up.link, MESSAGE_REFUSED, &r);
    node_hang_up(n, t->up.link);
}

/* ---- as one of the two --------------------------------------------------- */

/* No limit on how often: it costs less than the wrong signatures that anybody
 * can have us check. */
void node_on_claim(struct node *n, int peer, const struct claim *m)
{
    struct present p = {.body = {.run = n->opt.run_id,
                                 .life = n->life,
                                 .other = m->life,
                                 .age_ms = n->now - n->started_ms}};
    char at[ADDRESS_TEXT_MAX];
    struct address from = {.port = m->from.port};

    if (m->life == n->life || message_sign(&n->opt.signer, &present_body_schema,
                                           &p.body, p.sig) != 0) {
        return;
    }
    (void)members_send(&n->members, n->out, peer, MESSAGE_PRESENT, &p);
    if (may_warn(n)) {
        memcpy(from.ip, m->from.ip, sizeof from.ip);
        address_text(&from, at);
        out_log(n->out, LOG_WARN,
                "a peer says that a second process with this identity, at %s, "
                "wants to take part: it is refused while this one answers. If "
                "it is not yours, somebody has the key",
                at);
    }
}

/* Proven: there is another process with our key. */
static void on_twin(struct node *n, const struct present_body *b)
{
    uint64_t age_ms = n->now - n->started_ms;
    bool first = b->age_ms != age_ms ? b->age_ms < age_ms : b->life > n->life;
    bool settled = n->twin.accepted_ms != 0 &&
                   n->now >= n->twin.accepted_ms + node_scaled(n, SETTLED_MS);

    n->twin.proven_ms = n->now;
    if (!first && !settled) {
        out_log(n->out, LOG_ERROR,
                "another daemon with this identity has run for %llu min and "
                "takes part: stop that one, or give this one a state "
                "directory of its own, with a key of its own",
                (unsigned long long)(b->age_ms / 60000));
        node_stop(n, LOCO_EXIT_IDENTITY);
    } else if (may_warn(n)) {
        out_log(n->out, LOG_WARN,
                "another daemon with this identity takes part, and some peers "
                "let only that one in: stop one of the two");
    }
}

static bool holds(const struct node *n,
                  const struct present *m,
                  const uint8_t key[SIGN_PUBLIC_BYTES])
{
    return hash32_eq(&m->body.run, &n->opt.run_id) &&
           message_verify(&n->opt.signer, key, &present_body_schema, &m->body,
                          m->sig);
}

/* `peer`: MEMBERS_NONE for who is not let in. */
void node_on_present(struct node *n, int peer, const struct present *m)
{
    const struct member *p =
        peer == MEMBERS_NONE ? NULL : &n->members.peers[peer];

    if (m->body.other == n->life) {
        if (holds(n, m, n->opt.public_key)) {
            on_twin(n, &m->body);
        } else {
            n->malformed++;
        }
        return;
    }
    for (unsigned i = 0; i < NODE_TWINS_MAX && p != NULL; i++) {
        struct node_second *t = &n->twin.second[i];

        if (t->used && t->told && !t->refused && id_eq(&t->up.peer, &p->id) &&
            m->body.other == t->hello.life && m->body.life == p->life &&
            holds(n, m, p->public_key)) {
            refuse(n, t, m);
        }
    }
}

/* ---- as time goes by ----------------------------------------------------- */

/* Nobody else was reached, and behind an address of the invitation is our own
 * identity in another process. */
static void look_at_bootstrap(struct node *n)
{
    char where[ADDRESS_TEXT_MAX];

    if (n->members.reached ||
        n->now - n->started_ms >= node_scaled(n, SETTLED_MS)) {
        return;
    }
    for (unsigned i = 0; i < n->members.n_bootstrap; i++) {
        const struct members_bootstrap *b = &n->members.bootstrap[i];

        if (b->rc == LOCO_ETWIN) {
            address_text(&b->address, where);
            out_log(n->out, LOG_ERROR,
                    "the daemon at %s has this identity, too: stop that one, "
                    "or give this one a state directory of its own, with a "
                    "key of its own",
                    where);
            node_stop(n, LOCO_EXIT_IDENTITY);
            return;
        }
    }
}

void node_twin_advance(struct node *n)
{
    for (unsigned i = 0; i < NODE_TWINS_MAX && n->twin.n > 0; i++) {
        struct node_second *t = &n->twin.second[i];

        if (t->used && !t->refused) {
            look(n, t);
        }
    }
    look_at_bootstrap(n);
}

const char *node_twin_reason(const struct node *n)
{
    return n->twin.proven_ms != 0 &&
                   n->now < n->twin.proven_ms + node_scaled(n, WARN_MS)
               ? "another daemon with this identity takes part, and peers let "
                 "only one in: stop one of the two"
               : NULL;
}

void node_twin_accepted(struct node *n)
{
    if (n->twin.accepted_ms == 0) {
        n->twin.accepted_ms = n->now;
    }
}
