/* pair.h - two toys (toy.h) with a bulk connection between them, for tests. */
#ifndef LOCO_TESTS_UNIT_UV_PAIR_H
#define LOCO_TESTS_UNIT_UV_PAIR_H

#include "tests/unit/uv/toy.h"

#define PIECE (256U << 10)

/* Two nodes, a bulk connection dialled by `a` once asked for. */
struct pair {
    uv_loop_t loop;
    struct node a, b;
};

static inline void bulk_open_act(struct node *from, const struct node *to)
{
    struct action *act = node_act(from, ACTION_BULK_OPEN);

    act->bulk_open.peer = to->id.id;
    act->bulk_open.address = loopback(to->port);
}

/* `plain_*`: whether that side agrees to segments without encryption. */
static inline void pair_open_plain(struct pair *p, bool plain_a, bool plain_b)
{
    struct shell_options opt;

    uv_loop_init(&p->loop);
    opt = node_init(&p->a, 1);
    opt.plain_bulk = plain_a;
    node_open(&p->a, &p->loop, &opt);
    opt = node_init(&p->b, 2);
    opt.plain_bulk = plain_b;
    node_open(&p->b, &p->loop, &opt);
    bulk_open_act(&p->a, &p->b);
    RUN_UNTIL(&p->loop,
              node_stats(&p->a).bulks == 1 && node_stats(&p->b).bulks == 1);
}

/* `aes_*`: whether that side takes AES-256-GCM. */
static inline void pair_open_aes(struct pair *p, bool aes_a, bool aes_b)
{
    struct shell_options opt;

    uv_loop_init(&p->loop);
    opt = node_init(&p->a, 1);
    opt.aes_bulk = aes_a;
    node_open(&p->a, &p->loop, &opt);
    opt = node_init(&p->b, 2);
    opt.aes_bulk = aes_b;
    node_open(&p->b, &p->loop, &opt);
    bulk_open_act(&p->a, &p->b);
    RUN_UNTIL(&p->loop,
              node_stats(&p->a).bulks == 1 && node_stats(&p->b).bulks == 1);
}

static inline void pair_open(struct pair *p)
{
    pair_open_plain(p, false, false);
}

static inline void pair_close(struct pair *p)
{
    node_close(&p->a, &p->loop);
    node_close(&p->b, &p->loop);
    loop_end(&p->loop);
}

/* Where segment `seg` lies: pieces side by side, wrapped. */
static inline uint64_t place(uint32_t seg)
{
    return (uint64_t)(seg % 12) * PIECE;
}

static inline void paint(struct node *n)
{
    for (size_t i = 0; i < TOY_MEMORY; i++) {
        n->memory[i] = (uint8_t)(i * 2654435761U >> 13);
    }
}

static inline void post(struct node *n,
                        const struct node *peer,
                        uint64_t attempt,
                        uint32_t seg,
                        uint32_t len)
{
    segment_act(n, ACTION_POST_RECV, peer, attempt, seg, place(seg), len);
}

static inline void give(struct node *n,
                        const struct node *peer,
                        uint64_t attempt,
                        uint32_t seg,
                        uint32_t len)
{
    segment_act(n, ACTION_SEND_SEG, peer, attempt, seg, place(seg), len);
}

static inline void cancel(struct node *n, uint64_t attempt)
{
    node_act(n, ACTION_CANCEL)->cancel.attempt = attempt;
}

/* How many SEG_DONE with this code. */
static inline uint32_t done(const struct node *n, int rc)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n->toy.n_log; i++) {
        const struct event *e = &n->toy.log[i].event;

        count += e->type == EVENT_SEG_DONE && e->seg_done.rc == rc;
    }
    return count;
}

/* Every segment number in the reports of `n` is there once. */
static inline void assert_once(const struct node *n, uint32_t n_segs)
{
    uint32_t seen[64] = {0};

    assert_true(n_segs <= 64);
    for (uint32_t i = 0; i < n->toy.n_log; i++) {
        const struct event *e = &n->toy.log[i].event;

        if (e->type == EVENT_SEG_DONE) {
            assert_true(e->seg_done.segment.seg < n_segs);
            seen[e->seg_done.segment.seg]++;
        }
    }
    for (uint32_t i = 0; i < n_segs; i++) {
        assert_int_equal(seen[i], 1);
    }
}

#endif
