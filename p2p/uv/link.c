/* link.c - see link.h. */
#include "p2p/uv/link.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "p2p/uv/bulk.h"
#include "p2p/uv/rtt.h"
#include "p2p/uv/shell.h"
#include "proto/base/err.h"

#define RTT_EVERY_MS 1000

/* ---- the table -------------------------------------------------------- */

int link_table_init(struct link_table *t, uint32_t n_slots)
{
    assert(n_slots > 0 && n_slots <= LINK_SLOTS_MAX);
    *t = (struct link_table){.n_slots = n_slots};
    t->slots = calloc(n_slots, sizeof *t->slots);
    t->generations = calloc(n_slots, sizeof *t->generations);
    if (t->slots == NULL || t->generations == NULL) {
        link_table_free(t);
        return LOCO_ENOMEM;
    }
    return 0;
}

void link_table_free(struct link_table *t)
{
    free(t->slots);
    free(t->generations);
    *t = (struct link_table){0};
}

static struct link *find(const struct shell *s, uint32_t id)
{
    uint32_t slot = id & (LINK_SLOTS_MAX - 1);
    struct link *l = slot < s->links.n_slots ? s->links.slots[slot] : NULL;

    return l != NULL && l->id == id ? l : NULL;
}

/* A slot and a number for `l`; there are as many slots as connections. */
static void enter(struct link_table *t, struct link *l)
{
    const uint32_t generation_max = UINT32_MAX >> LINK_SLOT_BITS;
    uint32_t slot = t->next;

    while (t->slots[slot] != NULL) {
        slot = (slot + 1) % t->n_slots;
        assert(slot != t->next);
    }
    t->next = (slot + 1) % t->n_slots;
    t->slots[slot] = l;
    t->generations[slot] = t->generations[slot] % generation_max + 1;
    l->id = t->generations[slot] << LINK_SLOT_BITS | slot;
}

/* ---- life ------------------------------------------------------------- */

/* Who is trusted comes back from there, perhaps. */
static void know(const struct link *l, uint64_t now_ms)
{
    struct conn *c = l->conn;

    if (l->trusted && !conn_is_relayed(c)) {
        arrivals_know(&c->shell->room.arrivals, &c->remote.id, c->address.ip,
                      now_ms);
    }
}

void link_know_at(struct shell *s, const uint8_t ip[16], uint64_t now_ms)
{
    for (uint32_t i = 0; i < s->links.n_slots; i++) {
        const struct link *l = s->links.slots[i];

        if (l != NULL && l->trusted &&
            memcmp(l->conn->address.ip, ip, sizeof l->conn->address.ip) == 0) {
            know(l, now_ms);
        }
    }
}

static bool is_linked(const struct shell *s, const struct peer_id *id)
{
    for (uint32_t i = 0; i < s->links.n_slots; i++) {
        const struct link *l = s->links.slots[i];

        if (l != NULL && id_eq(&l->conn->remote.id, id)) {
            return true;
        }
    }
    return false;
}

/* Out of the table and LINK_DOWN to the core; the connection lives on. */
static void leave(struct link *l, int rc)
{
    struct conn *c = l->conn;
    struct shell *s = c->shell;
    struct event e = {.type = EVENT_LINK_DOWN, .link_down = {l->id, rc}};

    know(l, shell_now_ms());
    s->links.slots[l->id & (LINK_SLOTS_MAX - 1)] = NULL;
    s->stats.links--;
    spare_owe(s);
    c->owner = NULL;
    barrier_forget(s, l->id);
    free(l->frame);
    free(l);
    shell_note(s, &e);
    if (!is_linked(s, &c->remote.id)) {
        bulk_unlinked(s, &c->remote.id);
    }
}

static void on_fail(struct conn *c, int rc)
{
    if (c->owner != NULL) {
        leave(c->owner, rc);
    }
    conn_close(c);
}

static void on_closed(struct conn *c)
{
    assert(c->owner == NULL);
    (void)c;
}

/* Through a relay the kernel sees only the way to the relay. */
static uint32_t round_trip(struct link *l)
{
    uint64_t now_ms = shell_now_ms();
    uv_os_fd_t fd;

    if (l->rtt_at_ms == 0 || now_ms - l->rtt_at_ms >= RTT_EVERY_MS) {
        l->rtt_at_ms = now_ms;
        if (id_is_zero(&l->conn->relay) &&
            uv_fileno((const uv_handle_t *)&l->conn->tcp, &fd) == 0) {
            l->rtt_us = rtt_of_socket(fd);
        }
    }
    return l->rtt_us;
}

static struct event received(struct link *l, const struct frame_event *f)
{
    return (struct event){.type = EVENT_RECV,
                          .recv = {.link = l->id,
                                   .rtt_us = round_trip(l),
                                   .message = f->header.type,
                                   .bytes = f->bytes,
                                   .len = f->len}};
}

static void on_record(struct conn *c, const uint8_t *plain, size_t len)
{
    bool taken = true; /* no frame of this record was skipped */
    struct frame_event f;
    size_t used;
    int rv;

    do {
        struct link *l = c->owner;

        rv = frame_feed(&l->decoder, plain, len, &used, &f);
        if (rv != 0) {
            c->shell->stats.frames_refused++;
            on_fail(c, rv);
            return;
        }
        plain += used;
        len -= used;
        taken = taken && (f.kind != FRAME_READY || pace_frame(c, f.len, len));
        if (f.kind == FRAME_READY && taken) {
            struct event e = received(l, &f);

            c->shell->pace.asks = c;
            shell_step(c->shell, &e);
            c->shell->pace.asks = NULL;
        } else {
            c->shell->stats.frames_refused += f.kind == FRAME_READY;
        }
        /* The step may have ended the link. */
    } while (f.kind != FRAME_NONE && c->owner != NULL);
}

static const struct conn_ops link_ops = {
    .on_record = on_record,
    .on_fail = on_fail,
    .on_closed = on_closed,
};

void link_adopt(struct conn *c)
{
    struct shell *s = c->shell;
    size_t cap = frame_buffer_bytes(s->opt.rules, s->opt.n_rules);
    struct link *l = shell_alloc(sizeof *l);
    struct event e = {.type = EVENT_LINK_UP};
    struct event_link_up *up = &e.link_up;

    if (!is_linked(s, &c->remote.id)) {
        c->peer->trusted = false; /* until the core says so */
    }
    *l = (struct link){.conn = c};
    l->frame = shell_alloc(cap > 0 ? cap : 1);
    frame_decoder_init(&l->decoder, s->opt.rules, s->opt.n_rules, l->frame,
                       cap);
    enter(&s->links, l);
    c->owner = l;
    c->ops = &link_ops;
    conn_buffer(c, RECORD_MAX);
    pace_stranger(c);
    s->stats.links++;
    up->link = l->id;
    up->inbound = c->inbound;
    up->request = c->request;
    up->peer = c->remote.id;
    memcpy(up->public_key, c->remote.public_key, sizeof up->public_key);
    up->address = c->address;
    up->address.port = c->remote.listen_port;
    up->met_at = c->met_at;
    if (conn_is_relayed(c)) {
        up->relay = c->relay;
        up->address = (struct address){0};
    }
    shell_step(s, &e);
}

/* ---- dialling --------------------------------------------------------- */

static void dial_failed(struct shell *s,
                        uint64_t request,
                        const struct address *address,
                        int rc)
{
    struct event e = {
        .type = EVENT_DIAL_FAILED,
        .dial_failed = {.request = request, .address = *address, .rc = rc}};

    shell_note(s, &e);
}

static void on_dial_fail(struct conn *c, int rc)
{
    dial_failed(c->shell, c->request, &c->address, rc);
    conn_close(c);
}

static const struct conn_ops dial_ops = {
    .on_up = link_adopt,
    .on_fail = on_dial_fail,
    .on_closed = on_closed,
};

void link_dial(struct shell *s, const struct action_dial *dial)
{
    struct conn_way way = {
        .address = dial->address, .relay = dial->relay, .meet = dial->meet};
    struct conn *c;
    int rv;

    if (s->stats.conns >= s->opt.conns_max) {
        (void)bulk_make_room(s);
    }
    rv = conn_dial_through(s, &dial_ops, CONNECTION_CONTROL, &way, &dial->peer,
                           &c);
    if (rv != 0) {
        dial_failed(s, dial->request, &dial->address, rv);
        return;
    }
    c->request = dial->request;
}

void link_come(struct shell *s, const struct action_relay_come *come)
{
    struct conn_way way = {.address = come->address,
                           .relay = come->relay,
                           .token = come->token,
                           .meet = come->meet};
    struct conn *c;

    /* Nobody waits for the outcome but the one who called. */
    (void)conn_dial_through(s, &conn_ops_inbound, CONNECTION_NONE, &way,
                            &come->peer, &c);
}

/* ---- sending ---------------------------------------------------------- */

static bool allowed(const struct shell *s, const struct action_send *send)
{
    const struct frame_rule *rule;

    if (send->message >= s->opt.n_rules || send->message > UINT8_MAX) {
        return false;
    }
    rule = &s->opt.rules[send->message];
    return rule->delivery == FRAME_WHOLE && send->bytes.len <= rule->bytes_max;
}

void link_trust(struct shell *s, const struct action_trust *trust)
{
    struct link *l = find(s, trust->link);

    if (l != NULL) {
        l->trusted = l->conn->peer->trusted = trust->trusted;
        pace_trust(l->conn, s->opt.strangers_paced && !trust->trusted);
        know(l, shell_now_ms());
    }
}

size_t link_all_queued(const struct shell *s)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->links.n_slots; i++) {
        const struct link *l = s->links.slots[i];

        n += l == NULL ? 0 : conn_queued(l->conn);
    }
    return n;
}

static void close_full(struct shell *s, struct link *l)
{
    s->stats.links_full++;
    on_fail(l->conn, LOCO_EBUSY);
}

static size_t queued(const struct link *l)
{
    return conn_queued(l->conn) + l->held;
}

/* Room for `len` more bytes of strangers: the one that holds most goes. */
static void make_room(struct shell *s, size_t len)
{
    for (;;) {
        struct link *most = NULL;
        size_t all = len;

        for (uint32_t i = 0; i < s->links.n_slots; i++) {
            struct link *l = s->links.slots[i];

            if (l == NULL || l->trusted) {
                continue;
            }
            all += queued(l);
            if (most == NULL || queued(l) > queued(most)) {
                most = l;
            }
        }
        if (most == NULL || all <= s->opt.strangers_queue_bytes_max) {
            return;
        }
        close_full(s, most);
    }
}

/* Whether so much more may wait on that link; if not, it is closed. */
static bool has_room(struct shell *s, struct link *l, size_t len)
{
    uint32_t most = l->trusted ? s->opt.link_queue_bytes_max
                               : s->opt.stranger_queue_bytes_max;
    uint32_t id = l->id;

    if (queued(l) + len > most) {
        close_full(s, l);
        return false;
    }
    if (l->trusted) {
        return true;
    }
    make_room(s, len);
    return find(s, id) != NULL;
}

bool link_hold(struct shell *s, const struct action_send *send, size_t all)
{
    struct link *l = find(s, send->link);

    if (l == NULL) {
        return false;
    }
    if (!allowed(s, send)) {
        s->stats.sends_refused++;
        return false;
    }
    if (!has_room(s, l, send->bytes.len)) {
        return false;
    }
    if (all + send->bytes.len > s->opt.held_bytes_max) {
        close_full(s, l);
        return false;
    }
    pace_answer(l->conn, send->bytes.len);
    l->held += send->bytes.len;
    return true;
}

void link_unhold(struct shell *s, const struct action_send *send)
{
    struct link *l = find(s, send->link);

    if (l != NULL) {
        l->held -= send->bytes.len;
    }
}

void link_send(struct shell *s,
               const struct action_send *send,
               const uint8_t *bytes)
{
    struct link *l = find(s, send->link);
    struct frame_header h = {.len = send->bytes.len,
                             .type = (uint8_t)send->message};
    uint8_t head[FRAME_HEADER_BYTES];
    int rv;

    if (l == NULL) {
        return; /* LINK_DOWN is on its way */
    }
    if (!allowed(s, send)) {
        s->stats.sends_refused++;
        return;
    }
    if (!has_room(s, l, send->bytes.len)) {
        return;
    }
    frame_header_encode(&h, head);
    pace_answer(l->conn, send->bytes.len);
    rv = conn_send(l->conn, head, sizeof head, bytes, send->bytes.len);
    if (rv != 0) {
        on_fail(l->conn, rv);
    }
}

void link_hang_up(struct shell *s, uint32_t id)
{
    struct link *l = find(s, id);
    struct conn *c;

    if (l == NULL) {
        return;
    }
    c = l->conn;
    leave(l, LOCO_ECLOSED);
    conn_hang_up(c);
}
