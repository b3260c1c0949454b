/* micro.c - micro-batches on their way through one host.
 *
 *   first    place -> FORWARD -> GIVE, TAKE_BACK -> BACKWARD
 *   middle   TAKE -> FORWARD -> GIVE, TAKE_BACK -> BACKWARD -> GIVE_BACK
 *   last     TAKE -> SCORE -> GIVE_BACK
 *
 * One thing is computed at a time: a backward pass before a forward pass, the
 * lowest number first. A slot is held from TAKE (or place) to the end. GIVE
 * waits for the TAKE of the next host.
 */
#include "p2p/pipeline/internal.h"

#define BIT(k) (1ULL << (k))

/* ---- actions ---------------------------------------------------------- */

static void act(struct pipeline *p,
                struct pipeline_out *out,
                enum pipeline_action_type type,
                const struct pipeline_micro *m,
                uint32_t host)
{
    struct pipeline_action *a = pipeline_add(p, out, type);

    a->micro = m->number;
    a->slot = m->slot;
    a->draw = m->draw;
    a->host = host;
}

static bool is_first(const struct pipeline *p)
{
    return p->host[p->self].stage == 0;
}

static bool is_last(const struct pipeline *p)
{
    return p->host[p->self].stage + 1 == p->opt.stages;
}

static void say_take(struct pipeline *p,
                     const struct pipeline_micro *m,
                     struct pipeline_out *out)
{
    struct pipeline_action *a = pipeline_add(p, out, PIPELINE_SAY_TAKE);

    a->micro = m->number;
    a->hosts = BIT(m->from);
}

void pipeline_take_again(struct pipeline *p, struct pipeline_out *out)
{
    for (uint32_t i = p->first_undone; i < p->n_placed; i++) {
        if (p->micro[i].state == MICRO_POSTED) {
            say_take(p, &p->micro[i], out);
        }
    }
}

/* Slots to the lowest numbers that have none yet. */
static void place(struct pipeline *p, struct pipeline_out *out)
{
    while (p->free_slots != 0 && p->n_placed < p->n_micro) {
        struct pipeline_micro *m = &p->micro[p->n_placed++];

        m->slot = (uint8_t)__builtin_ctzll(p->free_slots);
        p->free_slots &= ~BIT(m->slot);
        m->state = is_first(p) ? MICRO_HERE : MICRO_POSTED;
        if (m->state == MICRO_POSTED) {
            act(p, out, PIPELINE_TAKE, m, m->from);
            say_take(p, m, out);
        }
    }
}

static struct pipeline_micro *lowest(struct pipeline *p, enum micro_state state)
{
    for (uint32_t i = p->first_undone; i < p->n_placed; i++) {
        if (p->micro[i].state == (uint8_t)state) {
            return &p->micro[i];
        }
    }
    return NULL;
}

static void compute(struct pipeline *p, struct pipeline_out *out)
{
    struct pipeline_micro *m;

    if (p->computing) {
        return;
    }
    m = lowest(p, MICRO_BACK);
    if (m != NULL) {
        m->state = MICRO_BACKWARD;
        act(p, out, PIPELINE_BACKWARD, m, PIPELINE_NOBODY);
    } else {
        m = lowest(p, MICRO_HERE);
        if (m == NULL) {
            return;
        }
        m->state = MICRO_FORTH;
        act(p, out, is_last(p) ? PIPELINE_SCORE : PIPELINE_FORWARD, m,
            PIPELINE_NOBODY);
    }
    p->computing = true;
    p->work_ms = p->now_ms;
}

static void pump(struct pipeline *p, struct pipeline_out *out)
{
    place(p, out);
    compute(p, out);
    pipeline_settle(p, out);
}

void pipeline_run(struct pipeline *p, struct pipeline_out *out)
{
    pipeline_list_routes(p);
    p->n_done = 0;
    p->n_placed = 0;
    p->first_undone = 0;
    p->computing = false;
    p->free_slots = p->opt.slots == 64 ? UINT64_MAX : BIT(p->opt.slots) - 1;
    pump(p, out);
}

/* ---- what is done ----------------------------------------------------- */

static struct pipeline_micro *find(struct pipeline *p, uint32_t number)
{
    uint32_t from = 0, to = p->n_micro;

    while (from < to) {
        uint32_t i = from + (to - from) / 2;

        if (p->micro[i].number == number) {
            return &p->micro[i];
        }
        if (p->micro[i].number < number) {
            from = i + 1;
        } else {
            to = i;
        }
    }
    return NULL;
}

static void finish(struct pipeline *p, struct pipeline_micro *m)
{
    m->state = MICRO_DONE;
    p->free_slots |= BIT(m->slot);
    p->n_done++;
    while (p->first_undone < p->n_placed &&
           p->micro[p->first_undone].state == MICRO_DONE) {
        p->first_undone++;
    }
}

/* Its gradient is summed here; the stage before waits for its own. */
static void pass_back(struct pipeline *p,
                      struct pipeline_micro *m,
                      struct pipeline_out *out)
{
    if (is_first(p)) {
        finish(p, m);
        return;
    }
    m->state = MICRO_RETURNS;
    act(p, out, PIPELINE_GIVE_BACK, m, m->from);
}

static void
give(struct pipeline *p, struct pipeline_micro *m, struct pipeline_out *out)
{
    if (m->state == MICRO_AWAY && m->asked && !m->given) {
        m->given = true;
        act(p, out, PIPELINE_GIVE, m, m->to);
    }
}

void pipeline_asked(struct pipeline *p,
                    uint32_t k,
                    uint32_t number,
                    struct pipeline_out *out)
{
    struct pipeline_micro *m = find(p, number);

    if (m != NULL && m->to == k) {
        m->asked = true;
        give(p, m, out);
    }
}

static void computed_forward(struct pipeline *p,
                             struct pipeline_micro *m,
                             struct pipeline_out *out)
{
    if (is_last(p)) {
        pass_back(p, m, out);
        return;
    }
    m->state = MICRO_AWAY;
    act(p, out, PIPELINE_TAKE_BACK, m, m->to);
    give(p, m, out);
}

static void came_or_left(struct pipeline_micro *m, bool came)
{
    m->returned = m->returned || came;
    m->left = m->left || (!came && m->given);
    if (m->returned && m->left) {
        m->state = MICRO_BACK;
    }
}

/* The state in which this can come to its end. */
static enum micro_state state_of(enum pipeline_action_type type)
{
    switch (type) {
    case PIPELINE_TAKE:
        return MICRO_POSTED;
    case PIPELINE_FORWARD:
    case PIPELINE_SCORE:
        return MICRO_FORTH;
    case PIPELINE_GIVE:
    case PIPELINE_TAKE_BACK:
        return MICRO_AWAY;
    case PIPELINE_BACKWARD:
        return MICRO_BACKWARD;
    case PIPELINE_GIVE_BACK:
        return MICRO_RETURNS;
    default:
        return MICRO_DONE;
    }
}

void pipeline_micro_done(struct pipeline *p,
                         enum pipeline_action_type type,
                         uint32_t number,
                         struct pipeline_out *out)
{
    struct pipeline_micro *m = find(p, number);

    if (m == NULL || m->state == MICRO_DONE ||
        m->state != (uint8_t)state_of(type)) {
        return;
    }
    switch (type) {
    case PIPELINE_TAKE:
        m->state = MICRO_HERE;
        break;
    case PIPELINE_FORWARD:
    case PIPELINE_SCORE:
        pipeline_worked(p);
        p->n_worked += is_last(p);
        computed_forward(p, m, out);
        break;
    case PIPELINE_GIVE:
    case PIPELINE_TAKE_BACK:
        came_or_left(m, type == PIPELINE_TAKE_BACK);
        break;
    case PIPELINE_BACKWARD:
        pipeline_worked(p);
        p->n_worked++;
        pass_back(p, m, out);
        break;
    default:
        finish(p, m); /* GIVE_BACK */
        break;
    }
    pump(p, out);
}
