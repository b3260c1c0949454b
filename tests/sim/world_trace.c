/* world_trace.c - the hash that names a run, and its last lines. */
#include "tests/sim/world_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/messages.h"

static const char *const event_names[] = {
    [EVENT_TICK] = "tick",
    [EVENT_LINK_UP] = "link-up",
    [EVENT_LINK_DOWN] = "link-down",
    [EVENT_DIAL_FAILED] = "dial-failed",
    [EVENT_RECV] = "recv",
    [EVENT_SEG_DONE] = "seg-done",
    [EVENT_MOVED] = "moved",
    [EVENT_SAVE_FAILED] = "save-failed",
    [EVENT_PROBED] = "probed",
    [EVENT_RELAY] = "relay",
    [EVENT_RELAY_MOVED] = "relay-moved",
    [EVENT_LOCAL] = "local",
};

static const char *const local_names[] = {
    [LOCAL_CONFIGURED] = "configured",   [LOCAL_LOADED] = "loaded",
    [LOCAL_PROGRESS] = "progress",       [LOCAL_TRAINED] = "trained",
    [LOCAL_APPLIED] = "applied",         [LOCAL_EVALUATED] = "evaluated",
    [LOCAL_HASHED] = "hashed",           [LOCAL_INHERITED] = "inherited",
    [LOCAL_VERIFIED] = "verified",       [LOCAL_PAUSE] = "pause",
    [LOCAL_DOWNLOADING] = "downloading", [LOCAL_DOWNLOADED] = "downloaded",
    [LOCAL_RESUME] = "resume",           [LOCAL_DRAIN] = "drain",
    [LOCAL_MAPPED] = "mapped",           [LOCAL_NEARBY] = "nearby",
    [LOCAL_STAGED] = "staged",           [LOCAL_PIPED] = "piped",
    [LOCAL_REVOKED] = "revoked",         [LOCAL_SLICED] = "sliced",
};

_Static_assert(sizeof event_names / sizeof *event_names == EVENT_TYPE_COUNT,
               "a name for each event");
_Static_assert(sizeof local_names / sizeof *local_names == LOCAL_TYPE_COUNT,
               "a name for each local event");

/* FNV-1a, a word at a time. */
void trace_mix(struct world *w, uint64_t x)
{
    w->trace = (w->trace ^ x) * 0x100000001B3U;
    w->trace ^= w->trace >> 29;
}

static void mix_bytes(struct world *w, const uint8_t *bytes, size_t len)
{
    uint64_t x = len;

    trace_mix(w, x);
    for (size_t i = 0; i + 8 <= len; i += 8) {
        trace_mix(w, get_u64(bytes + i));
    }
    x = 0;
    for (size_t i = len - len % 8; i < len; i++) {
        x = x << 8 | bytes[i];
    }
    trace_mix(w, x);
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

static void
describe(const struct world *w, const struct event *e, char *text, size_t n)
{
    const struct segment *s = &e->segment;
    uint32_t from;

    switch (e->type) {
    case EVENT_RECV:
        (void)snprintf(text, n, "recv %s, %zu bytes, link %u",
                       message_name(e->message), e->len, e->link);
        break;
    case EVENT_SEG_DONE:
        (void)snprintf(text, n, "seg-done %s peer %u %u/%llx #%u rc %d",
                       e->sent ? "sent to" : "got from",
                       world_find(w, &s->peer), s->stream,
                       (unsigned long long)s->attempt, s->seg, e->rc);
        break;
    case EVENT_LOCAL:
        (void)snprintf(text, n, "local %s rc %d round %llu step %llu",
                       local_names[e->local.type], e->local.rc,
                       (unsigned long long)e->local.round,
                       (unsigned long long)e->local.inner_step);
        break;
    case EVENT_LINK_UP:
        from = world_find(w, &e->peer);
        (void)snprintf(text, n, "link-up %u %s peer %u", e->link,
                       e->inbound ? "from" : "to", from);
        break;
    default:
        (void)snprintf(text, n, "%s link %u rc %d", event_names[e->type],
                       e->link, e->rc);
        break;
    }
}

void trace_event(struct world *w, uint32_t peer, const struct event *e)
{
    const struct segment *s = &e->segment;
    const struct local_event *l = &e->local;
    struct trace_line *line;

    trace_mix(w, w->now_ms << 24 ^ (uint64_t)peer << 4 ^ (uint64_t)e->type);
    trace_mix(w, (uint64_t)(uint32_t)e->rc << 32 | e->link);
    if (e->type == EVENT_RECV) {
        trace_mix(w, e->message);
        mix_bytes(w, e->bytes, e->len);
    } else if (e->type == EVENT_SEG_DONE) {
        trace_mix(w, s->attempt ^ (uint64_t)s->seg << 40 ^ e->sent);
    } else if (e->type == EVENT_LOCAL) {
        trace_mix(w, (uint64_t)l->type ^ l->round << 8 ^ l->inner_step << 32);
        mix_bytes(w, l->hash.b, sizeof l->hash.b);
        mix_bytes(w, l->params_hash.b, sizeof l->params_hash.b);
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
