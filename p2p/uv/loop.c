/* loop.c - see loop.h: a shell's life, its options and counters, and what
 * arrives from elsewhere: messages of other threads, accepted connections. A
 * turn of the loop is in turn.c.
 */
#include "p2p/uv/loop.h"
#include "p2p/uv/cipher.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>
#include <utlist.h>

#include "p2p/uv/addr.h"
#include "p2p/uv/shell.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/limits.h"

#define MAILBOX_MAX (64U << 10)
#define OWN_REFS    9 /* seven handles, the mailbox, the barrier's thread */

#define CONTAINER_OF(p, type, field)                                           \
    ((type *)(void *)((char *)(p)-offsetof(type, field)))

struct post {
    struct mailbox_item item;
    struct local_event event;
};

void *shell_alloc(size_t bytes)
{
    void *p = malloc(bytes);

    if (p == NULL) {
        log_error("net", "out of memory (%zu bytes)", bytes);
        abort();
    }
    return p;
}

uint64_t shell_now_ms(void)
{
    return uv_hrtime() / 1000000U;
}

static void assert_loop_thread(const struct shell *s)
{
    uv_thread_t self = uv_thread_self();

    assert(uv_thread_equal(&self, &s->thread));
    (void)self;
}

/* ---- from elsewhere ---------------------------------------------------- */

static void
on_post(struct mailbox *m, struct mailbox_item *item, bool cancelled)
{
    struct post *post = CONTAINER_OF(item, struct post, item);
    struct event e = {.type = EVENT_LOCAL, .local = post->event};

    free(post);
    if (!cancelled) {
        shell_step(m->data, &e);
    }
}

static void on_none(struct conn *c)
{
    (void)c;
}

static void on_inbound_up(struct conn *c)
{
    if (c->kind == CONNECTION_BULK) {
        bulk_adopt(c);
    } else if (c->kind == CONNECTION_PROBE) {
        conn_close(c); /* it only wanted to know */
    } else {
        link_adopt(c);
    }
}

static void on_inbound_fail(struct conn *c, int rc)
{
    (void)rc;
    conn_close(c);
}

const struct conn_ops conn_ops_none = {
    .on_up = on_none,
    .on_fail = on_inbound_fail,
    .on_closed = on_none,
};

const struct conn_ops conn_ops_inbound = {
    .on_up = on_inbound_up,
    .on_fail = on_inbound_fail,
    .on_closed = on_none,
};

void shell_add_conn(struct shell *s, struct conn *c)
{
    DL_APPEND(s->conns, c);
    s->stats.conns++;
    shell_retain(s);
}

void shell_remove_conn(struct shell *s, struct conn *c)
{
    DL_DELETE(s->conns, c);
    s->stats.conns--;
}

/* ---- life ------------------------------------------------------------- */

void shell_options_default(struct shell_options *opt)
{
    *opt = (struct shell_options){
        .version = HANDSHAKE_VERSION,
        .aes_bulk = cipher_has_aes(),
        .segment_bytes_max = FRAME_BULK_MAX,
        .slabs = 16,
        .stranger_slabs = 8,
        .stranger_stall_ms = 10000,
        .handshake_ms = 5000,
        .linger_ms = 1000,
        .accept_retry_ms = 100,
        .accepts_per_s = 1000,
        .conns_max = 640,     /* a relay has two for each pipe */
        .half_open_max = 128, /* 2.5 s for a handshake in a storm */
        .bulks_per_peer_max = 4,
        .sends_max = 1024,
        .posts_max = 8192,
        .unposted_ms = UNPOSTED_MS,
        .link_queue_bytes_max = 4U << 20,
        .stranger_queue_bytes_max = 256U << 10,
        .strangers_queue_bytes_max = 16U << 20,
        .held_bytes_max = 32U << 20, /* twice what strangers may have */
        .strangers_paced = true,
        .spare_ms = 10000,
        .probe_ms = 3000,
        .relay_bytes_per_s = 2U << 20,
        .pipe_idle_ms = 120000,
        .punch_ms = 4000,
        .punch_tries = 10,
    };
    arrivals_options_default(&opt->arrivals);
}

static void on_unopened(struct worker_pool *pool)
{
    free(pool->data);
}

int shell_open(struct shell **shell,
               uv_loop_t *loop,
               const struct core *core,
               const struct shell_options *opt,
               const struct shell_calls *calls)
{
    struct shell *s = shell_alloc(sizeof *s);
    int rv;

    assert(opt->signer != NULL && opt->rules != NULL && opt->slabs > 0);
    assert(opt->conns_max <= LINK_SLOTS_MAX && opt->accepts_per_s > 0);
    memset(s, 0, sizeof *s);
    s->loop = loop;
    s->thread = uv_thread_self();
    s->core = *core;
    s->opt = *opt;
    s->calls = *calls;
    s->mailbox.data = s;
    rv = link_table_init(&s->links, opt->conns_max);
    if (rv != 0) {
        goto err_after_shell;
    }
    rv = barrier_open(s);
    if (rv != 0) {
        goto err_after_links;
    }
    rv = mailbox_open(&s->mailbox, loop, MAILBOX_MAX, on_post);
    if (rv != 0) {
        link_table_free(&s->links);
        worker_close(&s->barrier.pool, on_unopened);
        return rv;
    }
    s->out = shell_alloc(sizeof *s->out);
    randombytes_buf(s->static_secret, sizeof s->static_secret);
    bulk_init(s);
    turn_init(s);
    pace_init(s);
    pipe_init(s);
    room_init(s);
    s->n_refs = OWN_REFS;
    *shell = s;
    return 0;

err_after_links:
    link_table_free(&s->links);
err_after_shell:
    free(s);
    return rv;
}

int shell_listen(struct shell *s,
                 const char *host,
                 uint16_t port,
                 uint16_t *bound)
{
    struct address address;
    uint16_t got;
    int rv;

    assert_loop_thread(s);
    if (s->n_listeners == SHELL_LISTEN_MAX) {
        return LOCO_EFULL;
    }
    rv = address_parse(host, port, &address);
    if (rv != 0) {
        return rv;
    }
    rv = listener_open(&s->listeners[s->n_listeners], s, &address, &got);
    if (rv != 0) {
        return rv;
    }
    if (s->n_listeners++ == 0) {
        s->bound_port = s->listen_port = got;
    }
    if (bound != NULL) {
        *bound = got;
    }
    return 0;
}

void shell_told_port(struct shell *s, uint16_t port)
{
    assert_loop_thread(s);
    s->listen_port = port != 0 ? port : s->bound_port;
}

int shell_post(struct shell *s, const struct local_event *event)
{
    struct post *post = shell_alloc(sizeof *post);
    int rv;

    post->event = *event;
    rv = mailbox_post(&s->mailbox, &post->item);
    if (rv != 0) {
        free(post);
    }
    return rv;
}

void shell_stats(const struct shell *s, struct shell_stats *out)
{
    assert_loop_thread(s);
    *out = s->stats;
}

void shell_peer_stats(const struct shell *s,
                      const struct peer_id *peer,
                      struct shell_peer_stats *out)
{
    const struct peer *p = peer_find(s, peer);

    assert_loop_thread(s);
    *out = p != NULL ? p->stats : (struct shell_peer_stats){0};
}

/* ---- closing ---------------------------------------------------------- */

void shell_retain(struct shell *s)
{
    s->n_refs++;
}

void shell_release(struct shell *s)
{
    shell_close_cb cb = s->close_cb;
    void *data = s->close_data;

    assert(s->n_refs > 0);
    if (--s->n_refs > 0) {
        return;
    }
    assert(s->closing && s->conns == NULL);
    bulk_free(s);
    peer_clear(s);
    link_table_free(&s->links);
    free(s->out);
    sodium_memzero(s->static_secret, sizeof s->static_secret);
    free(s);
    if (cb != NULL) {
        cb(data);
    }
}

void shell_handle_closed(uv_handle_t *handle)
{
    shell_release(handle->data);
}

static void on_mailbox_closed(struct mailbox *m)
{
    shell_release(m->data);
}

/* Links flush what they were given; everything else ends now. */
static void close_conns(struct shell *s)
{
    struct conn *c, *tmp;

    DL_FOREACH_SAFE(s->conns, c, tmp)
    {
        if (c->state == CONN_UP && c->kind == CONNECTION_CONTROL) {
            link_hang_up(s, ((struct link *)c->owner)->id);
        } else if (c->state != CONN_LINGERING) {
            c->ops->on_fail(c, LOCO_ECLOSED);
        }
    }
}

/* Nothing is on its way to the disk. */
static void close_all(struct shell *s)
{
    s->closing = true;
    turn_close(s);
    pace_close(s);
    pipe_close(s);
    room_close(s);
    close_conns(s);
    for (unsigned i = 0; i < s->n_listeners; i++) {
        listener_close(&s->listeners[i]);
    }
    barrier_close(s);
}

void shell_saved(struct shell *s)
{
    if (s->leaving && !s->closing) {
        close_all(s);
    }
}

void shell_close(struct shell *s, shell_close_cb cb, void *data)
{
    assert_loop_thread(s);
    if (s->leaving) {
        return;
    }
    s->leaving = true;
    s->close_cb = cb;
    s->close_data = data;
    mailbox_close(&s->mailbox, on_mailbox_closed); /* nobody posts any more */
    if (!s->barrier.saving) {
        close_all(s);
    }
}
