/* wire.c - see wire.h. */
#include "tests/netlab/wire.h"

#include <assert.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

void wire_init(struct wire *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->rng = seed;
    w->opt.queue_ns = 100 * 1000 * 1000;
    w->opt.overhead = 14;
}

void wire_set(struct wire *w, const struct wire_options *opt)
{
    if (opt->rate_bps != w->opt.rate_bps) {
        w->remainder = 0; /* its unit is the old rate */
    }
    w->opt = *opt;
}

/* SplitMix64 (Steele, Lea & Flood 2014); uniform in [0, 1). */
static double uniform(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* What the packet takes of the rate. */
static uint64_t load(const struct wire *w, const struct packet *p)
{
    return p->wire_bytes + (uint64_t)p->segments * w->opt.overhead;
}

/* How long a packet that comes now waits until the interface is idle. */
static int64_t wait_of(const struct wire *w, int64_t now_ns)
{
    bool idle = w->opt.rate_bps == 0 || w->free_at_ns <= now_ns;

    return idle ? 0 : w->free_at_ns - now_ns;
}

/* Whether `bytes` that come now find the queue full. What finds the interface
 * idle is always sent. */
static bool full(const struct wire *w, uint64_t bytes, int64_t wait_ns)
{
    uint64_t waiting;

    if (wait_ns == 0) {
        return false;
    }
    if (w->opt.queue_ns != 0 && wait_ns > w->opt.queue_ns) {
        return true;
    }
    waiting = (uint64_t)((double)wait_ns * (double)w->opt.rate_bps / 8e9);
    return w->opt.queue_bytes != 0 && waiting + bytes > w->opt.queue_bytes;
}

/* Send `bytes` on the interface: when is the last one out? */
static int64_t transmit(struct wire *w, uint64_t bytes, int64_t now_ns)
{
    uint64_t work;

    if (w->opt.rate_bps == 0) {
        return now_ns;
    }
    if (w->free_at_ns <= now_ns) {
        w->free_at_ns = now_ns;
        w->remainder = 0;
    }
    work = bytes * 8 * NS_PER_S + w->remainder;
    w->remainder = work % w->opt.rate_bps;
    w->free_at_ns += (int64_t)(work / w->opt.rate_bps);
    return w->free_at_ns;
}

bool wire_takes_whole(const struct wire *w,
                      const struct packet *p,
                      int64_t now_ns)
{
    /* The last segment would wait for all others. */
    int64_t wait_ns = wait_of(w, now_ns);

    if (w->opt.loss > 0) {
        return false;
    }
    if (w->opt.rate_bps != 0) {
        wait_ns +=
            (int64_t)((double)load(w, p) * 8e9 / (double)w->opt.rate_bps);
    }
    return !full(w, load(w, p), wait_ns);
}

/* By time of arrival; with equal times in order of entry. */
static void insert(struct wire *w, struct packet *p)
{
    struct packet **at = &w->head;

    if (w->tail != NULL && w->tail->at_ns <= p->at_ns) {
        at = &w->tail->next;
    }
    while (*at != NULL && (*at)->at_ns <= p->at_ns) {
        at = &(*at)->next;
    }
    p->next = *at;
    *at = p;
    if (p->next == NULL) {
        w->tail = p;
    }
}

bool wire_enter(struct wire *w, struct packet *p, int64_t now_ns)
{
    assert(p->segments > 0);
    if (w->opt.cut) {
        w->count.dropped_cut += p->segments;
        return false;
    }
    if (full(w, load(w, p), wait_of(w, now_ns))) {
        w->count.dropped_queue += p->segments;
        return false;
    }
    p->at_ns = transmit(w, load(w, p), now_ns) + w->opt.delay_ns;
    if (w->opt.loss > 0 && uniform(&w->rng) < w->opt.loss) {
        w->count.dropped_loss += p->segments;
        return false;
    }
    if (w->opt.jitter_ns > 0) {
        p->at_ns += (int64_t)(uniform(&w->rng) * (double)w->opt.jitter_ns);
    }
    if (!w->opt.reorder && p->at_ns < w->last_at_ns) {
        p->at_ns = w->last_at_ns;
    }
    w->last_at_ns = p->at_ns;
    insert(w, p);
    return true;
}

int64_t wire_due(const struct wire *w)
{
    return w->head == NULL ? WIRE_NEVER : w->head->at_ns;
}

struct packet *wire_leave(struct wire *w, int64_t now_ns, bool *dropped)
{
    struct packet *p = w->head;

    if (p == NULL || p->at_ns > now_ns) {
        return NULL;
    }
    w->head = p->next;
    if (w->head == NULL) {
        w->tail = NULL;
    }
    *dropped = w->opt.cut;
    if (w->opt.cut) {
        w->count.dropped_cut += p->segments;
    } else {
        w->count.packets += p->segments;
        w->count.bytes += p->wire_bytes;
    }
    return p;
}
