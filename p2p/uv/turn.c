/* turn.c - a turn of the loop: events in, actions out, one timer; see loop.h.
 *
 * Happy path: a callback sees something -> shell_step() (or shell_note() where
 * a step may be running) -> execute() -> what that caused is noted -> pump(),
 * called before the loop sleeps and after it read its sockets, steps the notes,
 * moves bulk on, ticks the core while it is due and sets the one timer to the
 * core's deadline. A message is stepped in the read callback that brought it.
 * What an action causes (LINK_DOWN, SEG_DONE, DIAL_FAILED) is a note, so steps
 * never nest.
 *
 * What can go wrong: a core that always has more to say, or a flood of notes:
 * a turn is bounded, the idle handle keeps the loop awake for the rest, which
 * comes after the sockets. The disk is slow: barrier.h. A SEG_DONE of an
 * attempt that is cancelled meanwhile is taken out of the notes.
 */
#include <assert.h>
#include <stdlib.h>

#include "p2p/uv/shell.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define TURN_STEPS_MAX 1024 /* notes stepped before sockets get their turn */
#define TURN_TICKS_MAX 64   /* ticks, where the core is due again at once */

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
        const struct event_seg_done *e = &note->event.seg_done;

        if (note->event.type == EVENT_SEG_DONE && e->segment.stream == stream &&
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

static void cancel(struct shell *s, const struct action_cancel *cancelled)
{
    bulk_cancel(s, cancelled->stream, cancelled->attempt);
    purge_notes(s, cancelled->stream, cancelled->attempt);
}

static void sum(struct shell *s, const struct segment *segment)
{
    struct event e = {.type = EVENT_SEG_DONE, .seg_done.segment = *segment};

    e.seg_done.rc = s->calls.sum == NULL
                        ? LOCO_EINVAL
                        : s->calls.sum(s->calls.self, &e.seg_done.segment);
    shell_note(s, &e);
}

static void execute_one(struct shell *s, const struct action *a)
{
    switch (a->type) {
    case ACTION_SEND:
        link_send(s, &a->send, s->out->bytes + a->send.bytes.at);
        break;
    case ACTION_DIAL:
        link_dial(s, &a->dial);
        break;
    case ACTION_HANG_UP:
        link_hang_up(s, a->hang_up.link);
        break;
    case ACTION_TRUST:
        link_trust(s, &a->trust);
        break;
    case ACTION_BULK_OPEN:
        bulk_open(s, &a->bulk_open);
        break;
    case ACTION_PROBE:
        probe_dial(s, &a->probe);
        break;
    case ACTION_RELAY_COME:
        link_come(s, &a->relay_come);
        break;
    case ACTION_RELAY_JOIN:
        pipe_join(s, &a->relay_join);
        break;
    case ACTION_RELAY_REFUSE:
        pipe_refuse(s, a->relay_refuse.request);
        break;
    case ACTION_PUNCH:
        punch_dial(s, &a->punch);
        break;
    case ACTION_POST_RECV:
        bulk_post(s, &a->segment);
        break;
    case ACTION_SEND_SEG:
        pace_served(s, &a->segment);
        bulk_send(s, &a->segment);
        break;
    case ACTION_SUM:
        sum(s, &a->segment);
        break;
    case ACTION_CANCEL:
        cancel(s, &a->cancel);
        break;
    case ACTION_SAVE:
        barrier_save(s, s->out->bytes + a->save.at, a->save.len);
        break;
    case ACTION_JOB:
        s->calls.local(s->calls.self, &a->job, s->out);
        break;
    case ACTION_TYPE_COUNT:
        break;
    }
}

static void execute(struct shell *s)
{
    for (uint32_t i = 0; i < s->out->n && !s->leaving; i++) {
        const struct action *a = &s->out->action[i];

        if (!barrier_keeps(s, a)) {
            execute_one(s, a);
        }
    }
}

void shell_step(struct shell *s, struct event *event)
{
    assert(!s->stepping);
    if (s->leaving) {
        return;
    }
    s->stepping = true;
    event->now_ms = shell_now_ms();
    /* Only for the expiry of signed records; no deadline rests on it. */
    event->wall_s = (uint64_t)wall_ms() / 1000;
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

    if (s->leaving) {
        uv_idle_stop(&s->idle);
        return; /* what is held waits for the disk */
    }
    bulk_tell_moved(s);
    spare_tick(s);
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

/* ---- life ------------------------------------------------------------- */

void turn_init(struct shell *s)
{
    uv_loop_t *loop = s->loop;

    s->notes_end = &s->notes;
    /* None of these can fail in libuv. */
    uv_timer_init(loop, &s->timer);
    uv_prepare_init(loop, &s->prepare);
    uv_check_init(loop, &s->check);
    uv_idle_init(loop, &s->idle);
    s->timer.data = s->prepare.data = s->check.data = s->idle.data = s;
    uv_prepare_start(&s->prepare, on_prepare);
    uv_check_start(&s->check, on_check);
}

void turn_close(struct shell *s)
{
    struct note *note;

    while ((note = next_note(s)) != NULL) {
        free(note);
    }
    uv_close((uv_handle_t *)&s->timer, shell_handle_closed);
    uv_close((uv_handle_t *)&s->prepare, shell_handle_closed);
    uv_close((uv_handle_t *)&s->check, shell_handle_closed);
    uv_close((uv_handle_t *)&s->idle, shell_handle_closed);
}
