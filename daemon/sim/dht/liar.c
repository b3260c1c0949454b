/* liar.c - the slots of a swarm that do not keep the rules.
 *
 * A liar joins with a core of its own, so that it is as well known as anybody,
 * and lets that core ask; what others ask it is answered here:
 *   colluder  the colluders closest to the target; says it kept what it drops
 *   mirror    itself, whatever the question
 *   flooder   as an honest node; but every FLOOD_MS it also sends one of each
 *             kind of wrong message to somebody
 */
#include "daemon/sim/dht/internal.h"

#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

#define FLOOD_MS 40    /* 7 messages each: 175 a second */
#define PUSH_MS  20000 /* a colluder makes itself known to one more node */

/* ---- answers ------------------------------------------------------------ */

static struct dht_contact contact_of(const struct swarm *s, uint32_t slot)
{
    const struct swarm_node *n = &s->node[slot];
    struct dht_contact c = {.id = n->identity.id, .port = n->address.port};

    memcpy(c.ip, n->address.ip, sizeof c.ip);
    return c;
}

/* The colluders closest to the target but the asker's own slot. */
static uint32_t friends(const struct swarm *s,
                        const struct peer_id *target,
                        struct dht_contact *to)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n_colluders; i++) {
        const struct peer_id *id = &s->node[s->colluder[i]].identity.id;
        uint32_t at;

        if (n == DHT_CONTACTS_MAX &&
            id_xor_cmp(target, id, &to[n - 1].id) >= 0) {
            continue;
        }
        at = n < DHT_CONTACTS_MAX ? n++ : n - 1;
        for (; at > 0 && id_xor_cmp(target, id, &to[at - 1].id) < 0; at--) {
            to[at] = to[at - 1];
        }
        to[at] = contact_of(s, s->colluder[i]);
    }
    return n;
}

static void say(struct swarm *s,
                uint32_t from,
                uint32_t to,
                uint16_t message,
                const void *object)
{
    uint8_t bytes[16 << 10];
    int len = msg_encode(dht_msg_schema(message), object, bytes, sizeof bytes);

    if (len > 0) {
        swarm_send(s, from, to, &s->node[to].identity.id, message, bytes,
                   (uint32_t)len);
    }
}

/* What a liar names when asked for the way to `target`. */
static uint32_t names(const struct swarm *s,
                      uint32_t slot,
                      const struct peer_id *target,
                      struct dht_contact *to)
{
    uint32_t n, kept = 0;

    if (s->node[slot].role == SWARM_MIRROR) {
        to[0] = contact_of(s, slot);
        return 1;
    }
    n = friends(s, target, to);
    for (uint32_t i = 0; i < n; i++) { /* naming itself would give it away */
        if (!id_eq(&to[i].id, &s->node[slot].identity.id)) {
            to[kept++] = to[i];
        }
    }
    return kept;
}

bool swarm_liar_recv(struct swarm *s,
                     uint32_t slot,
                     uint32_t from,
                     uint16_t message,
                     const uint8_t *bytes,
                     uint32_t len)
{
    static union {
        struct dht_find_node node;
        struct dht_find_value value;
        struct dht_store store;
    } ask;
    static struct dht_values values;
    static struct dht_nodes nodes;
    struct dht_stored stored = {.kept = true};

    if (s->node[slot].role == SWARM_FLOODER || message % 2 != 0 ||
        message == DHT_MSG_PING ||
        msg_decode(dht_msg_schema(message), bytes, len, &ask) != 0) {
        return false;
    }
    if (message == DHT_MSG_STORE) {
        stored.request = ask.store.request;
        say(s, slot, from, DHT_MSG_STORED, &stored);
    } else if (message == DHT_MSG_FIND_NODE) {
        nodes.request = ask.node.request;
        nodes.n_contacts = names(s, slot, &ask.node.target, nodes.contacts);
        say(s, slot, from, DHT_MSG_NODES, &nodes);
    } else {
        values.request = ask.value.request;
        values.n_records = 0;
        values.n_contacts = names(s, slot, &ask.value.target, values.contacts);
        say(s, slot, from, DHT_MSG_VALUES, &values);
    }
    return true;
}

/* ---- on its own account ------------------------------------------------- */

static void push_call(struct swarm *s, uint64_t arg)
{
    uint32_t slot = (uint32_t)arg, to = swarm_pick(s, 0);
    struct swarm_node *n = &s->node[slot];
    struct dht_ping ping = {.request = rng_next(&s->rng)};

    if (!n->up || n->life != arg >> 32) {
        return;
    }
    if (to != UINT32_MAX && !s->node[to].client) {
        say(s, slot, to, DHT_MSG_PING, &ping);
    }
    swarm_at(s, s->now_ms + PUSH_MS, push_call, arg);
}

/* A record under the key of some honest node: by a publisher who does not
 * exist, by that node but older, forged, or from the future. */
static void flood_store(struct swarm *s, uint32_t slot, uint32_t to, int kind)
{
    uint32_t victim = swarm_pick(s, 0);
    struct identity nobody;
    struct signer signer;
    struct dht_store store = {.request = rng_next(&s->rng)};
    struct hash32 key;

    if (victim == UINT32_MAX) {
        return;
    }
    memcpy(key.b, s->node[victim].identity.id.b, sizeof key.b);
    store.record = swarm_record(s, victim, &key);
    identity_fake(&nobody, rng_next(&s->rng));
    signer = signer_keyed(kind == 0 || kind == 3 ? &nobody
                                                 : &s->node[victim].identity);
    store.record.sequence = kind == 1 ? 1 : store.record.sequence;
    store.record.expiry_s +=
        kind == 3 ? RECORD_LIFETIME_MAX_S : swarm_below(s, 60);
    (void)record_sign(&store.record, &signer);
    store.record.signature[5] ^= kind == 2;
    say(s, slot, to, DHT_MSG_STORE, &store);
}

static void flood_call(struct swarm *s, uint64_t arg)
{
    uint32_t slot = (uint32_t)arg, to = swarm_pick(s, 0);
    struct swarm_node *n = &s->node[slot];
    struct dht_find_value find = {.request = rng_next(&s->rng)};
    struct dht_nodes lie = {.request = rng_next(&s->rng), .n_contacts = 1};
    uint8_t junk[64];

    if (!n->up || n->life != arg >> 32) {
        return;
    }
    swarm_at(s, s->now_ms + FLOOD_MS, flood_call, arg);
    if (slot % 2 == 0 && s->target != UINT32_MAX) {
        to = s->target;
    }
    if (to == UINT32_MAX || s->node[to].client || !s->node[to].up) {
        return;
    }
    for (int kind = 0; kind < 4; kind++) {
        flood_store(s, slot, to, kind);
    }
    lie.contacts[0] = contact_of(s, slot);
    say(s, slot, to, DHT_MSG_NODES, &lie); /* to a question nobody asked */
    find.target = s->node[to].identity.id;
    say(s, slot, to, DHT_MSG_FIND_VALUE, &find);
    for (size_t i = 0; i < sizeof junk; i++) {
        junk[i] = (uint8_t)rng_next(&s->rng);
    }
    junk[0] = 0xC1; /* never msgpack */
    swarm_send(s, slot, to, &s->node[to].identity.id, DHT_MSG_STORE, junk,
               sizeof junk);
}

void swarm_liar_start(struct swarm *s, uint32_t slot)
{
    uint64_t arg = (uint64_t)s->node[slot].life << 32 | slot;

    if (s->node[slot].role == SWARM_FLOODER) {
        swarm_at(s, s->now_ms + 30000, flood_call, arg);
    } else {
        swarm_at(s, s->now_ms + 1000 + swarm_below(s, PUSH_MS), push_call, arg);
    }
}
