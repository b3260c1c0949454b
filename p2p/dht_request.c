/* dht_request.c - questions of ours and their answers; see dht.h.
 *
 * dht_request_send() takes a slot and names the question; the slot comes free
 * in dht_request_end(): by the answer under that name from that peer, by the
 * time-out, or because the peer could not be reached. */
#include "p2p/dht_internal.h"

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
                      uint32_t lookup)
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
    *r = (struct dht_request){.used = true,
                              .name = q->request,
                              .peer = to->id,
                              .sent_ms = d->now_ms,
                              .lookup = lookup,
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
    assert(dht_lookup_is_running(l));
    if (!r->slow) {
        assert(l->n_flying > 0);
        l->n_flying--;
    }
    e = shortlist_find(&l->list, &r->peer);
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

static void learn(struct dht *d,
                  struct dht_lookup *l,
                  const struct dht_contact *c,
                  uint32_t n,
                  uint32_t depth)
{
    for (uint32_t i = 0; i < n; i++) {
        struct address address = {.port = c[i].port};

        if (c[i].port == 0 || id_eq(&c[i].id, &d->opt.table.self)) {
            continue;
        }
        memcpy(address.ip, c[i].ip, sizeof address.ip);
        (void)shortlist_add(&l->list, &c[i].id, &address, depth);
    }
}

static void results_learn(struct dht *d,
                          struct dht_lookup *l,
                          const struct dht_values *say,
                          uint64_t wall_s)
{
    for (uint32_t i = 0; i < say->n_records; i++) {
        const struct record *r = &say->records[i];

        if (memcmp(r->key.b, l->list.target.b, ID_BYTES) != 0 ||
            record_verify(r, &d->opt.signer, wall_s) != 0) {
            d->counts.bad_records++;
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

int dht_on_answer(struct dht *d, const struct dht_input *in)
{
    struct shortlist_entry *e;
    struct dht_request *r;
    struct dht_lookup *l;
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
    l = dht_lookup_of(d, r);
    e = dht_request_end(d, r, SHORTLIST_ANSWERED);
    if (e == NULL) {
        return 0;
    }
    if (in->message == DHT_MSG_NODES) {
        learn(d, l, say.nodes.contacts, say.nodes.n_contacts, e->depth + 1U);
    } else if (in->message == DHT_MSG_VALUES) {
        results_learn(d, l, &say.values, in->wall_s);
        learn(d, l, say.values.contacts, say.values.n_contacts, e->depth + 1U);
    } else if (in->message == DHT_MSG_STORED) {
        l->n_stored += say.stored.kept;
    }
    return 0;
}
