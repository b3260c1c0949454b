/* stage_fetch.c - see stage_fetch.h. */
#include "daemon/stage_fetch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/dialogue.h"
#include "daemon/method_manifest.h"
#include "daemon/model_source.h"
#include "daemon/node.h"
#include "daemon/state_dir.h"
#include "p2p/chain.h"
#include "p2p/peers.h"
#include "proto/base/bytes.h"
#include "proto/base/err.h"
#include "proto/hash.h"
#include "proto/manifest.h"
#include "train/checkpoint.h"
#include "train/file.h"
#include "train/llama_part.h"
#include "train/replica.h"

#define ANSWER_MS    3000
#define VISIT_MS     15000 /* to learn what a host holds */
#define STALL_MS     30000 /* without a piece */
#define FLOOR        65536 /* bytes a second; a fetch below that ends */
#define PIECE_BYTES  262144U
#define WINDOW       8
#define HEADER_BYTES 20 /* of a segment */
#define ROUNDS_MAX   4  /* of ours, newest first, that are tried */

struct host {
    struct dialogue *control;
    struct address address;
    struct peer_id id;
    struct heartbeat beat;
    struct view_body view; /* proven */
    struct hash32 view_hash;
    bool proven;
    bool names[ROUNDS_MAX]; /* it named its state after that round of ours */
    struct hash32 state[ROUNDS_MAX];
};

struct fetching {
    const char *dir;
    struct manifest *manifest;
    struct llama_config model;
    struct method method;
    struct hash32 run;
    struct identity self;
    struct signer signer;
    uint64_t rounds[ROUNDS_MAX]; /* that this directory has */
    size_t n_rounds;
    struct host host[PEERS_CACHE_MAX];
    uint32_t n_hosts;
    uint64_t deadline_ms;   /* of the dialogues that are opened */
    uint8_t *chain, *proof; /* (CHAIN_BYTES_MAX) */
    void *in;               /* any message */
    uint8_t out[1024];
    uint64_t bytes;
};

/* ---- words -------------------------------------------------------------- */

static int say(struct fetching *f,
               struct host *h,
               enum message_type type,
               const void *message)
{
    int n = msg_encode(message_schema((uint16_t)type), message, f->out,
                       sizeof f->out);

    return n < 0 ? n
                 : dialogue_send(h->control, (uint8_t)type, f->out, (size_t)n);
}

/* The next message of that type into f->in; others pass by. */
static int hear(struct fetching *f, struct host *h, enum message_type wanted)
{
    uint64_t until_ms = dialogue_now_ms() + ANSWER_MS;
    const uint8_t *bytes = NULL;
    uint8_t type;
    int n;

    do {
        n = dialogue_recv(h->control, until_ms, &type, &bytes);
    } while (n >= 0 && type != (uint8_t)wanted);
    return n < 0 ? n
                 : msg_decode(message_schema((uint16_t)wanted), bytes,
                              (size_t)n, f->in);
}

static bool
dial(struct fetching *f, struct host *h, bool bulk, struct dialogue **d)
{
    const struct dialogue_options opt = {
        .address = h->address,
        .run_id = f->run,
        .version = PROTO_VERSION,
        .signer = &f->signer,
        .expected = h->id,
        .bulk = bulk,
        .deadline_ms = f->deadline_ms,
    };
    int rc;

    return dialogue_open(d, &opt, &rc) == DIALOGUE_UP;
}

/* Greet, and ask what it holds. */
static bool visit(struct fetching *f, struct host *h)
{
    const struct pulse ask = {.flags = PULSE_ASK};
    struct hello mine = {.oldest = PROTO_OLDEST, .newest = PROTO_NEWEST};

    if (!dial(f, h, false, &h->control) || hear(f, h, MESSAGE_HELLO) != 0) {
        return false;
    }
    mine.life = dialogue_now_ms();
    if (say(f, h, MESSAGE_HELLO, &mine) != 0 ||
        say(f, h, MESSAGE_PULSE, &ask) != 0 ||
        hear(f, h, MESSAGE_HEARTBEAT) != 0) {
        return false;
    }
    h->beat = *(const struct heartbeat *)f->in;
    return h->beat.has_view && h->beat.stage > 0 &&
           h->beat.stage <= f->manifest->stages;
}

static void leave(struct fetching *f, struct host *h)
{
    struct goodbye bye = {.body = {.run = f->run, .peer = f->self.id}};

    if (h->control != NULL && message_sign(&f->signer, &goodbye_body_schema,
                                           &bye.body, bye.sig) == 0) {
        (void)say(f, h, MESSAGE_GOODBYE, &bye);
    }
    dialogue_close(h->control);
    h->control = NULL;
}

/* ---- what can be believed ----------------------------------------------- */

/* Its view is one of its stage's group. */
static bool prove(struct fetching *f, struct host *h)
{
    const struct chain_rules rules = {
        .run = node_group_of(&f->run, h->beat.stage - 1U),
        .min_peers =
            node_group_share(f->manifest->round.min_peers, f->manifest->stages),
        .signer = &f->signer,
    };
    struct get_proof ask = {.view = h->beat.view};
    const struct proof *part = f->in;
    struct view_cert *cert = malloc(sizeof *cert);
    struct chain chain;
    uint32_t got = 0;

    do {
        ask.offset = got;
        if (cert == NULL || say(f, h, MESSAGE_GET_PROOF, &ask) != 0 ||
            hear(f, h, MESSAGE_PROOF) != 0 || part->offset != got ||
            part->total > CHAIN_BYTES_MAX || part->n_bytes == 0 ||
            part->total < got || part->n_bytes > part->total - got) {
            free(cert);
            return false;
        }
        memcpy(f->proof + got, part->bytes, part->n_bytes);
        got += part->n_bytes;
    } while (got < part->total);
    chain_init(&chain, f->chain);
    h->proven = chain_read(&chain, &rules, f->proof, got) == 0 &&
                chain_proves(&chain, &h->beat.view) && chain_last(&chain, cert);
    if (h->proven) {
        h->view = cert->body;
        h->view_hash = h->beat.view;
    }
    free(cert);
    return h->proven;
}

/* The record of that commit, with the votes of the view; NULL. */
static const struct commit *
record(struct fetching *f, struct host *h, uint64_t round)
{
    const struct get_commit ask = {.round = round};
    const struct commit *c = f->in;

    return say(f, h, MESSAGE_GET_COMMIT, &ask) == 0 &&
                   hear(f, h, MESSAGE_COMMIT) == 0 &&
                   c->plan.body.round == round &&
                   chain_commit_valid(&h->view, &h->view_hash, c, &f->signer)
               ? c
               : NULL;
}

/* What it held after `round`, as the records say. */
static bool name_state(struct fetching *f,
                       struct host *h,
                       uint64_t round,
                       struct hash32 *state)
{
    const struct commit *c;
    struct hash32 hash;

    if (!h->proven || h->beat.round < round) {
        return false;
    }
    if (h->beat.round > round) {
        c = record(f, h, round + 1);
        if (c != NULL) {
            *state = c->plan.body.state;
        }
        return c != NULL;
    }
    *state = h->beat.state_hash;
    if (hash32_eq(&h->view.commit, &h->beat.commit)) {
        return true;
    }
    c = record(f, h, round);
    if (c != NULL) {
        message_commit_hash(&c->plan.body, &c->result, &hash);
    }
    return c != NULL && hash32_eq(&hash, &h->beat.commit);
}

static bool
is_source(const struct fetching *f, uint32_t i, uint32_t stage, size_t at)
{
    return f->host[i].names[at] && f->host[i].beat.stage == stage + 1;
}

/* The state of a stage that more than half of its hosts here name. */
static bool
agreed(const struct fetching *f, uint32_t stage, size_t at, struct hash32 *s)
{
    uint32_t all = 0;

    for (uint32_t i = 0; i < f->n_hosts; i++) {
        all += f->host[i].proven && f->host[i].beat.stage == stage + 1;
    }
    for (uint32_t i = 0; i < f->n_hosts; i++) {
        uint32_t same = 0;

        for (uint32_t k = 0; k < f->n_hosts; k++) {
            same += is_source(f, k, stage, at) && is_source(f, i, stage, at) &&
                    hash32_eq(&f->host[k].state[at], &f->host[i].state[at]);
        }
        if (2 * same > all) {
            *s = f->host[i].state[at];
            return true;
        }
    }
    return false;
}

/* ---- a state ------------------------------------------------------------ */

static uint32_t piece_len(uint64_t bytes, uint32_t seg)
{
    uint64_t at = (uint64_t)seg * PIECE_BYTES;

    return bytes - at < PIECE_BYTES ? (uint32_t)(bytes - at) : PIECE_BYTES;
}

/* A state that is wanted. */
struct wanted {
    uint64_t round, bytes;
    struct hash32 root;
};

static int ask_piece(struct fetching *f,
                     struct host *h,
                     const struct wanted *w,
                     uint32_t seg)
{
    const struct fetch ask = {.buffer = BUFFER_STATE,
                              .index = w->round,
                              .offset = (uint64_t)seg * PIECE_BYTES,
                              .len = piece_len(w->bytes, seg),
                              .attempt = 1,
                              .seg = seg,
                              .stream = STREAM_FETCH,
                              .root = w->root};

    return say(f, h, MESSAGE_FETCH, &ask);
}

/* The record that begins a segment; LOCO_ENOENT: the host says that it has no
 * such state. */
static int await_piece(struct host *h, struct dialogue *bulk, uint32_t len)
{
    uint64_t until_ms = dialogue_now_ms() + STALL_MS;
    const uint8_t *bytes = NULL;
    int n;

    for (;;) {
        uint64_t now_ms = dialogue_now_ms();
        uint8_t type = 0;

        n = dialogue_record(bulk, now_ms + 200, &bytes);
        if (n != LOCO_ETIMEOUT || now_ms >= until_ms) {
            break;
        }
        while (dialogue_recv(h->control, now_ms, &type, &bytes) >= 0) {
            if (type == MESSAGE_FETCH_NO) {
                return LOCO_ENOENT;
            }
        }
    }
    if (n < 0) {
        return n;
    }
    return n == HEADER_BYTES && get_u32(bytes) == len ? 0 : LOCO_EPROTO;
}

/* The next segment: they come in the order asked for. */
static int
take_piece(struct host *h, struct dialogue *bulk, uint8_t *to, uint32_t len)
{
    const uint8_t *bytes = NULL;
    uint32_t got = 0;
    int rv = await_piece(h, bulk, len);

    while (rv == 0 && got < len) {
        int n = dialogue_record(bulk, dialogue_now_ms() + STALL_MS, &bytes);

        if (n <= 0 || (uint32_t)n > len - got) {
            return n < 0 ? n : LOCO_EPROTO;
        }
        memcpy(to + got, bytes, (size_t)n);
        got += (uint32_t)n;
    }
    return rv;
}

static int fetch_bytes(struct fetching *f,
                       struct host *h,
                       const struct wanted *w,
                       uint8_t *to)
{
    uint32_t n = (uint32_t)((w->bytes + PIECE_BYTES - 1) / PIECE_BYTES);
    struct dialogue *bulk = NULL;
    uint32_t asked = 0;
    int rv = 0;

    f->deadline_ms = dialogue_now_ms() + VISIT_MS + w->bytes * 1000 / FLOOR;
    if (!visit(f, h) || !dial(f, h, true, &bulk)) {
        rv = LOCO_ECLOSED;
    }
    for (uint32_t got = 0; got < n && rv == 0; got++) {
        while (asked < n && asked < got + WINDOW && rv == 0) {
            rv = ask_piece(f, h, w, asked++);
        }
        rv = rv != 0 ? rv
                     : take_piece(h, bulk, to + (uint64_t)got * PIECE_BYTES,
                                  piece_len(w->bytes, got));
    }
    dialogue_close(bulk);
    leave(f, h);
    return rv;
}

static bool
has_hash(const uint8_t *state, uint64_t params_bytes, const struct wanted *w)
{
    struct hash32 params, rest, hash;

    hash_tree(state, (size_t)params_bytes, &params);
    hash_tree(state + params_bytes, (size_t)(w->bytes - params_bytes), &rest);
    hash = node_state_hash(&params, &rest);
    return hash32_eq(&hash, &w->root);
}

static int make_dirs(char dir[FILE_PATH_MAX], const char *state, uint32_t stage)
{
    const char *names[] = {"/" STATE_DIR_STAGES, NULL,
                           "/" STATE_DIR_CHECKPOINTS};
    char number[16];
    size_t at = (size_t)snprintf(dir, FILE_PATH_MAX, "%s", state);

    (void)snprintf(number, sizeof number, "/%u", stage + 1);
    names[1] = number;
    for (int i = 0; i < 3; i++) {
        if (at >= FILE_PATH_MAX) {
            return -ENAMETOOLONG;
        }
        at += (size_t)snprintf(dir + at, FILE_PATH_MAX - at, "%s", names[i]);
        if (at < FILE_PATH_MAX && mkdir(dir, 0700) != 0 && errno != EEXIST) {
            return -errno;
        }
    }
    return 0;
}

static int write_stage(const struct fetching *f,
                       uint32_t stage,
                       uint64_t round,
                       uint64_t n,
                       const float *phi,
                       char *errmsg)
{
    char dir[FILE_PATH_MAX], run[ID_HEX_MAX], number[16];
    const struct st_meta extra = {.key = "stage", .value = number};
    const struct checkpoint_state state = {
        .n = n, .phi = phi, .round = round, .run_id = run};
    int rv = make_dirs(dir, f->dir, stage);

    hash32_hex(&f->run, run);
    (void)snprintf(number, sizeof number, "%u", stage);
    return rv != 0 ? errmsg_fail(errmsg, rv, "cannot make %.160s", dir)
                   : checkpoint_save(dir, &state, &extra, 1, 2, errmsg);
}

/* From one host of the stage after the other: round `at` of ours. */
static int get_stage(struct fetching *f,
                     uint32_t stage,
                     size_t at,
                     const struct hash32 *root,
                     char *errmsg)
{
    struct wanted w = {.round = f->rounds[at], .root = *root};
    struct llama_part part = {0};
    uint64_t n;
    uint8_t *state;
    int rv =
        llama_part_of_stage(&f->model, f->manifest->stages, stage, &part, NULL);

    n = (uint64_t)part.numel;
    w.bytes = replica_state_elements(&f->method, n) * sizeof(float);
    state = rv == 0 ? malloc((size_t)w.bytes) : NULL;
    if (state == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM,
                           "out of memory for the state of stage %u",
                           stage + 1);
    }
    rv = errmsg_fail(errmsg, LOCO_ENOENT,
                     "no host of stage %u gave the state of round %llu that "
                     "it must have",
                     stage + 1, (unsigned long long)w.round);
    for (uint32_t i = 0; i < f->n_hosts && rv == LOCO_ENOENT; i++) {
        if (is_source(f, i, stage, at) &&
            hash32_eq(&f->host[i].state[at], root) &&
            fetch_bytes(f, &f->host[i], &w, state) == 0 &&
            has_hash(state, n * sizeof(float), &w)) {
            rv = write_stage(f, stage, w.round, n, (const float *)(void *)state,
                             errmsg);
            f->bytes += w.bytes;
        }
    }
    free(state);
    return rv;
}

/* ---- all of it ---------------------------------------------------------- */

/* Which stage this directory's own checkpoint of a round is of; the number of
 * stages: it has none. */
static uint32_t own_stage(const struct fetching *f, uint64_t round)
{
    char dir[FILE_PATH_MAX];
    struct checkpoint c = {0};
    unsigned long k = f->manifest->stages;

    if (file_path_join(dir, f->dir, STATE_DIR_CHECKPOINTS, NULL) == 0 &&
        checkpoint_open_round(&c, dir, round, NULL) == 0 &&
        checkpoint_text(&c, "stage") != NULL) {
        k = strtoul(checkpoint_text(&c, "stage"), NULL, 10);
    }
    checkpoint_close(&c);
    return k < f->manifest->stages ? (uint32_t)k : f->manifest->stages;
}

/* Round `at` of ours: hosts of all other stages agree on their states of it,
 * and give them. */
static int
try_round(struct fetching *f, size_t at, struct stage_fetch *out, char *errmsg)
{
    uint32_t own = own_stage(f, f->rounds[at]);
    struct hash32 want[ROUTE_STAGES_MAX];
    int rv = 0;

    for (uint32_t k = 0; k < f->manifest->stages; k++) {
        if (k != own && !agreed(f, k, at, &want[k])) {
            return errmsg_fail(errmsg, LOCO_ENOENT,
                               "no host that proves a view of stage %u was "
                               "found, or they do not agree on round %llu",
                               k + 1, (unsigned long long)f->rounds[at]);
        }
    }
    for (uint32_t k = 0; k < f->manifest->stages && rv == 0; k++) {
        if (k != own) {
            rv = get_stage(f, k, at, &want[k], errmsg);
            out->fetched += rv == 0;
        }
    }
    out->round = f->rounds[at];
    out->bytes = f->bytes;
    return rv;
}

/* The newest one that all can be had of. */
static int try_rounds(struct fetching *f, struct stage_fetch *out, char *errmsg)
{
    int rv = LOCO_ENOENT;

    for (size_t i = 0; i < f->n_rounds && rv == LOCO_ENOENT; i++) {
        out->fetched = 0;
        rv = try_round(f, i, out, errmsg);
    }
    return rv;
}

static int read_rounds(struct fetching *f, char *errmsg)
{
    char dir[FILE_PATH_MAX];
    int rv = file_path_join(dir, f->dir, STATE_DIR_CHECKPOINTS, errmsg);

    f->n_rounds = rv == 0 ? checkpoint_rounds(dir, f->rounds, ROUNDS_MAX) : 0;
    return rv != 0 || f->n_rounds > 0
               ? rv
               : errmsg_fail(errmsg, LOCO_ENOENT,
                             "%.180s holds no checkpoint yet: the run has not "
                             "committed a round",
                             dir);
}

/* What a host holds of our rounds. */
static void learn(struct fetching *f, struct host *h)
{
    f->deadline_ms = dialogue_now_ms() + VISIT_MS;
    if (visit(f, h) && prove(f, h)) {
        for (size_t i = 0; i < f->n_rounds; i++) {
            h->names[i] = name_state(f, h, f->rounds[i], &h->state[i]);
        }
    }
    leave(f, h);
}

static int read_peers(struct fetching *f, char *errmsg)
{
    struct peers *peers = malloc(sizeof *peers);
    char path[FILE_PATH_MAX];
    struct file_map map;
    int rv = file_path_join(path, f->dir, STATE_DIR_PEERS, errmsg);

    if (peers == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    if (rv == 0) {
        rv = file_map_open(&map, path, errmsg);
    }
    if (rv == 0) {
        rv = peers_decode(map.data, map.size, peers);
        file_map_close(&map);
        if (rv != 0) {
            rv = errmsg_fail(errmsg, rv, "%.180s is damaged", path);
        }
    }
    for (uint32_t i = 0; rv == 0 && i < peers->n; i++) {
        struct host *h = &f->host[f->n_hosts++];

        h->id = peers->contact[i].id;
        memcpy(h->address.ip, peers->contact[i].ip, sizeof h->address.ip);
        h->address.port = peers->contact[i].port;
        learn(f, h);
    }
    free(peers);
    return rv;
}

static int open_run(struct fetching *f, char *errmsg)
{
    struct signer check = signer_sodium(NULL);
    char path[FILE_PATH_MAX];
    struct file_map map;
    int rv = file_path_join(path, f->dir, STATE_DIR_MANIFEST, errmsg);

    rv = rv != 0 ? rv : file_map_open(&map, path, errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = manifest_unpack(map.data, map.size, &check, f->manifest, NULL, &f->run,
                         errmsg);
    file_map_close(&map);
    if (rv == 0 &&
        (f->manifest->stages < 2 || f->manifest->stages > ROUTE_STAGES_MAX)) {
        rv = errmsg_fail(errmsg, LOCO_EINVAL,
                         "the run's model is not cut into stages: its "
                         "checkpoints are all of it");
    }
    if (rv == 0 && f->manifest->invited) {
        rv = errmsg_fail(errmsg, LOCO_EINVAL,
                         "the run is for invited peers, who tell a stranger "
                         "nothing: give --state of a host of each stage");
    }
    f->model = model_source_config(&f->manifest->model);
    return rv != 0
               ? rv
               : method_from_manifest(&f->method, &f->manifest->sync, errmsg);
}

int stage_fetch(struct stage_fetch *out,
                const char *state_dir,
                char errmsg[ERRMSG_SIZE])
{
    struct fetching *f = calloc(1, sizeof *f);
    int rv = LOCO_ENOMEM;

    memset(out, 0, sizeof *out);
    if (f == NULL) {
        return errmsg_fail(errmsg, rv, "out of memory");
    }
    f->dir = state_dir;
    f->manifest = malloc(sizeof *f->manifest);
    f->chain = malloc(CHAIN_BYTES_MAX);
    f->proof = malloc(CHAIN_BYTES_MAX);
    f->in = malloc(message_struct_max());
    if (f->manifest == NULL || f->chain == NULL || f->proof == NULL ||
        f->in == NULL || identity_generate(&f->self, NULL) != 0) {
        rv = errmsg_fail(errmsg, rv, "out of memory");
    } else {
        f->signer = signer_sodium(&f->self);
        rv = open_run(f, errmsg);
        rv = rv != 0 ? rv : read_rounds(f, errmsg);
        rv = rv != 0 ? rv : read_peers(f, errmsg);
        rv = rv != 0 ? rv : try_rounds(f, out, errmsg);
        out->stages = f->manifest->stages;
    }
    identity_wipe(&f->self);
    free(f->manifest);
    free(f->chain);
    free(f->proof);
    free(f->in);
    free(f);
    return rv;
}
