/* stages.c - which stage of the model this peer holds.
 *
 * A run whose manifest says `stages: S` has S averaging groups. Each is what a
 * whole run is without stages: founded, joined, with views, rounds and a chain
 * of its own. Its name, which takes the run id's place in views, joins and
 * proofs, is the hash of {run id, stage}: nothing that one group signed means
 * anything in another. Between the groups there is only p2p/pipeline
 * (node/pipe.c).
 *
 * Choosing. Who was in a stage before (its record or checkpoint says so) goes
 * back there. A newcomer takes the stage with the fewest hosts that it has the
 * memory for, the lower number of equal ones; of those who choose at once the
 * lower id comes first. Everybody announces its choice (heartbeat, rumours), so
 * who is in no view yet corrects a choice that others made too: the one with
 * the highest id of the fullest stage moves. A stage whose hosts are all gone
 * after round 0 is nobody's choice: only who has its state can bring it back.
 *
 * Moving. A host that node/crew.c finds to be of more use elsewhere says
 * goodbye to its group and joins the other as a newcomer does.
 *
 * Links. A run with stages has at most 64 hosts, and everybody keeps a link to
 * everybody: activations and steps go between all stages.
 */
#include "daemon/node/internal.h"

#include <string.h>

#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/base/log.h"
#include "proto/hash.h"

/* Others may choose at the same time: their choices are waited for, that long
 * after the first peer of the run was heard, and after each choice. */
#define SETTLE_MS 1500

#define LOOK_MS 250 /* between two looks at the swarm */

struct hash32 node_group_of(const struct hash32 *run, uint32_t stage)
{
    uint8_t bytes[sizeof run->b + 4];
    struct hash32 out;

    memcpy(bytes, run->b, sizeof run->b);
    put_u32(bytes + sizeof run->b, stage);
    hash_bytes("loco-stage-1", bytes, sizeof bytes, &out);
    return out;
}

bool node_is_staged(const struct node *n)
{
    return n->inner->whole || n->stages.staging == STAGING_DONE;
}

bool node_same_stage(const struct node *n, const struct member *p)
{
    return n->inner->whole || (n->stages.staging == STAGING_DONE &&
                               p->beat.stage == n->stages.own + 1);
}

/* ---- who serves what ---------------------------------------------------- */

struct service {
    uint32_t hosts[ROUTE_STAGES_MAX];  /* that chose it, ourselves too */
    uint32_t placed[ROUTE_STAGES_MAX]; /* of those: in a view of it */
    uint32_t n_hosts, n_placed;        /* of all stages */
    uint32_t behind; /* of those of our stage: in one that ours has left behind
                      */
    uint64_t round;  /* newest that one in a view names */
    bool highest; /* no other peer without a view in our stage has a higher id
                   */
};

static bool is_here(const struct member *p)
{
    return p->used && p->confirmed && !p->lost && p->state <= PEER_SUSPECT;
}

static bool is_placed(const struct member *p)
{
    return (p->info.features & PEER_IN_VIEW) != 0;
}

static void look(const struct node *n, struct service *s)
{
    memset(s, 0, sizeof *s);
    s->highest = true;
    if (n->stages.staging != STAGING_NONE) {
        s->hosts[n->stages.own]++;
        s->n_hosts++;
    }
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];
        uint32_t at = (uint32_t)p->info.stage - 1;

        if (!is_here(p) || p->info.stage == 0 || at >= n->terms.stages) {
            continue;
        }
        s->hosts[at]++;
        s->n_hosts++;
        if (is_placed(p)) {
            s->placed[at]++;
            s->n_placed++;
            s->behind += at == n->stages.own && node_left_behind(n, p);
            s->round = p->info.round > s->round ? p->info.round : s->round;
        } else if (n->stages.staging != STAGING_NONE && at == n->stages.own &&
                   id_cmp(&p->id, &n->opt.self) > 0) {
            s->highest = false;
        }
    }
}

void node_stage_hosts(const struct node *n, uint16_t hosts[ROUTE_STAGES_MAX])
{
    struct service s;

    look(n, &s);
    for (uint32_t k = 0; k < ROUTE_STAGES_MAX; k++) {
        hosts[k] = (uint16_t)s.hosts[k];
    }
}

static bool has_state_of(const struct node *n, uint32_t stage)
{
    return n->terms.holds_state && n->terms.held_stage == stage;
}

/* All its hosts died before one of them had written its first commit, and more
 * than half of those are here: nobody has more of it than how it began. */
static bool begins_anew(const struct node *n)
{
    return n->ballot.restored && !n->terms.holds_state &&
           n->ballot.cert.body.round == 0 && node_can_go_on(n);
}

/* Whether somebody, or we, can begin or go on with it. */
static bool is_open(const struct node *n, const struct service *s, uint32_t at)
{
    return (n->terms.stage_fits >> at & 1) != 0 &&
           (s->placed[at] > 0 || s->round == 0 || has_state_of(n, at));
}

/* The least served one that is open to us; ROUTE_NONE: none is. */
static uint32_t least(const struct node *n, const struct service *s)
{
    uint32_t at = ROUTE_NONE;

    for (uint32_t k = 0; k < n->terms.stages; k++) {
        if (is_open(n, s, k) &&
            (at == ROUTE_NONE || s->hosts[k] < s->hosts[at])) {
            at = k;
        }
    }
    return at;
}

/* ---- choosing ----------------------------------------------------------- */

/* Other stages have views, this one has none that is here: its hosts may have
 * come and be silent for a moment. */
static bool is_late(const struct node *n, uint32_t stage)
{
    struct service s;

    look(n, &s);
    return s.n_placed > 0 && s.placed[stage] == 0;
}

static void take_stage(struct node *n, uint32_t stage)
{
    struct job *job = out_job(n->out, JOB_STAGE);

    if (job == NULL) {
        return; /* the next look tries again */
    }
    n->stages.late = is_late(n, stage);
    job->stage.stage = stage;
    n->stages.own = stage;
    n->stages.staging = STAGING_ASKED;
    n->stages.chosen_ms = n->now;
    n->group = node_group_of(&n->opt.run_id, stage);
    ballot_set_group(&n->ballot, &n->group);
    out_log(n->out, LOG_INFO, "stage %u of %u", stage + 1, n->terms.stages);
}

/* That of an earlier life; ROUTE_NONE: it had none. */
static uint32_t earlier_stage(const struct node *n)
{
    for (uint32_t k = 0; k < n->terms.stages && n->ballot.restored; k++) {
        struct hash32 group = node_group_of(&n->opt.run_id, k);

        if (hash32_eq(&group, &n->ballot.cert.body.run)) {
            return k;
        }
    }
    return n->terms.holds_state ? n->terms.held_stage : ROUTE_NONE;
}

/* Peers with lower ids that have not chosen yet do so first. */
static void foresee(const struct node *n, struct service *s)
{
    for (uint32_t i = 0; i < n->members.n_peers; i++) {
        const struct member *p = &n->members.peers[i];
        uint32_t at;

        if (is_here(p) && p->info.stage == 0 &&
            id_cmp(&p->id, &n->opt.self) < 0) {
            at = least(n, s);
            s->hosts[at == ROUTE_NONE ? 0 : at]++;
        }
    }
}

static void choose(struct node *n)
{
    uint32_t at = earlier_stage(n);
    struct service s;

    if (at != ROUTE_NONE && at < n->terms.stages &&
        (n->terms.stage_fits >> at & 1) != 0) {
        take_stage(n, at);
        return;
    }
    if (!node_heard_anybody(n)) {
        n->stages.chosen_ms = n->now;
        return;
    }
    if (n->now - n->stages.chosen_ms < node_scaled(n, SETTLE_MS)) {
        return;
    }
    look(n, &s);
    foresee(n, &s);
    at = least(n, &s);
    if (at != ROUTE_NONE) {
        take_stage(n, at);
    }
}

/* ---- another stage ------------------------------------------------------ */

/* Everything that belongs to the group that we leave. */
static void forget_group(struct node *n)
{
    node_view_leave(n);
    if (n->ballot.have) {
        ballot_drop_view(&n->ballot, n->now);
    }
    round_freeze(&n->round, n->out);
    transfer_stop(&n->transfer, n->out);
    node_eval_forget(n);
    node_cancel_rounds(n);
    ballot_restart(&n->ballot, n->now);
    round_restart(&n->round);
    history_clear(&n->history);
    node_proof_forget(n);
    node_held_forget(&n->held);
    node_training_forget(n);
    node_sync_forget(n);
    node_follow_forget(n);
    node_fetches_forget(n);
    node_rounds_forget(n);
    node_branch_forget(n);
}

/* Whether this choice can still be another: nothing but seeds is held. */
static bool is_free(const struct node *n)
{
    return !n->ballot.have && !n->ballot.restored && !n->held.applying &&
           n->held.applied.round == 0 && !n->terms.holds_state &&
           n->ballot.phase == BALLOT_IDLE && n->now >= n->ballot.found_until_ms;
}

/* Others chose the same as we at the same time, or our stage is lost. */
static void reconsider(struct node *n)
{
    struct service s;
    uint32_t to;
    bool open;

    if (!is_free(n) ||
        n->now - n->stages.chosen_ms < node_scaled(n, SETTLE_MS)) {
        return;
    }
    look(n, &s);
    open = is_open(n, &s, n->stages.own);
    to = least(n, &s);
    if (to == ROUTE_NONE || to == n->stages.own ||
        (open && (!s.highest || n->stages.moved ||
                  s.hosts[to] + 1 >= s.hosts[n->stages.own]))) {
        return;
    }
    forget_group(n);
    take_stage(n, to);
}

void node_stage_move(struct node *n, uint32_t to)
{
    out_log(n->out, LOG_INFO,
            "moving from stage %u to stage %u, where more work waits",
            n->stages.own + 1, to + 1);
    forget_group(n);
    n->stages.moved = true;
    n->stages.n_moves++;
    take_stage(n, to);
}

void node_on_staged(struct node *n, const struct local_event *e)
{
    if (n->stages.staging != STAGING_ASKED) {
        return;
    }
    if (e->rc != 0 || e->staged.terms == NULL) {
        n->terms.stage_fits &= ~(1ULL << n->stages.own);
        n->stages.staging = STAGING_NONE;
        if (n->terms.stage_fits == 0) {
            node_stop(n, e->rc == LOCO_ENOMEM    ? LOCO_EXIT_RESOURCES
                         : e->rc == LOCO_EDEVICE ? LOCO_EXIT_DEVICE
                                                 : LOCO_EXIT_CONFIG);
        }
        return;
    }
    node_take_terms(n, e->staged.terms);
    n->stages.staging = STAGING_DONE;
    node_proof_configured(n);
    node_pipe_configured(n);
}

/* ---- what follows ------------------------------------------------------- */

/* Half of an equal share of the peers that the run begins with. */
uint32_t node_group_share(uint32_t min_peers, uint32_t stages)
{
    uint32_t share = stages > 1 ? (min_peers / stages + 1) / 2 : min_peers;

    return share > 0 ? share : 1;
}

uint32_t node_group_least(const struct node *n)
{
    return node_group_share(n->terms.min_peers, n->terms.stages);
}

/* Hosts that the first view of a stage has at least: an equal share. Where
 * another stage has begun and the peers of the run are here, unequally (one
 * died on the way and came back elsewhere), as many as chose it, half a share
 * at least: those in a view do not come over. */
static uint32_t
first_hosts(const struct node *n, const struct service *s, uint32_t at)
{
    uint32_t need = n->terms.min_peers / n->terms.stages;

    if (s->n_placed > 0 && s->n_hosts >= n->terms.min_peers &&
        s->hosts[at] < need) {
        need = s->hosts[at];
    }
    return need > node_group_least(n) ? need : node_group_least(n);
}

uint32_t node_group_min(const struct node *n)
{
    struct service s;

    if (n->inner->whole) {
        return node_group_least(n);
    }
    look(n, &s);
    return first_hosts(n, &s, n->stages.own);
}

/* Until the run has the peers that it begins with, and every stage as many as a
 * first view of it needs, none is founded: who is in no view can still go where
 * it is needed. */
static bool lacks_hosts(const struct node *n, const struct service *s)
{
    if (s->n_placed == 0 && s->n_hosts < n->terms.min_peers) {
        return true;
    }
    for (uint32_t k = 0; k < n->terms.stages; k++) {
        if (s->hosts[k] < first_hosts(n, s, k) && s->placed[k] == 0) {
            return true;
        }
    }
    return false;
}

/* Two foundings of one stage would be two chains of it. */
static bool waits_for_first(const struct node *n)
{
    return n->stages.late &&
           n->now - n->stages.chosen_ms < n->terms.fork_after_ms;
}

bool node_stage_may_found(const struct node *n)
{
    struct service s;

    if (n->inner->whole || n->ballot.restored) {
        return true;
    }
    if (n->stages.staging != STAGING_DONE || waits_for_first(n)) {
        return false;
    }
    look(n, &s);
    return s.round > 0 || !lacks_hosts(n, &s);
}

bool node_stage_may_begin(const struct node *n)
{
    struct service s;

    if (n->inner->whole) {
        return true;
    }
    look(n, &s);
    return s.placed[n->stages.own] == s.behind &&
           (s.round == 0 || has_state_of(n, n->stages.own) || begins_anew(n));
}

const char *node_stage_wait(const struct node *n)
{
    struct service s;

    if (n->training.hangs && !n->ballot.have) {
        return "local trainer not responding; the others continue";
    }
    if (n->stages.staging == STAGING_NONE) {
        look(n, &s);
        return least(n, &s) == ROUTE_NONE
                   ? "all stages that fit into this machine's memory have lost "
                     "their hosts: waiting for a host that has the state of "
                     "one of them"
                   : "choosing a stage: counting the hosts of each";
    }
    if (n->stages.staging == STAGING_ASKED) {
        return "allocating the memory of its stage";
    }
    if (n->ballot.have) {
        return NULL;
    }
    look(n, &s);
    if (s.placed[n->stages.own] == 0 && s.round > 0 &&
        !has_state_of(n, n->stages.own) && !n->held.loaded) {
        return "its stage has lost all hosts: waiting for a host with its "
               "state";
    }
    if (s.round == 0 && s.placed[n->stages.own] == 0 && waits_for_first(n)) {
        return "the other stages have begun: waiting for this stage's first "
               "hosts before founding it again";
    }
    return s.round == 0 && lacks_hosts(n, &s)
               ? "a stage has too few hosts yet: waiting for more peers"
               : NULL;
}

/* A link to everybody who serves a stage, to those first who did before. */
static void keep_links(struct node *n)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < 2 * n->members.n_peers; i++) {
        int row = (int)(i % n->members.n_peers);
        const struct member *p = &n->members.peers[row];
        bool here = is_here(p) && p->info.stage != 0;

        if (!p->used || node_crew_trusts(n, p) != (i < n->members.n_peers)) {
            continue;
        }
        if (here && kept++ < PIPELINE_HOSTS_MAX) {
            node_view_guest(n, row);
        } else if (p->guest && (here || p->state >= PEER_DEAD)) {
            members_guest(&n->members, row, false);
        }
    }
}

static void stages_choose(struct node *n)
{
    if (n->stopped || n->draining) {
        return;
    }
    if (n->now - n->stages.look_ms < LOOK_MS && n->stages.look_ms != 0) {
        return;
    }
    n->stages.look_ms = n->now;
    keep_links(n);
    if (n->stages.staging == STAGING_NONE) {
        choose(n);
    } else if (n->stages.staging == STAGING_DONE) {
        reconsider(n);
    }
}

static void stages_configured(struct node *n)
{
    n->stages.chosen_ms = n->now;
}

bool node_stages_balance(struct node *n)
{
    if (n->stages.balanced_round == n->held.applied.round) {
        return false;
    }
    n->stages.balanced_round = n->held.applied.round;
    return true;
}

static void stages_tick(struct node *n)
{
    node_pipe_tick(n);
    node_eval_advance(n);
}

const struct inner inner_stages = {
    .whole = false,
    .configured = stages_configured,
    .choose = stages_choose,
    .tick = stages_tick,
    .train = node_pipe_advance,
    .wait = node_stage_wait,
};
