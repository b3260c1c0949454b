/* request.c - questions of ours and their answers; see dht.h.
 *
 * dht_request_send() takes a slot and names the question; the slot comes free
 * in dht_request_end(): by the answer under that name from that peer, by the
 * time-out, or because the peer could not be reached. */
#include "p2p/dht/internal.h"
#include "p2p/prefix.h"

#include <assert.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/rng.h"

bool dht_emit(struct dht *d,
              struct dht_out *out,
              const struct peer_id *peer,
              const struct address *address,
              uint16_t message,
              const void *object)
{
    size_t room = DHT_OUT_BYTES_MAX - out->n_bytes;
    int len;

    if (out->n_sends == DHT_SENDS_MAX) {
        d->more = true;
        return false;
    }
    len = msg_encode(dht_msg_schema(message), object, out->bytes + out->n_bytes,
                     room);
    if (len < 0) {
        assert(len == LOCO_ERANGE && out->n_bytes > 0);
        d->more = true;
        return false;
    }
    out->sends[out->n_sends++] = (struct dht_send){.peer = *peer,
                                                   .address = *address,
                                                   .message = message,
                                                   .bytes = out->n_bytes,
                                                   .len = (uint32_t)len};
    out->n_bytes += (uint32_t)len;
    return true;
}

struct dht_request *dht_request_free(struct dht *d)
{
    for (uint32_t i = 0; i < d->opt.requests_max; i++) {
        if (!d->request[i].used) {
            return &d->request[i];
        }
    }
    return NULL;
}

/* Send `q` (named here) and wait for its answer. False: no room now. */
bool dht_request_send(struct dht *d,
                      struct dht_out *out,
                      const struct shortlist_entry *to,
                      uint16_t message,
                      union dht_question *q,
                      const struct dht_lookup *lookup,
                      uint32_t path)
{
    struct dht_request *r = dht_request_free(d);

    if (r == NULL) {
        return false;
    }
    q->request = rng_next(&d->rng);
    if (!dht_emit(d, out, &to->id, &to->address, message, q)) {
        return false;
    }
    /* Each answer's type is its question's plus one. */
    *r = (struct dht_request){
        .used = true,
        .name = q->request,
        .peer = to->id,
        .sent_ms = d->now_ms,
        .lookup = lookup == NULL ? DHT_NO_LOOKUP : dht_lookup_index(d, lookup),
        .path = (uint8_t)path,
        .answer = (uint16_t)(message + 1)};
    d->counts.requests_sent++;
    return true;
}

struct dht_lookup *dht_lookup_of(struct dht *d, const struct dht_request *r)
{
    return r->lookup == DHT_NO_LOOKUP ? NULL : &d->lookup[r->lookup];
}

/* The entry of the peer in its lookup takes `state`. */
struct shortlist_entry *dht_request_end(struct dht *d,
                                        struct dht_request *r,
                                        enum shortlist_state state)
{
    struct dht_lookup *l = dht_lookup_of(d, r);
    struct shortlist_entry *e;

    r->used = false;
    if (l == NULL) {
        return NULL;
    }
    assert(dht_lookup_is_running(l) && r->path < l->n_paths);
    if (!r->slow) {
        assert(l->path[r->path].n_flying > 0);
        l->path[r->path].n_flying--;
    }
    e = shortlist_find(&l->path[r->path].list, &r->peer);
    assert(e != NULL && e->state == SHORTLIST_ASKED);
    e->state = (uint8_t)state;
    return e;
}

static struct dht_request *
request_match(struct dht *d, const struct dht_input *in, uint64_t name)
{
    for (uint32_t i = 0; i < d->opt.requests_max; i++) {
        struct dht_request *r = &d->request[i];

        if (r->used && r->name == name && r->answer == in->message &&
            id_eq(&r->peer, &in->peer)) {
            return r;
        }
    }
    return NULL;
}

/* Whether the sender names itself: nobody's table lists its owner, so only a
 * liar does. */
static bool names_itself(const struct dht_input *in,
                         const struct dht_contact *c,
                         uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (id_eq(&c[i].id, &in->peer)) {
            return true;
        }
    }
    return false;
}

/* A private address that a public peer names is in a net that is not ours, or
 * in ours, where a stranger has nobody to name. */
static void learn(struct dht *d,
                  struct dht_path *path,
                  const struct dht_input *in,
                  const struct dht_contact *c,
                  uint32_t n,
                  uint32_t depth)
{
    bool outside = in->address.port != 0 && !prefix_is_private(in->address.ip);

    for (uint32_t i = 0; i < n; i++) {
        struct address address = {.port = c[i].port};

        if (c[i].port == 0 || id_eq(&c[i].id, &d->opt.table.self) ||
            (outside && prefix_is_private(c[i].ip))) {
            continue;
        }
        memcpy(address.ip, c[i].ip, sizeof address.ip);
        (void)shortlist_add(&path->list, &c[i].id, &address, depth);
    }
}

static void results_learn(struct dht *d,
                          struct dht_lookup *l,
                          const struct dht_values *say,
                          uint64_t wall_s)
{
    for (uint32_t i = 0; i < say->n_records; i++) {
        const struct record *r = &say->records[i];
        int rv = 0;

        if (memcmp(r->key.b, l->target.b, ID_BYTES) != 0) {
            d->counts.rejected[DHT_REJECT_MISPLACED]++;
            d->counts.bad_records++;
            continue;
        }
        rv = record_verify(r, &d->opt.signer, wall_s);
        if (rv != 0) {
            d->counts.bad_records++;
            (void)dht_reject(d, r, rv);
            continue;
        }
        dht_result_add(d, l, r);
    }
}

union answer {
    uint64_t request;
    struct dht_pong pong;
    struct dht_nodes nodes;
    struct dht_values values;
    struct dht_stored stored;
};

/* The answer to `r`: what it names and holds goes to the path that asked. */
static int take_answer(struct dht *d,
                       struct dht_request *r,
                       const struct dht_input *in,
                       const union answer *say)
{
    bool values = in->message == DHT_MSG_VALUES;
    const struct dht_contact *contacts =
        values ? say->values.contacts : say->nodes.contacts;
    uint32_t n = values                         ? say->values.n_contacts
                 : in->message == DHT_MSG_NODES ? say->nodes.n_contacts
                                                : 0;
    struct dht_lookup *l = dht_lookup_of(d, r);
    uint32_t path = r->path;
    struct shortlist_entry *e;

    if (names_itself(in, contacts, n)) {
        d->counts.self_named++;
        (void)dht_request_end(d, r, SHORTLIST_FAILED);
        return LOCO_EINVAL;
    }
    e = dht_request_end(d, r, SHORTLIST_ANSWERED);
    if (e == NULL) {
        return 0;
    }
    l->n_answered++;
    if (values) {
        results_learn(d, l, &say->values, in->wall_s);
    } else if (in->message == DHT_MSG_STORED) {
        l->n_stored += say->stored.kept;
    }
    learn(d, &l->path[path], in, contacts, n, e->depth + 1U);
    return 0;
}

int dht_on_answer(struct dht *d, const struct dht_input *in)
{
    struct dht_request *r;
    union answer say;

    if (msg_decode(dht_msg_schema(in->message), in->bytes, in->len, &say) !=
        0) {
        return LOCO_EPROTO;
    }
    r = request_match(d, in, say.request);
    if (r == NULL) {
        d->counts.unknown++;
        return LOCO_ESTALE;
    }
    d->counts.answers++;
    return take_answer(d, r, in, &say);
}
