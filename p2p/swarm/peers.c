/* peers.c - see peers.h. */
#include "p2p/swarm/peers.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/msg.h"

static const uint8_t magic[PEERS_MAGIC_BYTES] = "loco-peers-1";

/* clang-format off */
MSG_PART(peers_contact,
         MSG_FIELD_FIXED(struct peers_contact, id),
         MSG_FIELD_FIXED(struct peers_contact, ip),
         MSG_FIELD_U16(struct peers_contact, port));

MSG_PART(peers,
         MSG_FIELD_FIXED(struct peers, magic),
         MSG_ARRAY_STRUCT(struct peers, contact, n, peers_contact_schema));
/* clang-format on */

/* How many live contacts of its bucket have been there longer than `c`. */
static uint32_t
rank(const struct kbucket_table *t, int b, const struct kbucket_contact *c)
{
    const struct kbucket_contact *o = kbucket_first(t, b);
    uint32_t n = 0;

    for (; o != NULL; o = kbucket_after(t, o)) {
        n += o->failures == 0 && o != c &&
             (o->since_ms < c->since_ms ||
              (o->since_ms == c->since_ms && id_cmp(&o->id, &c->id) < 0));
    }
    return n;
}

static void add(struct peers *p, const struct kbucket_contact *c)
{
    struct peers_contact *to = &p->contact[p->n++];

    to->id = c->id;
    memcpy(to->ip, c->address.ip, sizeof to->ip);
    to->port = c->address.port;
}

void peers_collect(struct peers *p, const struct kbucket_table *t)
{
    memset(p, 0, sizeof *p);
    memcpy(p->magic, magic, sizeof p->magic);
    for (uint32_t r = 0; r < t->opt.k; r++) {
        for (int b = KBUCKET_COUNT - 1; b >= 0; b--) {
            const struct kbucket_contact *c = kbucket_first(t, b);

            for (; c != NULL && p->n < PEERS_CACHE_MAX;
                 c = kbucket_after(t, c)) {
                if (c->failures == 0 && rank(t, b, c) == r) {
                    add(p, c);
                }
            }
        }
    }
}

int peers_encode(const struct peers *p, uint8_t *out, size_t cap)
{
    return msg_encode(&peers_schema, p, out, cap);
}

int peers_decode(const uint8_t *in, size_t len, struct peers *p)
{
    if (msg_decode(&peers_schema, in, len, p) != 0 ||
        memcmp(p->magic, magic, sizeof magic) != 0) {
        return LOCO_EFORMAT;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->contact[i].port == 0) {
            return LOCO_EFORMAT;
        }
    }
    return 0;
}
