/* loop.c - see loop.h: events in, actions out, one timer.
 *
 * Happy path: a callback sees something -> shell_step() (or shell_note() where
 * a step may be running) -> execute() -> what that caused is noted -> pump(),
 * called before the loop sleeps and after it read its sockets, steps the notes,
 * moves bulk on, ticks the core and sets the timer.
 *
 * What can go wrong: a core that always has more to say, or a flood of notes:
 * a turn is bounded, the idle handle keeps the loop awake for the rest.
 */
#include "p2p/uv/loop.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sodium.h>
#include <utlist.h>

#include "p2p/uv/addr.h"
#include "p2p/uv/shell.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/limits.h"

#define TURN_STEPS_MAX 1024 /* notes stepped before sockets get their turn */
#define TURN_TICKS_MAX 64   /* ticks, where the core is due again at once */
#define MAILBOX_MAX    (64U << 10)
#define OWN_REFS       5 /* four handles and the mailbox */

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

/* ---- notes ------------------------------------------------------------ */

void shell_note_taken(struct shell *s, struct note *note)
{
    if (s->closing) {
        free(note);
        return;
    }
    note->next = NULL;
    *s->notes_end = note;
    s->notes_end = &note->next;
}

void shell_note(struct shell *s, const struct event *event)
{
    struct note *note = shell_alloc(sizeof *note);

    note->event = *event;
    shell_note_taken(s, note);
}

static struct note *next_note(struct shell *s)
{
    struct note *note = s->notes;

    if (note != NULL) {
        s->notes = note->next;
        if (s->notes == NULL) {
            s->notes_end = &s->notes;
        }
    }
    return note;
}

/* No SEG_DONE of a cancelled attempt may reach the core, not even one that
 * waits here. */
static void purge_notes(struct shell *s, uint32_t stream, uint64_t attempt)
{
    struct note **at = &s->notes, *note;

    while ((note = *at) != NULL) {
        const struct event *e = &note->event;

        if (e->type == EVENT_SEG_DONE && e->segment.stream == stream &&
            (e->sent ? e->segment.attempt == attempt
                     : e->segment.attempt <= attempt)) {
            *at = note->next;
            free(note);
        } else {
            at = &note->next;
        }
    }
    s->notes_end = at;
}

/* ---- actions ---------------------------------------------------------- */

static void cancel(struct shell *s, const struct action *a)
{
    bulk_cancel(s, a->stream, a->attempt);
    purge_notes(s, a->stream, a->attempt);
}

/* The barrier: false when what follows in `out` must not be said. */
static bool save(struct shell *s, const struct action *a, const uint8_t *bytes)
{
    struct event e = {.type = EVENT_SAVE_FAILED};
    int rv = s->calls.save(s->calls.self, bytes, a->len);

    if (rv >= 0) {
        return true;
    }
    e.rc = rv;
    shell_note(s, &e);
    return false;
}

/* One action; false: a SAVE that failed. */
static bool execute_one(struct shell *s, const struct action *a)
{
    const uint8_t *bytes = s->out->bytes + a->bytes;

    switch (a->type) {
    case ACTION_SEND:
        link_send(s, a, bytes);
        break;
    case ACTION_DIAL:
        link_dial(s, a);
        break;
    case ACTION_HANG_UP:
        link_hang_up(s, a->link);
        break;
    case ACTION_BULK_OPEN:
        bulk_open(s, a);
        break;
    case ACTION_POST_RECV:
        bulk_post(s, &a->segment);
        break;
    case ACTION_SEND_SEG:
        bulk_send(s, &a->segment);
        break;
    case ACTION_CANCEL:
        cancel(s, a);
        break;
    case ACTION_SAVE:
        return save(s, a, bytes);
    default:
        s->calls.local(s->calls.self, a, s->out);
        break;
    }
    return true;
}

static void execute(struct shell *s)
{
    bool silent = false; /* a SAVE failed: nothing that rests on it is said */

    for (uint32_t i = 0; i < s->out->n && !s->closing; i++) {
        const struct action *a = &s->out->action[i];

        if (!(silent && a->type == ACTION_SEND) && !execute_one(s, a)) {
            silent = true;
        }
    }
}

/* Only for the expiry of signed records; no deadline rests on it. */
static uint64_t wall_now_s(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec;
}

void shell_step(struct shell *s, struct event *event)
{
    assert(!s->stepping);
    if (s->closing) {
        return;
    }
    s->stepping = true;
    event->now_ms = shell_now_ms();
    event->wall_s = wall_now_s();
    s->out->n = 0;
    s->out->n_bytes = 0;
    s->out->dropped = 0;
    s->core.step(s->core.self, event, s->out);
    s->stats.actions_dropped += s->out->dropped;
    execute(s);
    s->stepping = false;
}

/* ---- the turn --------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    (void)timer; /* on_prepare comes next and pumps */
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* while it runs, the loop does not sleep */
}

static void arm(struct shell *s)
{
    uint64_t due = s->core.deadline(s->core.self), now;

    if (due == s->armed_ms && uv_is_active((uv_handle_t *)&s->timer)) {
        return;
    }
    s->armed_ms = due;
    if (due == CORE_NEVER) {
        uv_timer_stop(&s->timer);
        return;
    }
    now = shell_now_ms();
    uv_update_time(s->loop);
    uv_timer_start(&s->timer, on_timer, due > now ? due - now : 0, 0);
}

static bool pump_note(struct shell *s)
{
    struct note *note = next_note(s);

    if (note == NULL) {
        return false;
    }
    shell_step(s, &note->event);
    free(note);
    return true;
}

static bool pump_tick(struct shell *s)
{
    struct event e = {.type = EVENT_TICK};

    if (s->core.deadline(s->core.self) > shell_now_ms()) {
        return false;
    }
    shell_step(s, &e);
    return true;
}

static void pump(struct shell *s)
{
    unsigned steps = 0, ticks = 0;

    while (!s->closing && steps < TURN_STEPS_MAX && ticks < TURN_TICKS_MAX) {
        if (pump_note(s) || bulk_pump(s)) {
            steps++;
        } else if (pump_tick(s)) {
            ticks++;
        } else {
            uv_idle_stop(&s->idle);
            arm(s);
            return;
        }
    }
    if (!s->closing) {
        uv_idle_start(&s->idle, on_idle);
    }
}

static void on_prepare(uv_prepare_t *prepare)
{
    pump(prepare->data);
}

static void on_check(uv_check_t *check)
{
    pump(check->data);
}

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

/* ---- connections ------------------------------------------------------ */

static void on_none(struct conn *c)
{
    (void)c;
}

static void on_inbound_up(struct conn *c)
{
    if (c->kind == CONNECTION_BULK) {
        bulk_adopt(c);
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
        .version = PROTO_VERSION,
        .segment_bytes_max = FRAME_BULK_MAX,
        .slabs = 16,
        .handshake_ms = 5000,
        .linger_ms = 1000,
        .accept_retry_ms = 100,
        .accepts_per_s = 100,
        .conns_max = 256,
        .half_open_max = 64,
        .bulks_per_peer_max = 4,
        .sends_max = 1024,
        .posts_max = 8192,
        .link_queue_bytes_max = 4U << 20,
    };
}

static void init_handles(struct shell *s)
{
    uv_loop_t *loop = s->loop;

    /* None of these can fail in libuv. */
    uv_timer_init(loop, &s->timer);
    uv_prepare_init(loop, &s->prepare);
    uv_check_init(loop, &s->check);
    uv_idle_init(loop, &s->idle);
    s->timer.data = s->prepare.data = s->check.data = s->idle.data = s;
    uv_prepare_start(&s->prepare, on_prepare);
    uv_check_start(&s->check, on_check);
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
    s->notes_end = &s->notes;
    s->mailbox.data = s;
    rv = link_table_init(&s->links, opt->conns_max);
    if (rv != 0) {
        goto err_after_shell;
    }
    rv = mailbox_open(&s->mailbox, loop, MAILBOX_MAX, on_post);
    if (rv != 0) {
        goto err_after_links;
    }
    s->out = shell_alloc(sizeof *s->out);
    randombytes_buf(s->static_secret, sizeof s->static_secret);
    bulk_init(s);
    init_handles(s);
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
        s->listen_port = got;
    }
    if (bound != NULL) {
        *bound = got;
    }
    return 0;
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

static void on_handle_closed(uv_handle_t *handle)
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

void shell_close(struct shell *s, shell_close_cb cb, void *data)
{
    struct note *note;

    assert_loop_thread(s);
    if (s->closing) {
        return;
    }
    s->closing = true;
    s->close_cb = cb;
    s->close_data = data;
    while ((note = next_note(s)) != NULL) {
        free(note);
    }
    close_conns(s);
    for (unsigned i = 0; i < s->n_listeners; i++) {
        listener_close(&s->listeners[i]);
    }
    uv_close((uv_handle_t *)&s->timer, on_handle_closed);
    uv_close((uv_handle_t *)&s->prepare, on_handle_closed);
    uv_close((uv_handle_t *)&s->check, on_handle_closed);
    uv_close((uv_handle_t *)&s->idle, on_handle_closed);
    mailbox_close(&s->mailbox, on_mailbox_closed);
}
