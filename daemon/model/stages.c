/* stages.c - see model/stages.h. */
#include "daemon/model/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/settings/state_dir.h"
#include "p2p/pipeline/route.h"
#include "proto/base/err.h"
#include "proto/base/file.h"

void model_stages_close(struct model_stages *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        checkpoint_close(&s->stage[k].checkpoint);
    }
    free(s->stage);
    s->stage = NULL;
    s->n = 0;
}

static bool is_here(const struct model_stages *s, uint32_t k)
{
    return s->stage[k].checkpoint.state.phi != NULL;
}

/* Which stage a checkpoint is of; s->n: none of the model's. */
static uint32_t stage_of(const struct model_stages *s,
                         const struct checkpoint *c)
{
    const char *text = checkpoint_text(c, "stage");
    unsigned long k = text == NULL ? s->n : strtoul(text, NULL, 10);

    return k < s->n && c->state.n == (uint64_t)s->stage[k].part.numel
               ? (uint32_t)k
               : s->n;
}

/* The checkpoint of `round` in one directory, if it is there, whole, and of a
 * stage that is still missing. */
static void take(struct model_stages *s, const char *dir, uint64_t round)
{
    struct checkpoint c;
    uint32_t k = s->n;

    if (checkpoint_open_round(&c, dir, round, NULL) == 0) {
        k = stage_of(s, &c);
    }
    if (k < s->n && !is_here(s, k)) {
        s->stage[k].checkpoint = c;
    } else {
        checkpoint_close(&c);
    }
}

static bool is_whole(const struct model_stages *s)
{
    uint32_t k = 0;

    while (k < s->n && is_here(s, k)) {
        k++;
    }
    return k == s->n;
}

static void forget(struct model_stages *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        checkpoint_close(&s->stage[k].checkpoint);
        memset(&s->stage[k].checkpoint, 0, sizeof s->stage[k].checkpoint);
    }
}

/* The newest round before `before` that any of the directories has; 0. */
static uint64_t
round_before(uint64_t before, const char *const *dirs, size_t n_dirs)
{
    uint64_t newest = 0;

    for (size_t i = 0; i < n_dirs; i++) {
        uint64_t rounds[64];
        size_t n = checkpoint_rounds(dirs[i], rounds, 64);

        for (size_t j = 0; j < n; j++) {
            if (rounds[j] < before && rounds[j] > newest) {
                newest = rounds[j];
            }
        }
    }
    return newest;
}

static int
find(struct model_stages *s, const char *const *dirs, size_t n, char *errmsg)
{
    uint64_t round = UINT64_MAX, seen = 0;
    char missing[ERRMSG_SIZE] = "";

    while ((round = round_before(round, dirs, n)) > 0) {
        forget(s);
        for (size_t i = 0; i < n; i++) {
            take(s, dirs[i], round);
        }
        if (is_whole(s)) {
            return 0;
        }
        for (uint32_t k = 0; k < s->n; k++) {
            seen |= (uint64_t)is_here(s, k) << k;
        }
    }
    for (uint32_t k = 0; k < s->n; k++) {
        size_t at = strlen(missing);

        if ((seen >> k & 1) == 0) {
            (void)snprintf(missing + at, sizeof missing - at, "%s%u",
                           at == 0 ? "" : ", ", k + 1);
        }
    }
    return missing[0] != '\0'
               ? errmsg_fail(errmsg, LOCO_ENOENT,
                             "the model is cut into %u stages, and none of "
                             "these directories has a checkpoint of stage "
                             "%.80s: give --state of a host of each, or fetch "
                             "them: loco stages DIR",
                             s->n, missing)
               : errmsg_fail(errmsg, LOCO_ENOENT,
                             "no round has checkpoints of all %u stages in "
                             "these directories",
                             s->n);
}

/* Checkpoints that a state directory holds itself (0), or that were fetched of
 * stage k (from 1). */
static int place(char *path, const char *dir, uint32_t k, char *errmsg)
{
    char name[64];

    (void)snprintf(name, sizeof name, STATE_DIR_STAGES "/%u/%s", k,
                   STATE_DIR_CHECKPOINTS);
    return file_path_join(path, dir, k == 0 ? STATE_DIR_CHECKPOINTS : name,
                          errmsg);
}

int model_stages_open(struct model_stages *s,
                      const struct llama_config *config,
                      uint32_t stages,
                      const char *const *dirs,
                      size_t n_dirs,
                      char errmsg[ERRMSG_SIZE])
{
    /* Of each, what it holds itself, and what was fetched of each stage. */
    size_t each = 1 + (stages <= ROUTE_STAGES_MAX ? stages : 0);
    char(*paths)[FILE_PATH_MAX] = calloc(n_dirs * each, sizeof *paths);
    const char **names = calloc(n_dirs * each, sizeof *names);
    const char *reason = "";
    int rv = paths == NULL || names == NULL ? LOCO_ENOMEM : 0;

    *s = (struct model_stages){.n = stages,
                               .stage = calloc(stages, sizeof *s->stage)};
    if (s->stage == NULL) {
        s->n = 0;
        rv = LOCO_ENOMEM;
    }
    if (rv != 0) {
        rv = errmsg_fail(errmsg, rv, "out of memory");
    } else if (stages > ROUTE_STAGES_MAX) {
        rv = errmsg_invalid(errmsg,
                            "the model has %u stages; at most %u are possible",
                            stages, ROUTE_STAGES_MAX);
    }
    for (size_t i = 0; i < n_dirs * each && rv == 0; i++) {
        names[i] = paths[i];
        rv = place(paths[i], dirs[i / each], (uint32_t)(i % each), errmsg);
    }
    for (uint32_t k = 0; k < stages && rv == 0; k++) {
        rv = llama_part_of_stage(config, stages, k, &s->stage[k].part, &reason);
        if (rv != 0) {
            rv = errmsg_fail(errmsg, rv, "model: %.120s", reason);
        }
    }
    rv = rv == 0 ? find(s, names, n_dirs * each, errmsg) : rv;
    free(names);
    free(paths);
    return rv;
}

const float *model_stages_at(const struct model_stages *s, int64_t offset)
{
    uint32_t k = 0;

    while (k + 1 < s->n && offset >= s->stage[k + 1].part.offset) {
        k++;
    }
    return s->stage[k].checkpoint.state.phi +
           (offset - s->stage[k].part.offset);
}
