/* members_forward.c - between two members of a view that have no link.
 *
 * The sender signs {view, from, to, life, number, type, digest of the bytes},
 * so the third member needs no trust: it can drop or delay, nothing else. Each
 * message goes over two of those who hear its receiver, each time others, so
 * that one who drops all is not the only way. One hop, only between members of
 * one's own view, and within a budget per sender. Each number counts once in a
 * life. The bytes are the message as it would have gone over the link; what is
 * no message of the view or its rounds is refused.
 */
#include "p2p/swarm/members_internal.h"

#include <string.h>

#include "proto/hash.h"

/* Bytes that we pass on for one member in RELAY_MS: some views with their
 * certificates, and the votes of a round. */
#define RELAY_MS        1000
#define RELAY_BYTES_MAX (128U << 10)

/* What concerns only members. Bulk transfers need a connection of their own. */
static bool may_travel(uint16_t type)
{
    const struct message_row *row = message_row(type);

    return row != NULL && row->way == WAY_FORWARD;
}

static void digest_of(const struct forward *f, struct hash32 *out)
{
    hash_bytes("loco-forward-1", f->bytes, f->n_bytes, out);
}

bool members_forward(struct members *m,
                     struct out *out,
                     int peer,
                     uint16_t type,
                     const uint8_t *bytes,
                     size_t len)
{
    int ways[WAYS_MAX];
    uint32_t n = members_ways(m, peer, ways);
    bool said = false;
    struct forward f = {.body = {.view = m->watch_view,
                                 .from = m->opt.self,
                                 .life = m->opt.life,
                                 .message = type}};

    if (n == 0 || m->opt.signer.sign == NULL || !may_travel(type) ||
        len > sizeof f.bytes) {
        return false;
    }
    f.body.to = m->peers[peer].id;
    f.body.number = ++m->forward_number;
    f.n_bytes = (uint32_t)len;
    memcpy(f.bytes, bytes, len);
    digest_of(&f, &f.body.digest);
    if (message_sign(&m->opt.signer, &forward_body_schema, &f.body, f.sig) !=
        0) {
        return false;
    }
    m->counts.forwards++;
    for (uint32_t k = 0; k < n; k++) {
        said = members_send(m, out, ways[k], MESSAGE_FORWARD, &f) || said;
    }
    return said;
}

/* Not a copy. Each takes its own way, so an earlier one may come later. */
static bool is_new(const struct member *p, const struct forward_body *f)
{
    uint64_t ago = p->forwarded - f->number;

    return f->life != p->forward_life || f->number > p->forwarded ||
           (ago < 64 && !(p->forwarded_seen >> ago & 1));
}

static void note(struct member *p, const struct forward_body *f)
{
    uint64_t ahead = f->number - p->forwarded;

    if (f->life != p->forward_life ||
        (f->number > p->forwarded && ahead > 63)) {
        p->forwarded_seen = 0;
    } else if (f->number > p->forwarded) {
        p->forwarded_seen <<= ahead;
    } else {
        p->forwarded_seen |= BIT(p->forwarded - f->number);
        return;
    }
    p->forward_life = f->life;
    p->forwarded = f->number;
    p->forwarded_seen |= 1;
}

static bool within_budget(struct members *m, struct member *p, uint32_t bytes)
{
    if (m->now_ms - p->relay_ms >= RELAY_MS) {
        p->relay_ms = m->now_ms;
        p->relay_bytes = 0;
    }
    if (p->relay_bytes + bytes > RELAY_BYTES_MAX) {
        return false;
    }
    p->relay_bytes += bytes;
    return true;
}

/* For another member: as it is. */
static void
pass_on(struct members *m, int from, const struct forward *f, struct out *out)
{
    int to = members_find(m, &f->body.to);

    if (to == MEMBERS_NONE || !m->peers[to].watched ||
        !id_eq(&f->body.from, &m->peers[from].id) ||
        members_link_of_peer(m, to) == NULL ||
        !within_budget(m, &m->peers[from], f->n_bytes)) {
        m->counts.refused++;
        return;
    }
    m->counts.relayed++;
    (void)members_send(m, out, to, MESSAGE_FORWARD, f);
}

int members_forwarded(struct members *m,
                      int peer,
                      const struct forward *f,
                      struct out *out)
{
    int from = members_find(m, &f->body.from);
    struct hash32 digest;
    struct member *p;

    if (!m->peers[peer].watched || !hash32_eq(&f->body.view, &m->watch_view)) {
        return MEMBERS_NONE;
    }
    if (!id_eq(&f->body.to, &m->opt.self)) {
        pass_on(m, peer, f, out);
        return MEMBERS_NONE;
    }
    p = from == MEMBERS_NONE ? NULL : &m->peers[from];
    digest_of(f, &digest);
    if (p == NULL || !p->watched || !p->has_key ||
        (p->life != 0 && f->body.life != p->life) ||
        !may_travel(f->body.message) || !hash32_eq(&digest, &f->body.digest) ||
        !is_new(p, &f->body) ||
        !message_verify(&m->opt.signer, p->public_key, &forward_body_schema,
                        &f->body, f->sig)) {
        m->counts.refused++;
        return MEMBERS_NONE;
    }
    note(p, &f->body);
    p->word_ms = m->now_ms;
    return from;
}
