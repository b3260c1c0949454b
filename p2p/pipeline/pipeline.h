/* pipeline.h - the inner steps of a run whose model is cut into stages.
 *
 * Every host holds one stage. In an inner step each host of stage 0 enters
 * `micro_batches` micro-batches; each takes a random route through one host of
 * every stage (route.h), the loss is at the last one, and the gradient comes
 * back the same way (NoLoCo 3.1, arXiv:2506.10911). If hosts of a stage differ
 * in speed, each gets as many micro-batches as it can do in the time of the
 * others (pipeline/routing.c), so that the slowest does not set the pace. Every
 * HELLO says how long a micro-batch took its sender in the rounds before. A
 * host adds up the gradients of what passed through it, and makes its optimizer
 * step when *every* micro-batch of the step has come back everywhere.
 *
 * What must hold: a host's step counts each micro-batch of its routes exactly
 * once, and of two hosts that stay together either both count a step or none
 * does. Nothing is voted on: averaging, views and commits are each stage's own
 * (round.h); what is agreed here is soft and lasts for one step.
 *
 *     pipeline_begin (round)
 *       -> GATHER   HELLO{round, step, attempt, hosts} to all. Of unequal lists
 *                   the common part is taken. All have said the same: go
 *       -> RUN      activations and gradients; back before forth, lower numbers
 *                   first: 1F1B comes out by itself
 *       -> HELD     own part complete: READY{attempt} to all
 *       -> all are READY: STEP, the optimizer's; then RUN of the next step
 *       -> FINISHED after `steps`; the node averages and begins the next round
 *
 * When a host is lost (or an edge between two live hosts: then the higher id
 * leaves), the attempt is over and the next one gathers without it. A host that
 * was HELD keeps its sum until all have spoken. If anybody's HELLO names the
 * next step, that host had seen READY of all, so everybody was HELD and makes
 * the step too. Otherwise the sum is thrown away and the step runs again from
 * its inputs. A HELLO for attempt a binds its sender: it ignores READYs of
 * earlier attempts from then on.
 * A joiner waits for the next round. A stage without hosts: STARVED until
 * pipeline_begin of the same round names one; it goes on from the step that it
 * was at, with what was held, and a host that has nothing of this round yet
 * begins where the others are: at the step that more than half of them name, or
 * all of some stage, without which there is no way. One host's word moves
 * nobody; who names a later one alone is left out.
 *
 * Nothing counts twice though nobody votes. Hosts that cannot hear each other
 * may go on in two parties, and both count. So a micro-batch is not one of the
 * party, but of the host that enters it: its (host, round, step, draw) names
 * the tokens. A host makes a step once. A sum that is thrown away was counted
 * by nobody, unless this host had said READY: another may have heard all, gone
 * on, and been lost to us after. What is entered in its place then is other
 * tokens, the next draw.
 *
 * No deadlock: all work in one order, and a host gives its slots to the lowest
 * numbers that it has not finished, so the lowest of all always has a slot on
 * its whole way. Activations leave when the next host has said TAKE: they never
 * stand in front of others on a connection. A gradient needs no such word, its
 * place is made before the activations go. Memory: `slots` micro-batches,
 * however many a step has.
 *
 * A message may be lost: what somebody waits for is said again every
 * `resend_ms`, and a host that hears a HELLO or READY twice answers with its
 * own.
 *
 * What one host can do to the others. Its word leaves hosts out and begins new
 * attempts; honest hosts do this only after a loss. A host that leaves out more
 * than half of the others at once, or begins more attempts than losses could
 * explain, is left out itself. Attempts far ahead of ours are followed as far
 * as a long life explains them, by the number of the round. A host whose own
 * work hangs (a device that does not answer, though the process lives) leaves
 * by itself; one that keeps silent on purpose, and answers heartbeats, is not
 * noticed here: the round's own grace ends it.
 *
 * The owner maps actions to segments and messages, and tells what came of
 * them; `attempt` and `step` go with every segment (pipeline_tag), so what is
 * late or doubled is dropped where it arrives. Pure: no clock but `now_ms`, no
 * allocation.
 */
#ifndef LOCO_P2P_PIPELINE_PIPELINE_H
#define LOCO_P2P_PIPELINE_PIPELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "p2p/pipeline/route.h"
#include "proto/id.h"

#define PIPELINE_HOSTS_MAX VIEW_MEMBERS_MAX /* of all stages */
#define PIPELINE_SLOTS_MAX 64
#define PIPELINE_MICRO_MAX 1024 /* of one step, through one host */

struct pipeline_host {
    struct peer_id id;
    uint32_t stage;
};

struct pipeline_options {
    struct peer_id self;
    uint64_t seed;          /* of the run */
    uint32_t stages;        /* 1..ROUTE_STAGES_MAX */
    uint32_t micro_batches; /* of one step, per host of stage 0 */
    uint32_t steps;         /* of one round */
    uint32_t slots;         /* 1..PIPELINE_SLOTS_MAX */
    uint32_t gather_ms;     /* a HELLO must come within this */
    uint32_t resend_ms;     /* what is waited for is said again; 0: never */
    uint32_t stall_ms;      /* own work that takes so much longer than any did
                               before hangs: this host leaves; 0: never */
    bool fixed;             /* routes do not change (comparisons) */
    /* Redraws begin there in the first round: 0; where an earlier process may
     * have entered micro-batches of it, a number that it did not use. */
    uint32_t first_redraw;
};

enum pipeline_state {
    PIPELINE_IDLE,
    PIPELINE_GATHER,
    PIPELINE_RUN,
    PIPELINE_HELD,
    PIPELINE_FINISHED,
    PIPELINE_STARVED, /* a stage has no host */
    PIPELINE_OUT,     /* the others go on without this host */
    PIPELINE_STATE_COUNT
};

/* What every host says before an attempt. */
struct pipeline_hello {
    uint64_t round;
    uint32_t step; /* the next one it will make */
    uint32_t attempt;
    uint32_t cost_us; /* that a micro-batch takes there; 0: not known */
    uint32_t n;
    struct pipeline_host hosts[PIPELINE_HOSTS_MAX]; /* by id, ascending */
};

enum pipeline_action_type {
    PIPELINE_SAY_HELLO, /* to `hosts` and to `gone`: pipeline_hello_of() */
    PIPELINE_SAY_READY, /* to `hosts`: round, and step and attempt of `tag` */
    PIPELINE_SAY_TAKE,  /* the same and `micro`: there is a place for it */
    PIPELINE_CANCEL,    /* all segments of tags up to `tag` */
    PIPELINE_CLEAR,     /* the sum of gradients */
    PIPELINE_TAKE,      /* post: activations of `micro` from `host` */
    PIPELINE_TAKE_BACK, /* post: their gradient from `host` */
    PIPELINE_GIVE,      /* send: activations of `micro` to `host` */
    PIPELINE_GIVE_BACK, /* send: the gradient to `host` */
    PIPELINE_FORWARD,   /* compute; where the first stage is the last: SCORE */
    PIPELINE_SCORE,     /* compute forward, loss and backward: the last stage */
    PIPELINE_BACKWARD,  /* compute */
    PIPELINE_STEP,      /* the optimizer, with the sum of `count` */
    PIPELINE_END,       /* the round's last step is made */
    PIPELINE_ACTION_COUNT
};

struct pipeline_action {
    enum pipeline_action_type type;
    uint64_t tag;   /* pipeline_tag of the attempt */
    uint32_t micro; /* its number in the step, in this attempt */
    uint32_t slot;
    uint32_t host;        /* position in `hosts` of the core */
    uint32_t count;       /* STEP: micro-batches in the sum */
    uint32_t draw;        /* on stage 0: which of its own in this step: the
                             turn, + micro_batches * ROUTE_TIMES_MAX for each
                             redraw */
    uint64_t hosts, gone; /* SAY: bit k is host k */
};

#define PIPELINE_OUT_MAX (4 * PIPELINE_SLOTS_MAX + 16)

/* Actions of one call, in order. Always large enough. */
struct pipeline_out {
    uint32_t n;
    struct pipeline_action action[PIPELINE_OUT_MAX];
};

enum micro_state {
    MICRO_WAITS,    /* no slot yet */
    MICRO_POSTED,   /* its input is awaited */
    MICRO_HERE,     /* to be computed */
    MICRO_FORTH,    /* forward (or score) under way */
    MICRO_AWAY,     /* at the next stage, or on its way */
    MICRO_BACK,     /* gradient here, to be computed */
    MICRO_BACKWARD, /* backward under way */
    MICRO_RETURNS,  /* gradient on its way to the host before */
    MICRO_DONE
};

/* One micro-batch of the step through this host. */
struct pipeline_micro {
    uint32_t number;
    uint32_t draw;    /* on stage 0: names the tokens */
    uint8_t from, to; /* hosts; PIPELINE_NOBODY */
    uint8_t slot;
    uint8_t state; /* enum micro_state */
    bool asked;    /* the next host has a place for it */
    bool given;    /* MICRO_AWAY: its output is leaving, */
    bool left;     /* or has left */
    bool returned; /* MICRO_AWAY: its gradient has come */
};

#define PIPELINE_NOBODY 255U

struct pipeline {
    struct pipeline_options opt;
    enum pipeline_state state;
    struct pipeline_host host[PIPELINE_HOSTS_MAX]; /* of this round, by id */
    uint32_t n, self;
    uint64_t layout; /* bit k: host k takes part in this attempt */
    uint64_t round;
    uint32_t step; /* the next one to count */
    uint32_t attempt;
    bool held;     /* the sum of `step` is complete, nothing is decided */
    bool rejoins;  /* since pipeline_begin nothing has run */
    bool stepping; /* the optimizer is at the step before `step` */
    uint32_t held_count;
    uint64_t first_round; /* of this process */
    uint32_t redraw;      /* sums of `step` that may count elsewhere */
    uint64_t hello;       /* bits: said the same HELLO, */
    uint32_t said[PIPELINE_HOSTS_MAX];    /* which named this step */
    uint32_t cost_us[PIPELINE_HOSTS_MAX]; /* and this */
    uint16_t raised[PIPELINE_HOSTS_MAX];  /* attempts begun at its word, since
                                             pipeline_begin */
    uint64_t ready, ready_next; /* bits: READY of this step, of the next */
    uint64_t answered;    /* bits: said again to it, once in `resend_ms` */
    uint64_t answered_ms; /* since then */
    uint64_t now_ms, deadline_ms, resend_at_ms;
    uint64_t free_slots;
    bool computing;
    uint64_t work_ms;    /* since when the machine works: computing, stepping */
    uint64_t longest_ms; /* that it ever took */
    uint64_t worked_ms;  /* on micro-batches since pipeline_begin, */
    uint32_t n_worked;   /* on so many */
    uint32_t own_cost_us, own_stage; /* mean of the rounds before; of which
                                        stage */
    uint32_t n_stalls; /* that this host left for; each doubles stall_ms */
    uint32_t n_micro, n_done;
    uint32_t first_undone, n_placed; /* those before have (had) a slot */
    struct pipeline_micro micro[PIPELINE_MICRO_MAX];
    /* Who said TAKE before the routes of this step were made, and of the next
     * step; PIPELINE_NOBODY. */
    uint8_t asked[2][PIPELINE_MICRO_MAX];
};

/* LOCO_EINVAL where an option is out of range. */
int pipeline_init(struct pipeline *p, const struct pipeline_options *opt);

/* A round begins, or goes on after STARVED or OUT, with these hosts sorted by
 * id, this one among them; at most PIPELINE_HOSTS_MAX. LOCO_EINVAL: not so, or
 * more micro-batches than PIPELINE_MICRO_MAX could come here. */
int pipeline_begin(struct pipeline *p,
                   uint64_t round,
                   const struct pipeline_host *hosts,
                   uint32_t n,
                   uint64_t now_ms,
                   struct pipeline_out *out);

/* What a PIPELINE_SAY_HELLO of the last call says. */
void pipeline_hello_of(const struct pipeline *p,
                       const struct pipeline_action *a,
                       struct pipeline_hello *h);

/* The two halves of a tag; a PIPELINE_SAY_READY names those of its own. */
uint32_t pipeline_tag_attempt(uint64_t tag);
uint32_t pipeline_tag_step(uint64_t tag);

/* A HELLO, READY or TAKE came from host `id`. */
void pipeline_on_hello(struct pipeline *p,
                       const struct peer_id *id,
                       const struct pipeline_hello *h,
                       uint64_t now_ms,
                       struct pipeline_out *out);
void pipeline_on_ready(struct pipeline *p,
                       const struct peer_id *id,
                       uint64_t round,
                       uint32_t step,
                       uint32_t attempt,
                       uint64_t now_ms,
                       struct pipeline_out *out);

void pipeline_on_take(struct pipeline *p,
                      const struct peer_id *id,
                      uint64_t round,
                      uint32_t step,
                      uint32_t attempt,
                      uint32_t micro,
                      uint64_t now_ms,
                      struct pipeline_out *out);

/* That host is dead; or: nothing gets through between it and us though both
 * are alive. */
void pipeline_lost(struct pipeline *p,
                   const struct peer_id *id,
                   uint64_t now_ms,
                   struct pipeline_out *out);
void pipeline_cut(struct pipeline *p,
                  const struct peer_id *id,
                  uint64_t now_ms,
                  struct pipeline_out *out);

/* A link to that host is there (again): what it may have missed is repeated. */
void pipeline_linked(struct pipeline *p,
                     const struct peer_id *id,
                     struct pipeline_out *out);

/* What this host has of the attempt under way is lost, though it can go on: all
 * make the step again, with it. */
void pipeline_again(struct pipeline *p,
                    uint64_t now_ms,
                    struct pipeline_out *out);

/* This host cannot go on (its trainer failed): the others do without it. */
void pipeline_leave(struct pipeline *p, struct pipeline_out *out);

/* An action of this type is complete: TAKE, TAKE_BACK, GIVE, GIVE_BACK (all
 * bytes moved), FORWARD, SCORE, BACKWARD, STEP. Anything of another tag, or
 * not under way, is ignored. */
void pipeline_done(struct pipeline *p,
                   enum pipeline_action_type type,
                   uint64_t tag,
                   uint32_t micro,
                   uint64_t now_ms,
                   struct pipeline_out *out);

/* When to call pipeline_tick(), UINT64_MAX: never. It says again what may have
 * been lost, and after the deadline of a GATHER goes on without those that did
 * not speak. */
uint64_t pipeline_deadline(const struct pipeline *p);
void pipeline_tick(struct pipeline *p,
                   uint64_t now_ms,
                   struct pipeline_out *out);

/* Own work hangs: pipeline_tick() leaves now. */
bool pipeline_hangs(const struct pipeline *p, uint64_t now_ms);

/* Of the segments of a step: grows with attempt and step. */
uint64_t pipeline_tag(uint32_t attempt, uint32_t step);

#endif
