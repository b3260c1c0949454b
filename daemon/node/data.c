/* data.c - what a run is and learns from: manifest and shards.
 *
 * Both come first and once: the manifest part by part, from any peer that has
 * it, then the machine is configured with it; each shard from its URLs, where
 * it has some, else piece by piece from several peers (node/fetch.c), kept when
 * all its pieces have the hashes under the manifest's. Whatever fails is
 * started again from node_data_advance().
 *
 * What round 0 begins from may be as long as the model, and is of use to nobody
 * who gets the state of a later round. Whether there is one is known when peers
 * have spoken, so node/sync.c decides (node_data_begins), and anew each time: a
 * view that is proven ends the fetch. One that is only claimed costs its author
 * nothing, so it may put the fetch off for a while, but not end it.
 *
 * Where members read one order of the text, one begins before all shards are
 * here (node/text.c), and the others come beside the rounds.
 *
 * URLs first: a server has nothing else to do, while the uplinks of peers carry
 * the rounds of all. When every URL of a shard failed, peers are asked; when
 * they cannot give it, the URLs again, after a pause that doubles.
 */
#include "daemon/node/internal.h"

#include <stdlib.h>
#include <string.h>

#include "p2p/round/text.h"
#include "proto/base/err.h"
#include "proto/base/log.h"

#define ASK_MS 1000 /* a small question is asked again after this */
/* URLs that failed are asked again after this, twice that, .., at most that. */
#define URLS_MS     15000
#define URLS_MAX_MS 1800000
/* So long without a view in sight, in all: links end and come again, and what
 * is fetched meanwhile may be long. After BEGIN_MOST_MS a moment is enough. */
#define BEGIN_MS      2000
#define BEGIN_MOST_MS 20000

/* ---- manifest --------------------------------------------------------- */

static bool has_manifest(const struct node *n, const struct member *p)
{
    (void)n;
    return p->beat.configured;
}

void node_on_get_manifest(struct node *n,
                          int peer,
                          const struct get_manifest *m)
{
    struct manifest_part part = {.offset = m->offset};

    if (!n->data.configured || m->offset >= n->data.manifest_len) {
        return;
    }
    part.total = n->data.manifest_len;
    part.n_bytes = n->data.manifest_len - m->offset;
    if (part.n_bytes > MESSAGE_MANIFEST_MAX) {
        part.n_bytes = MESSAGE_MANIFEST_MAX;
    }
    memcpy(part.bytes, n->data.manifest + m->offset, part.n_bytes);
    (void)members_send(&n->members, n->out, peer, MESSAGE_MANIFEST, &part);
}

void node_on_manifest_part(struct node *n,
                           int peer,
                           const struct manifest_part *m)
{
    if (n->data.configured || n->data.configuring ||
        m->offset != n->data.manifest_got || m->total > MANIFEST_BYTES_MAX ||
        m->total < m->offset || m->n_bytes > m->total - m->offset ||
        m->n_bytes == 0 ||
        (m->offset > 0 && m->total != n->data.manifest_len)) {
        return;
    }
    memcpy(n->data.manifest + m->offset, m->bytes, m->n_bytes);
    n->data.manifest_len = m->total;
    n->data.manifest_got += m->n_bytes;
    n->data.manifest_ask_ms = n->now;
    if (n->data.manifest_got < n->data.manifest_len) {
        struct get_manifest next = {.offset = n->data.manifest_got};

        n->data.manifest_ask_ms = n->now + ASK_MS;
        (void)members_send(&n->members, n->out, peer, MESSAGE_GET_MANIFEST,
                           &next);
    }
}

static void manifest_advance(struct node *n)
{
    struct get_manifest ask = {0};
    struct job *job;
    int peer;

    if (n->data.configuring) {
        return;
    }
    if (n->data.manifest_len > 0 &&
        n->data.manifest_got == n->data.manifest_len) {
        uint32_t at = out_bytes(n->out, n->data.manifest, n->data.manifest_len);

        job = at == UINT32_MAX ? NULL : out_job(n->out, JOB_CONFIGURE);
        if (job != NULL) {
            job->configure.at = at;
            job->configure.len = n->data.manifest_len;
            n->data.configuring = true;
        }
        return;
    }
    peer = node_pick(n, has_manifest);
    if (peer == MEMBERS_NONE || n->now < n->data.manifest_ask_ms) {
        return;
    }
    n->data.manifest_ask_ms = n->now + ASK_MS;
    n->data.manifest_got = n->data.manifest_len = 0;
    (void)members_send(&n->members, n->out, peer, MESSAGE_GET_MANIFEST, &ask);
}

/* Shards that were fetched since the first terms stay here. */
void node_take_terms(struct node *n, const struct run_terms *t)
{
    bool held[MANIFEST_SHARDS_MAX] = {false};

    for (uint32_t i = 0; i < n->terms.n_shards; i++) {
        held[i] = n->terms.shards[i].held;
    }
    n->terms = *t;
    n->regime = t->pairs ? &regime_pairs : &regime_rounds;
    n->inner = terms_staged(t) ? &inner_stages : &inner_machine;
    for (uint32_t i = 0; i < n->terms.n_shards; i++) {
        n->terms.shards[i].held = n->terms.shards[i].held || held[i];
    }
    n->terms.grace_ms *= n->opt.time_scale;
    n->terms.fork_after_ms *= n->opt.time_scale;
    ballot_configure(&n->ballot, n->terms.fork_after_ms, n->terms.exchange,
                     n->terms.probation_rounds);
    round_configure(&n->round, &n->terms);
    pair_configure(&n->pair, &n->terms);
}

void node_on_configured(struct node *n, const struct local_event *e)
{
    n->data.configuring = false;
    if (e->rc == LOCO_EHASH || e->rc == LOCO_ESIG) {
        n->malformed++; /* that peer lied: ask another one */
        n->data.manifest_got = n->data.manifest_len = 0;
        return;
    }
    if (e->rc != 0 || e->configured.terms == NULL) {
        node_stop(n, e->rc == LOCO_ENOMEM || e->rc == LOCO_EDISK
                         ? LOCO_EXIT_RESOURCES
                         : LOCO_EXIT_CONFIG);
        return;
    }
    node_take_terms(n, e->configured.terms);
    node_lease_restored(n, e);
    n->data.configured = true;
    n->inner->configured(n);
    node_admit_configured(n);
}

/* Reached nobody: say why and stop, as scripts expect. Once a peer of the run
 * was reached, or an earlier life knew some, we keep trying. */
static void unreachable_advance(struct node *n)
{
    uint64_t patience_ms = node_scaled(n, 10000);
    bool all_foreign = n->members.n_bootstrap > 0;
    char where[ADDRESS_TEXT_MAX];

    if (n->members.reached || n->members.n_bootstrap == 0 ||
        n->members.n_peers > 0) {
        return;
    }
    for (unsigned i = 0; i < n->members.n_bootstrap; i++) {
        const struct members_bootstrap *b = &n->members.bootstrap[i];

        if (b->failures == 0 ||
            (n->now - n->started_ms < patience_ms && b->rc != LOCO_ERUN)) {
            return;
        }
        all_foreign = all_foreign && b->rc == LOCO_ERUN;
    }
    address_text(&n->members.bootstrap[0].address, where);
    out_log(n->out, LOG_ERROR, "bootstrap %s (%s) %s", where,
            members_dial_text(n->members.bootstrap[0].rc),
            all_foreign
                ? "answers, but not for this run or protocol: check the run "
                  "id in the URI"
                : "cannot be reached: check the address, and that its peer "
                  "runs and its port is open");
    node_stop(n, all_foreign ? LOCO_EXIT_INCOMPATIBLE : LOCO_EXIT_NETWORK);
}

/* ---- shards -----------------------------------------------------------
 * Members may lack some, too: they say so, and others are asked.
 */

static bool is_ready(const struct node *n, const struct member *p)
{
    (void)n;
    return p->beat.ready;
}

/* Which of the shards is fetched now, as an object in pieces. */
static void fetch_shard(struct node *n)
{
    const struct terms_shard *s = &n->terms.shards[n->data.shard];
    struct transfer_object o = {
        .buffer = BUFFER_SHARD,
        .leaves = BUFFER_SHARD_LEAVES,
        .index = n->data.shard,
        .root = s->hash,
        .total = s->bytes,
    };

    if (!node_fetch(n, &o)) {
        n->reason = "a shard of the run is too large for this build";
    }
}

static void shard_is_here(struct node *n)
{
    uint64_t front = node_text_front(n);

    n->data.shard_ahead =
        front > n->data.shard_front ? front - n->data.shard_front : 0;
    n->data.shard_front = front;
    n->terms.shards[n->data.shard].held = true;
    node_text_look(n);
}

/* ---- from URLs --- */

void node_on_downloading(struct node *n, const struct local_event *e)
{
    struct node_download *d = &n->data.download;

    if (!d->active || e->downloading.index != n->data.shard) {
        return;
    }
    d->bytes = e->downloading.here_bytes;
    if (d->began_ms == 0) {
        d->began_ms = n->now;
        d->resumed_bytes = e->downloading.here_bytes;
    }
}

void node_on_downloaded(struct node *n, const struct local_event *e)
{
    struct node_download *d = &n->data.download;
    uint64_t pause = node_scaled(n, URLS_MS);

    if (!d->active || e->downloaded.index != n->data.shard) {
        return;
    }
    d->active = false;
    if (e->rc == 0) {
        shard_is_here(n);
        d->failures = 0;
        return;
    }
    pause <<= d->failures < 16 ? d->failures : 16;
    d->failures++;
    d->after_ms = n->now + (pause < URLS_MAX_MS ? pause : URLS_MAX_MS);
}

/* Whether the shard comes, or is coming, from its URLs. */
static bool download_advance(struct node *n)
{
    struct node_download *d = &n->data.download;
    struct job *job;

    if (d->active) {
        return true;
    }
    if (!n->terms.shards[n->data.shard].urls || n->now < d->after_ms ||
        (n->transfer.active && transfer_n_sources(&n->transfer) > 0)) {
        return false;
    }
    transfer_stop(&n->transfer, n->out);
    job = out_job(n->out, JOB_DOWNLOAD);
    if (job != NULL) {
        job->download.index = n->data.shard;
        d->active = true;
        d->bytes = d->resumed_bytes = d->began_ms = 0;
    }
    return true;
}

static bool shard_is_fetched(const struct node *n)
{
    const struct transfer *t = &n->transfer;

    return t->active && t->object.buffer == BUFFER_SHARD &&
           t->object.index == n->data.shard;
}

/* ---- what round 0 begins from --- */

uint32_t node_data_beginning(const struct node *n)
{
    return n->data.begin.fetched ? text_beginning(&n->terms)
                                 : n->terms.n_shards;
}

/* Whether the fetch may begin now. */
static bool is_time(const struct node *n)
{
    const struct node_beginning *b = &n->data.begin;

    return b->clear_since_ms > 0 &&
           (b->clear_ms + (n->now - b->clear_since_ms) >=
                node_scaled(n, BEGIN_MS) ||
            n->now - b->wanted_ms >= node_scaled(n, BEGIN_MOST_MS));
}

bool node_data_begins(struct node *n, bool possible, bool clear)
{
    struct node_beginning *b = &n->data.begin;
    bool missing = text_beginning(&n->terms) < n->terms.n_shards;

    if (!possible || !missing) {
        if (n->data.shard == node_data_beginning(n) && shard_is_fetched(n)) {
            transfer_stop(&n->transfer, n->out); /* its pieces are kept */
        }
        *b = (struct node_beginning){0};
        return !missing;
    }
    if (clear && b->clear_since_ms == 0) {
        b->clear_since_ms = n->now;
        b->wanted_ms = b->wanted_ms > 0 ? b->wanted_ms : n->now;
    } else if (!clear && b->clear_since_ms > 0) {
        b->clear_ms += n->now - b->clear_since_ms;
        b->clear_since_ms = 0;
    }
    b->fetched = b->fetched || is_time(n);
    return false;
}

/* ---- which one --- */

/* The one that will be read when it is here, as far as the last one tells. What
 * has begun is brought to its end, unless round 0 waits for another. False:
 * nothing is missing. */
static bool pick_shard(struct node *n)
{
    uint32_t beginning = node_data_beginning(n);

    if (beginning < n->terms.n_shards) {
        n->data.shard = n->data.download.active ? n->data.shard : beginning;
    } else if (n->data.shard >= n->terms.n_shards ||
               n->terms.shards[n->data.shard].held ||
               (!n->data.download.active && !shard_is_fetched(n))) {
        uint64_t front = node_text_front(n);
        uint32_t next = text_missing(&n->terms, front + n->data.shard_ahead);

        n->data.shard_front = next == n->data.shard && n->data.shard_front > 0
                                  ? n->data.shard_front
                                  : front;
        n->data.shard = next;
    }
    return n->data.shard < n->terms.n_shards;
}

static void shards_advance(struct node *n)
{
    struct transfer *t = &n->transfer;
    struct job *job;

    n->data.ready = n->data.ready || node_text_suffices(n);
    if (n->data.begin.clear_since_ms > 0 && !n->data.begin.fetched) {
        return; /* no other shard is begun while this one is about to be */
    }
    if (!pick_shard(n)) {
        return;
    }
    if (!(shard_is_fetched(n) && t->finished) && download_advance(n)) {
        return;
    }
    if (!shard_is_fetched(n)) {
        fetch_shard(n);
    }
    node_fetch_sources(n, is_ready);
    if (!t->finished) {
        return;
    }
    job = out_job(n->out, JOB_KEEP); /* every piece of it was verified */
    if (job != NULL) {
        job->keep.index = n->data.shard;
        shard_is_here(n);
        transfer_stop(t, n->out);
    }
}

void node_data_advance(struct node *n)
{
    if (!n->data.configured) {
        manifest_advance(n);
        unreachable_advance(n);
    } else {
        shards_advance(n);
    }
}

int node_data_open(struct node *n)
{
    n->data.manifest = malloc(MANIFEST_BYTES_MAX);
    if (n->data.manifest == NULL) {
        return LOCO_ENOMEM;
    }
    if (n->opt.manifest != NULL && n->opt.manifest_len <= MANIFEST_BYTES_MAX) {
        memcpy(n->data.manifest, n->opt.manifest, n->opt.manifest_len);
        n->data.manifest_len = n->data.manifest_got =
            (uint32_t)n->opt.manifest_len;
    }
    return 0;
}
