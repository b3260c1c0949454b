/* loop.c - what a loop is told, and what it answers; see loco.h. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "daemon/client/internal.h"

static uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static int told_end(const struct loco *l, struct loco_todo *todo)
{
    todo->code = l->end_code;
    todo->text = l->end_text;
    return LOCO_END;
}

static int tell_go(const struct loco *l, struct loco_todo *todo)
{
    todo->steps = l->steps_left;
    todo->inner_step = l->inner_step;
    return LOCO_GO;
}

static int unexpected(struct loco *l, const char *what)
{
    return link_fail(l, LOCO_FAIL_PROTOCOL,
                     "locod in %.120s breaks the protocol of training loops: "
                     "%s",
                     l->state, what);
}

/* ---- what came ---------------------------------------------------------- */

static int on_text(struct loco *l, const struct trainer_rows *text)
{
    char why[LOCO_ERRMSG_MAX];
    int rv;

    if (!l->reading) {
        return unexpected(l, "a text that nobody asked for");
    }
    rv = shared_text(&l->shared, &l->welcome, text->rows, l->text_tokens, why);
    if (rv != 0) {
        return link_fail(l, rv, "%s", why);
    }
    l->text = *text;
    l->reading = false;
    l->has_text = true;
    return 0;
}

static int on_windows(struct loco *l, uint32_t rows, struct loco_todo *todo)
{
    char why[LOCO_ERRMSG_MAX];
    int rv;

    if (l->steps_left > 0 || l->options.measures == 0) {
        return unexpected(l, "held-out text for a loop that does not wait "
                             "for it");
    }
    rv = shared_text(&l->shared, &l->welcome, rows, l->held_tokens, why);
    if (rv != 0) {
        return link_fail(l, rv, "%s", why);
    }
    l->due = DUE_SCORE;
    todo->rows = rows;
    todo->seq = l->welcome.seq;
    todo->tokens = l->held_tokens;
    todo->targets = l->held_tokens + (size_t)rows * l->welcome.seq;
    return LOCO_SCORE;
}

static int
on_go(struct loco *l, const struct trainer_go *go, struct loco_todo *todo)
{
    if (l->steps_left > 0 || go->steps == 0) {
        return unexpected(l, "a second permission, or one for no step");
    }
    l->steps_left = go->steps;
    l->inner_step = go->inner_step;
    return tell_go(l, todo);
}

/* A message between two steps: an enum loco_action, 0 where there is nothing
 * to tell, or a failure. */
static int
handle(struct loco *l, const struct trainer_msg *m, struct loco_todo *todo)
{
    switch (m->type) {
    case TRAINER_MSG_GO:
        return on_go(l, &m->go, todo);
    case TRAINER_MSG_GIVE:
        l->steps_left = 0;
        l->due = DUE_GIVEN;
        todo->round = m->give.round;
        return LOCO_GIVE;
    case TRAINER_MSG_TAKE:
        l->steps_left = 0;
        l->due = DUE_TAKEN;
        todo->round = m->take.round;
        todo->reset = m->take.reset;
        todo->clock = m->take.clock;
        todo->run_tokens = m->take.tokens;
        return LOCO_TAKE;
    case TRAINER_MSG_TEXT:
        return on_text(l, &m->text);
    case TRAINER_MSG_WINDOWS:
        return on_windows(l, m->windows.rows, todo);
    case TRAINER_MSG_STOP:
        link_end(l, m->stop.code, m->stop.text, m->stop.n_text);
        return told_end(l, todo);
    case TRAINER_MSG_HELLO:
    case TRAINER_MSG_WELCOME:
    case TRAINER_MSG_REFUSED:
    case TRAINER_MSG_GIVEN:
    case TRAINER_MSG_TAKEN:
    case TRAINER_MSG_STEP:
    case TRAINER_MSG_READ:
    case TRAINER_MSG_SCORED:
        break;
    }
    return unexpected(l, "a second greeting");
}

/* ---- what the loop says ------------------------------------------------- */

/* Send what the loop owes: 1: done; 0: not within the time; negative. */
static int settle(struct loco *l, uint64_t deadline_ms)
{
    struct trainer_msg m = {.type = TRAINER_MSG_GIVEN};
    bool interrupted;
    int rv;

    switch (l->due) {
    case DUE_NOTHING:
        return 1;
    case DUE_SCORE:
        return wrong_call(l, "LOCO_SCORE was not answered: call loco_scored() "
                             "before loco_next()");
    case DUE_GIVEN:
        break;
    case DUE_TAKEN:
        m.type = TRAINER_MSG_TAKEN;
        break;
    case DUE_SCORED:
        m.type = TRAINER_MSG_SCORED;
        m.scored.nats = bits_of(l->nats);
        break;
    }
    rv = link_send(l, &m);
    if (rv == 0) {
        rv = link_wait(l, POLLOUT, deadline_ms, &interrupted) ? link_send(l, &m)
                                                              : 0;
    }
    if (rv == 0) {
        return 0;
    }
    l->due = DUE_NOTHING;
    /* Gone: link_receive() finds what it said last, and then that. */
    return rv == LOCO_FAIL_TIMEOUT ? 1 : rv;
}

/* What waits, or comes: 1, 0, negative, as link_receive(). */
static int fetch(struct loco *l, struct trainer_msg *m)
{
    if (l->has_pending) {
        *m = l->pending;
        l->has_pending = false;
        return 1;
    }
    return link_receive(l, m, NULL);
}

/* Told while a daemon is being waited for, once. */
static void say_lost(struct loco *l)
{
    link_lost(l);
    link_log(l, "locod in %s went away: waiting for it", l->state);
}

/* Once around; *again: there may be more to do within the time. */
static int next_once(struct loco *l,
                     uint64_t deadline_ms,
                     struct loco_todo *todo,
                     bool *again)
{
    struct trainer_msg m;
    bool interrupted;
    int rv = link_up(l, deadline_ms);

    *again = false;
    if (l->link == LINK_ENDED) {
        return told_end(l, todo);
    }
    if (rv <= 0) {
        return rv;
    }
    rv = fetch(l, &m);
    if (rv == 1) {
        rv = handle(l, &m, todo);
        *again = rv == 0;
        return rv;
    }
    if (rv == LOCO_FAIL_TIMEOUT) {
        say_lost(l);
        *again = true;
        return 0;
    }
    if (rv < 0 || l->steps_left > 0) {
        return rv < 0 ? rv : tell_go(l, todo);
    }
    *again = link_wait(l, POLLIN, deadline_ms, &interrupted);
    return LOCO_WAIT;
}

int loco_next(struct loco *l, uint32_t timeout_ms, struct loco_todo *todo)
{
    uint64_t deadline = now_ms() + timeout_ms;
    bool again = true;
    int rv = enter(l);

    memset(todo, 0, sizeof *todo);
    if (rv == 0 && l->link == LINK_UP) {
        rv = settle(l, deadline);
        if (rv == 0) {
            return LOCO_WAIT;
        }
        rv = rv > 0 ? 0 : rv;
    }
    while (rv == 0 && again) {
        rv = next_once(l, deadline, todo, &again);
        again = again && (l->link == LINK_UP || now_ms() < deadline);
    }
    return rv;
}

int loco_step(struct loco *l, uint64_t tokens, double loss)
{
    struct trainer_msg m = {.type = TRAINER_MSG_STEP,
                            .step = {.tokens = tokens, .loss = bits_of(loss)}};
    uint64_t deadline = now_ms() + SEND_WAIT_MS;
    bool interrupted;
    int rv = enter(l);

    if (rv != 0 || l->link != LINK_UP) {
        return rv;
    }
    if (l->steps_left == 0) {
        return wrong_call(l, "no step is allowed now: loco_step() follows "
                             "LOCO_GO");
    }
    if (tokens > l->welcome.tokens_most) {
        return wrong_call(l,
                          "a step of %" PRIu64 " tokens: the run allows "
                          "%" PRIu64,
                          tokens, l->welcome.tokens_most);
    }
    while ((rv = link_send(l, &m)) == 0 && now_ms() < deadline) {
        (void)link_wait(l, POLLOUT, deadline, &interrupted);
    }
    if (rv == 0) {
        say_lost(l); /* it does not read: as if it were gone */
        return 0;
    }
    l->steps_left--;
    l->inner_step++;
    return rv > 0 || rv == LOCO_FAIL_TIMEOUT ? 0 : rv;
}

/* ---- text --------------------------------------------------------------- */

/* While the loop waits for TEXT: what else comes waits for loco_next(). */
static int hear_text(struct loco *l)
{
    struct trainer_msg m;
    int rv = link_receive(l, &m, NULL);

    if (rv <= 0) {
        return rv;
    }
    if (m.type == TRAINER_MSG_TEXT) {
        rv = on_text(l, &m.text);
        return rv == 0 ? 1 : rv;
    }
    if (l->has_pending && m.type != TRAINER_MSG_STOP) {
        return unexpected(l, "it asks twice before it is answered");
    }
    l->pending = m;
    l->has_pending = true;
    return 1;
}

static int send_read(struct loco *l)
{
    struct trainer_msg m = {.type = TRAINER_MSG_READ};
    int rv = 1;

    if (!l->reading) {
        rv = link_send(l, &m);
        l->reading = rv == 1;
    }
    return rv;
}

static int give_text(struct loco *l, struct loco_text *out)
{
    l->has_text = false;
    out->rows = l->text.rows;
    out->seq = l->welcome.seq;
    out->tokens = l->text_tokens;
    out->targets = l->text_tokens + (size_t)l->text.rows * l->welcome.seq;
    out->position = l->text.position;
    out->own = l->text.own;
    return 1;
}

int loco_read(struct loco *l, uint32_t timeout_ms, struct loco_text *out)
{
    uint64_t deadline = now_ms() + timeout_ms;
    bool interrupted;
    int rv = enter(l);

    memset(out, 0, sizeof *out);
    if (rv != 0 || l->link != LINK_UP) {
        return rv;
    }
    if (l->welcome.tokens_at == 0) {
        return wrong_call(l, "the run has no text: bring your own data");
    }
    while (!l->has_text) {
        if (l->has_pending && l->pending.type == TRAINER_MSG_STOP) {
            return 0;
        }
        rv = send_read(l);
        rv = rv == 1 ? hear_text(l) : rv;
        if (rv < 0) {
            /* Gone: loco_next() hears what it said last, and that. */
            return rv == LOCO_FAIL_TIMEOUT ? 0 : rv;
        }
        if (rv == 0 && !link_wait(l, l->reading ? POLLIN : POLLOUT, deadline,
                                  &interrupted)) {
            return 0;
        }
    }
    return give_text(l, out);
}

int loco_scored(struct loco *l, double nats)
{
    int rv = enter(l);

    if (rv != 0 || l->link != LINK_UP) {
        return rv;
    }
    if (l->due != DUE_SCORE) {
        return wrong_call(l, "nothing was to be measured: loco_scored() "
                             "follows LOCO_SCORE");
    }
    l->nats = nats;
    l->due = DUE_SCORED;
    return 0;
}
