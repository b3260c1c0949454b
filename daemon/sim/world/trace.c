/* trace.c - the hash that names a run, and its last lines. */
#include "daemon/sim/world/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/messages.h"

/* What a kind of event is in the hash, and in the lines. An id belongs to its
 * kind for good: events may move within their enum, new ones get the next id,
 * and the traces of what did not change stay what they were. */
struct kind {
    uint8_t id;
    const char *name;
};

static const struct kind event_kind[] = {
    [EVENT_TICK] = {0, "tick"},
    [EVENT_LINK_UP] = {1, "link-up"},
    [EVENT_LINK_DOWN] = {2, "link-down"},
    [EVENT_DIAL_FAILED] = {3, "dial-failed"},
    [EVENT_RECV] = {4, "recv"},
    [EVENT_SEG_DONE] = {5, "seg-done"},
    [EVENT_MOVED] = {6, "moved"},
    [EVENT_SAVE_FAILED] = {7, "save-failed"},
    [EVENT_PROBED] = {8, "probed"},
    [EVENT_RELAY] = {9, "relay"},
    [EVENT_RELAY_MOVED] = {10, "relay-moved"},
    [EVENT_LOCAL] = {11, "local"},
    [EVENT_MET] = {12, "met"},
    [EVENT_BULK_MET] = {13, "bulk-met"},
    [EVENT_PUNCHED] = {14, "punched"},
};

static const struct kind local_kind[] = {
    [LOCAL_CONFIGURED] = {0, "configured"},
    [LOCAL_LOADED] = {1, "loaded"},
    [LOCAL_PROGRESS] = {2, "progress"},
    [LOCAL_TRAINED] = {3, "trained"},
    [LOCAL_APPLIED] = {4, "applied"},
    [LOCAL_EVALUATED] = {5, "evaluated"},
    [LOCAL_HASHED] = {6, "hashed"},
    [LOCAL_INHERITED] = {7, "inherited"},
    [LOCAL_VERIFIED] = {8, "verified"},
    [LOCAL_DOWNLOADING] = {9, "downloading"},
    [LOCAL_DOWNLOADED] = {10, "downloaded"},
    [LOCAL_PAUSE] = {11, "pause"},
    [LOCAL_RESUME] = {12, "resume"},
    [LOCAL_DRAIN] = {13, "drain"},
    [LOCAL_MAPPED] = {14, "mapped"},
    [LOCAL_REVOKED] = {15, "revoked"},
    [LOCAL_NEARBY] = {16, "nearby"},
    [LOCAL_STAGED] = {17, "staged"},
    [LOCAL_PIPED] = {18, "piped"},
    /* 19 was a job of slices of the parameters, and stays free. */
    [LOCAL_AUDITED] = {20, "audited"},
    [LOCAL_PLACED] = {21, "placed"},
    [LOCAL_REPEATED] = {22, "repeated"},
    [LOCAL_STRAYS] = {23, "strays"},
};

_Static_assert(sizeof event_kind / sizeof *event_kind == EVENT_TYPE_COUNT,
               "an id for each event");
_Static_assert(sizeof local_kind / sizeof *local_kind == LOCAL_TYPE_COUNT,
               "an id for each local event");

/* FNV-1a, a word at a time. */
static void mix(struct world *w, uint64_t x)
{
    w->trace = (w->trace ^ x) * 0x100000001B3U;
    w->trace ^= w->trace >> 29;
}

static void mix_bytes(struct world *w, const uint8_t *bytes, size_t len)
{
    uint64_t x = len;

    mix(w, x);
    for (size_t i = 0; i + 8 <= len; i += 8) {
        mix(w, get_u64(bytes + i));
    }
    x = 0;
    for (size_t i = len - len % 8; i < len; i++) {
        x = x << 8 | bytes[i];
    }
    mix(w, x);
}

static struct trace_line *line_new(struct world *w, uint32_t peer)
{
    struct trace_line *l = &w->lines[w->n_lines++ % WORLD_TRACE_LINES];

    l->at_ms = w->now_ms;
    l->step = w->stats.steps;
    l->peer = peer;
    return l;
}

static void line_print(const struct trace_line *l, FILE *to)
{
    fprintf(to, "%10" PRIu64 " ms  step %8" PRIu64 "  peer %3u  %s\n", l->at_ms,
            l->step, l->peer, l->text);
}

static void line_done(struct world *w, const struct trace_line *l)
{
    if (w->opt.print_trace) {
        line_print(l, stderr);
    }
}

void world_note(struct world *w, uint32_t peer, const char *text)
{
    struct trace_line *l = line_new(w, peer);

    (void)snprintf(l->text, sizeof l->text, "* %.90s", text);
    mix_bytes(w, (const uint8_t *)text, strlen(text));
    line_done(w, l);
}

/* The link of an event, and what it ended with; 0 where it has none. */
static uint32_t link_of(const struct event *e)
{
    switch (e->type) {
    case EVENT_LINK_UP:
        return e->link_up.link;
    case EVENT_LINK_DOWN:
        return e->link_down.link;
    case EVENT_RECV:
        return e->recv.link;
    default:
        return 0;
    }
}

static int rc_of(const struct event *e)
{
    switch (e->type) {
    case EVENT_LINK_DOWN:
        return e->link_down.rc;
    case EVENT_DIAL_FAILED:
        return e->dial_failed.rc;
    case EVENT_SEG_DONE:
        return e->seg_done.rc;
    case EVENT_SAVE_FAILED:
        return e->save_failed.rc;
    case EVENT_PROBED:
        return e->probed.rc;
    case EVENT_RELAY_MOVED:
        return e->relay_moved.rc;
    default:
        return 0;
    }
}

/* What a report adds to the hash, and to its line; 0 where it has none. */
struct said {
    uint64_t round, inner_step;
    struct hash32 hash, params_hash;
};

static struct said said_state(const struct report_state *s)
{
    return (struct said){.round = s->round,
                         .inner_step = s->inner_step,
                         .params_hash = s->params_hash};
}

static struct said said(const struct local_event *l)
{
    switch (l->type) {
    case LOCAL_LOADED:
        return said_state(&l->loaded);
    case LOCAL_PLACED:
        return (struct said){.round = l->placed.round,
                             .inner_step = l->placed.inner_step};
    case LOCAL_APPLIED:
        return said_state(&l->applied);
    case LOCAL_PROGRESS:
        return (struct said){.inner_step = l->progress.inner_step};
    case LOCAL_TRAINED:
        return (struct said){.round = l->trained.round,
                             .inner_step = l->trained.inner_step};
    case LOCAL_EVALUATED:
        return (struct said){.round = l->evaluated.round};
    case LOCAL_HASHED:
        return (struct said){.hash = l->hashed.hash};
    case LOCAL_VERIFIED:
        return (struct said){.hash = l->verified.hash,
                             .params_hash = l->verified.params_hash};
    case LOCAL_PIPED:
        return (struct said){.inner_step = l->piped.inner_step};
    default:
        return (struct said){0};
    }
}

static void
describe(const struct world *w, const struct event *e, char *text, size_t n)
{
    const struct segment *s = &e->seg_done.segment;
    struct said local;
    uint32_t from;

    switch (e->type) {
    case EVENT_RECV:
        (void)snprintf(text, n, "recv %s, %zu bytes, link %u",
                       message_name(e->recv.message), e->recv.len,
                       e->recv.link);
        break;
    case EVENT_SEG_DONE:
        (void)snprintf(text, n, "seg-done %s peer %u %u/%llx #%u rc %d",
                       e->seg_done.sent ? "sent to" : "got from",
                       world_find(w, &s->peer), s->stream,
                       (unsigned long long)s->attempt, s->seg, e->seg_done.rc);
        break;
    case EVENT_LOCAL:
        local = said(&e->local);
        (void)snprintf(text, n, "local %s rc %d round %llu step %llu",
                       local_kind[e->local.type].name, e->local.rc,
                       (unsigned long long)local.round,
                       (unsigned long long)local.inner_step);
        break;
    case EVENT_LINK_UP:
        from = world_find(w, &e->link_up.peer);
        (void)snprintf(text, n, "link-up %u %s peer %u", e->link_up.link,
                       e->link_up.inbound ? "from" : "to", from);
        break;
    default:
        (void)snprintf(text, n, "%s link %u rc %d", event_kind[e->type].name,
                       link_of(e), rc_of(e));
        break;
    }
}

void trace_event(struct world *w, uint32_t peer, const struct event *e)
{
    const struct segment *s = &e->seg_done.segment;
    struct trace_line *line;
    struct said local;

    mix(w, w->now_ms << 24 ^ (uint64_t)peer << 4 ^ event_kind[e->type].id);
    mix(w, (uint64_t)(uint32_t)rc_of(e) << 32 | link_of(e));
    if (e->type == EVENT_RECV) {
        mix(w, e->recv.message);
        mix_bytes(w, e->recv.bytes, e->recv.len);
    } else if (e->type == EVENT_SEG_DONE) {
        mix(w, s->attempt ^ (uint64_t)s->seg << 40 ^ e->seg_done.sent);
    } else if (e->type == EVENT_LOCAL) {
        local = said(&e->local);
        mix(w, local_kind[e->local.type].id ^ local.round << 8 ^
                   local.inner_step << 32);
        mix_bytes(w, local.hash.b, sizeof local.hash.b);
        mix_bytes(w, local.params_hash.b, sizeof local.params_hash.b);
    }
    if (e->type != EVENT_TICK || w->opt.print_trace) {
        line = line_new(w, peer);
        describe(w, e, line->text, sizeof line->text);
        line_done(w, line);
    }
}

void world_print_trace(const struct world *w)
{
    uint64_t n =
        w->n_lines < WORLD_TRACE_LINES ? w->n_lines : WORLD_TRACE_LINES;

    for (uint64_t k = w->n_lines - n; k < w->n_lines; k++) {
        line_print(&w->lines[k % WORLD_TRACE_LINES], stderr);
    }
}
