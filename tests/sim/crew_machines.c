/* crew_machines.c - the machines below a crew (crew.h): what the world asks of
 * them, and what they tell. */
#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "tests/sim/crew.h"
#include "tests/sim/world_internal.h"

static void stop(void *data, uint64_t number)
{
    struct crew *s = data;

    if (world_alive(s->world, (uint32_t)number)) {
        world_kill(s->world, (uint32_t)number);
        world_call(s->world, world_now(s->world) + 3000, crew_start, s, number);
    }
}

static void on_local(void *self,
                     uint32_t peer,
                     const struct action *a,
                     const struct out *out)
{
    struct crew *s = self;

    struct crew_peer *p = &s->peers[peer];

    if (a->type == ACTION_PEERS && a->len <= CREW_PEERS_BYTES) {
        p->n_cache = a->len;
        memcpy(p->cache, out->bytes + a->bytes, a->len);
    } else if (a->type == ACTION_CHAIN) {
        free(p->chain);
        p->chain = world_alloc(a->len);
        p->n_chain = a->len;
        memcpy(p->chain, out->bytes + a->bytes, a->len);
    }
    local_action(s->local, peer, a, out);
}

static void on_timer(void *self, uint32_t peer, uint64_t token)
{
    local_timer(((struct crew *)self)->local, peer, token);
}

static size_t on_wire_len(void *self, uint32_t peer, const struct segment *seg)
{
    return local_wire_len(((struct crew *)self)->local, peer, seg);
}

static int
on_fill(void *self, uint32_t peer, const struct segment *seg, uint8_t *dst)
{
    return local_fill(((struct crew *)self)->local, peer, seg, dst);
}

static int on_take(void *self,
                   uint32_t peer,
                   const struct segment *seg,
                   const uint8_t *src,
                   size_t len)
{
    return local_take(((struct crew *)self)->local, peer, seg, src, len);
}

static int on_sum(void *self, uint32_t peer, struct segment *seg)
{
    return local_sum(((struct crew *)self)->local, peer, seg);
}

static void on_contributed(void *self, const struct local_contribution *k)
{
    (void)self;
    (void)k;
}

static void on_applied(void *self, uint32_t peer, const struct local_applied *a)
{
    (void)self;
    (void)peer;
    (void)a;
}

static void on_loaded(void *self,
                      uint32_t peer,
                      uint64_t round,
                      const struct hash32 *params)
{
    (void)self;
    (void)peer;
    (void)round;
    (void)params;
}

static void on_stepped(void *self, uint32_t peer, const struct local_step *step)
{
    struct crew *s = self;

    if (s->stepped != NULL) {
        s->stepped(s->self, peer, step);
    }
}

static void on_wrong(void *self, const char *what)
{
    crew_fail(self, "C: %s", what);
}

static void on_sliced(void *self, uint32_t peer, const struct local_sliced *x)
{
    struct crew *s = self;

    if (s->sliced != NULL) {
        s->sliced(s->self, peer, x);
    }
}

static void
on_describe(void *self, uint32_t peer, uint64_t *tokens, struct hash32 *commit)
{
    struct crew *s = self;
    struct node_status status;

    node_status(s->peers[peer].node, &status);
    *tokens = status.run_tokens;
    *commit = status.commit_hash;
}

static void on_stopped(void *self, uint32_t peer, int rc)
{
    struct crew *s = self;

    if (rc != LOCO_EXIT_NETWORK) { /* nobody was there: a person tries again */
        crew_fail(s, "peer %u stops with code %d", peer, rc);
        return;
    }
    world_call(s->world, world_now(s->world), stop, s, peer);
}

static void on_logged(void *self, uint32_t peer, int level, const char *text)
{
    struct crew *s = self;

    (void)level;
    world_note(s->world, peer, text);
    if (s->logged != NULL) {
        s->logged(s->self, peer, text);
    }
}

void crew_machine_calls(struct crew *s,
                        struct world_calls *wc,
                        struct local_calls *lc)
{
    wc->self = s;
    wc->wire_len = on_wire_len;
    wc->fill = on_fill;
    wc->take = on_take;
    wc->sum = on_sum;
    wc->local = on_local;
    wc->timer = on_timer;
    *lc = (struct local_calls){
        .self = s,
        .contributed = on_contributed,
        .applied = on_applied,
        .loaded = on_loaded,
        .describe = on_describe,
        .stopped = on_stopped,
        .sliced = on_sliced,
        .stepped = on_stepped,
        .wrong = on_wrong,
        .logged = on_logged,
    };
}
