/* stage_fetch.c - all of it, see stage_fetch.h: which rounds, what the hosts
 * agree on. What one of them says is stage_fetch_visit.c's, the bytes are
 * stage_fetch_state.c's. */
#include "daemon/visit/stage_fetch.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/model/source.h"
#include "daemon/node/node.h"
#include "daemon/settings/run_model.h"
#include "daemon/settings/state_dir.h"
#include "daemon/visit/stage_fetch_internal.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "train/replica/checkpoint.h"

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
            same += stage_is_source(f, k, stage, at) &&
                    stage_is_source(f, i, stage, at) &&
                    hash32_eq(&f->host[k].state[at], &f->host[i].state[at]);
        }
        if (2 * same > all) {
            *s = f->host[i].state[at];
            return true;
        }
    }
    return false;
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
            rv = stage_get(f, k, at, &want[k], errmsg);
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

/* Nobody gave what they must have: because they do not speak with us? */
static int say_refused(const struct fetching *f, int rv, char *errmsg)
{
    return rv == LOCO_ENOENT && f->refusal != REFUSAL_NONE
               ? errmsg_fail(errmsg, LOCO_ERUN, "the hosts refuse: %s",
                             node_refusal_sentence(f->refusal))
               : rv;
}

static int read_rounds(struct fetching *f, char *errmsg)
{
    char dir[FILE_PATH_MAX];
    int rv = file_path_join(dir, f->dir, STATE_DIR_CHECKPOINTS, errmsg);

    f->n_rounds =
        rv == 0 ? checkpoint_rounds(dir, f->rounds, STAGE_ROUNDS_MAX) : 0;
    return rv != 0 || f->n_rounds > 0
               ? rv
               : errmsg_fail(errmsg, LOCO_ENOENT,
                             "%.180s holds no checkpoint yet: the run has not "
                             "committed a round",
                             dir);
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
    rv = rv == 0 ? file_map_open(&map, path, errmsg) : rv;
    if (rv == 0) {
        rv = peers_decode(map.data, map.size, peers);
        file_map_close(&map);
        if (rv != 0) {
            rv = errmsg_fail(errmsg, rv, "%.180s is damaged", path);
        }
    }
    for (uint32_t i = 0; rv == 0 && i < peers->n; i++) {
        struct fetch_host *h = &f->host[f->n_hosts++];

        h->id = peers->contact[i].id;
        memcpy(h->address.ip, peers->contact[i].ip, sizeof h->address.ip);
        h->address.port = peers->contact[i].port;
        stage_learn(f, h);
    }
    free(peers);
    return rv;
}

static int use_invite(struct fetching *f, char *errmsg)
{
    if (f->invite == NULL) {
        return errmsg_fail(errmsg, LOCO_ERUN,
                           "the run is for invited peers, and its members tell "
                           "strangers nothing: give --join and the address "
                           "with your invitation, or --invitation and the "
                           "run.invitation of the peer that started the run");
    }
    return invite_admission(f->invite, &f->run, &f->self.id, &f->admission) == 0
               ? 0
               : errmsg_invalid(errmsg, "the invitation cannot be used");
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
        rv = errmsg_invalid(errmsg, "the run's model is not cut into stages: "
                                    "each checkpoint has the whole model");
    }
    if (rv == 0 && f->manifest->invited) {
        rv = use_invite(f, errmsg);
    }
    f->model = run_model(&f->manifest->model);
    return rv != 0 ? rv
                   : method_from_manifest(&f->method, f->manifest,
                                          SCOPE_SETTINGS, errmsg);
}

int stage_fetch(struct stage_fetch *out,
                const char *state_dir,
                const struct invite *invite,
                char errmsg[ERRMSG_SIZE])
{
    struct fetching *f = calloc(1, sizeof *f);
    int rv = LOCO_ENOMEM;

    memset(out, 0, sizeof *out);
    if (f == NULL) {
        return errmsg_fail(errmsg, rv, "out of memory");
    }
    f->dir = state_dir;
    f->invite = invite;
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
        rv = rv != 0 ? rv : say_refused(f, try_rounds(f, out, errmsg), errmsg);
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
