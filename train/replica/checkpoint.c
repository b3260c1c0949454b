/* checkpoint.c - see checkpoint.h. */
#include "train/replica/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/hash64.h"

#define VERSION       "1"
#define KEY_CHECKSUM  "checksum"
#define PHI           "phi"
#define PREFIX        "round-"
#define SUFFIX        ".safetensors"
#define U64_TEXT_SIZE 21
#define N_TENSORS_MAX (1 + CHECKPOINT_MORE_MAX)
#define NAME_MAX_LEN  31

/* Hash a string with its NUL. */
static uint64_t hash_text(const char *text, uint64_t seed)
{
    return hash64(text, strlen(text) + 1, seed);
}

static bool is_hashed(const char *key)
{
    return strcmp(key, KEY_CHECKSUM) != 0 && strcmp(key, "format") != 0;
}

/* ----------------------------------------------------------------- saving */

static int compare_names(const void *a, const void *b)
{
    const struct st_tensor *x = a;
    const struct st_tensor *y = b;

    return strcmp(x->name, y->name);
}

static struct st_tensor
tensor(const struct checkpoint_state *s, const char *name, const float *data)
{
    return (struct st_tensor){.name = name,
                              .dtype = ST_F32,
                              .n_dims = 1,
                              .shape = {s->n},
                              .data = data,
                              .bytes = s->n * 4};
}

/* In file order: one dtype, so by name. */
static size_t fill_tensors(const struct checkpoint_state *state,
                           struct st_tensor out[N_TENSORS_MAX])
{
    size_t n = 0;

    out[n++] = tensor(state, PHI, state->phi);
    for (size_t i = 0; i < state->n_more; i++) {
        out[n++] = tensor(state, state->more[i].name, state->more[i].data);
    }
    qsort(out, n, sizeof *out, compare_names);
    return n;
}

static uint64_t hash_tensors(const struct st_tensor *t, size_t n, uint64_t h)
{
    for (size_t i = 0; i < n; i++) {
        h = hash_text(t[i].name, h);
        h = hash64(t[i].data, (size_t)t[i].bytes, h);
    }
    return h;
}

static void checkpoint_name(char out[64], uint64_t round)
{
    (void)snprintf(out, 64, PREFIX "%08" PRIu64 SUFFIX, round);
}

static int write_state(const char *path,
                       const struct checkpoint_state *state,
                       const struct st_meta *extra,
                       size_t n_extra,
                       char *errmsg)
{
    struct st_tensor tensors[N_TENSORS_MAX];
    struct st_meta meta[CHECKPOINT_META_MAX];
    char numbers[4][U64_TEXT_SIZE];
    char checksum[17];
    size_t n_tensors = fill_tensors(state, tensors);
    size_t n = 0;
    uint64_t h = 0;

    (void)snprintf(numbers[0], U64_TEXT_SIZE, "%" PRIu64, state->round);
    (void)snprintf(numbers[1], U64_TEXT_SIZE, "%" PRIu64, state->inner_step);
    (void)snprintf(numbers[2], U64_TEXT_SIZE, "%" PRIu64, state->tokens);
    (void)snprintf(numbers[3], U64_TEXT_SIZE, "%" PRIu64, state->moment_steps);
    meta[n++] = (struct st_meta){"loco", VERSION};
    meta[n++] = (struct st_meta){"round", numbers[0]};
    meta[n++] = (struct st_meta){"inner_step", numbers[1]};
    meta[n++] = (struct st_meta){"tokens", numbers[2]};
    meta[n++] = (struct st_meta){"moment_steps", numbers[3]};
    meta[n++] = (struct st_meta){"run_id", state->run_id};
    if (n_extra > CHECKPOINT_META_MAX - n - 2) { /* + format, checksum */
        return errmsg_invalid(errmsg, "too much metadata");
    }
    for (size_t i = 0; i < n_extra; i++) {
        if (!is_hashed(extra[i].key)) {
            return errmsg_invalid(errmsg, "metadata \"%s\" is ours",
                                  extra[i].key);
        }
        meta[n++] = extra[i];
    }
    for (size_t i = 0; i < n; i++) {
        h = hash_text(meta[i].key, h);
        h = hash_text(meta[i].value, h);
    }
    h = hash_tensors(tensors, n_tensors, h);
    (void)snprintf(checksum, sizeof checksum, "%016" PRIx64, h);
    meta[n++] = (struct st_meta){KEY_CHECKSUM, checksum};
    return safetensors_write(path, tensors, n_tensors, meta, n, errmsg);
}

static bool parse_u64(const char *text, uint64_t *out)
{
    uint64_t value = 0;

    if (text == NULL || *text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' ||
            __builtin_mul_overflow(value, 10U, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) {
            return false;
        }
    }
    *out = value;
    return true;
}

/* A directory entry's round; false when it is no checkpoint of ours. */
static bool parse_name(const char *name, uint64_t *round)
{
    char digits[U64_TEXT_SIZE];
    char again[64];
    size_t len = strlen(name);
    size_t frame = strlen(PREFIX) + strlen(SUFFIX);

    if (len <= frame || len - frame >= sizeof digits ||
        strncmp(name, PREFIX, strlen(PREFIX)) != 0) {
        return false;
    }
    memcpy(digits, name + strlen(PREFIX), len - frame);
    digits[len - frame] = '\0';
    if (!parse_u64(digits, round)) {
        return false;
    }
    checkpoint_name(again, *round);
    return strcmp(again, name) == 0;
}

static int compare_newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return x > y ? -1 : x < y;
}

/* Rounds in `dir`, newest first; caller frees *out. */
static int
list_rounds(const char *dir, uint64_t **out, size_t *n_out, char *errmsg)
{
    DIR *d = opendir(dir);
    uint64_t *rounds = NULL;
    size_t n = 0;
    size_t room = 0;
    struct dirent *entry;

    *out = NULL;
    *n_out = 0;
    if (d == NULL) {
        return errmsg_fail(errmsg, errno == ENOENT ? LOCO_ENOENT : LOCO_EIO,
                           "read directory %s: cannot open it", dir);
    }
    while ((entry = readdir(d)) != NULL) {
        uint64_t round;

        if (!parse_name(entry->d_name, &round)) {
            continue;
        }
        if (n == room) {
            uint64_t *grown;

            room = room == 0 ? 16 : 2 * room;
            grown = realloc(rounds, room * sizeof *rounds);
            if (grown == NULL) {
                free(rounds);
                (void)closedir(d);
                return errmsg_fail(errmsg, LOCO_ENOMEM, "no memory");
            }
            rounds = grown;
        }
        rounds[n++] = round;
    }
    (void)closedir(d);
    if (n > 0) {
        qsort(rounds, n, sizeof *rounds, compare_newest_first);
    }
    *out = rounds;
    *n_out = n;
    return 0;
}

/* Best effort: a file too many does no harm. */
static void prune(const char *dir, uint64_t round, unsigned keep)
{
    uint64_t *rounds;
    size_t n;
    size_t kept = 0;

    if (list_rounds(dir, &rounds, &n, NULL) != 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        char name[64];
        char path[FILE_PATH_MAX];

        if (rounds[i] <= round && kept < keep) {
            kept++;
            continue;
        }
        checkpoint_name(name, rounds[i]);
        if (file_path_join(path, dir, name, NULL) == 0) {
            (void)unlink(path);
        }
    }
    free(rounds);
}

/* Letters, digits and '_'. */
static bool is_name(const char *name)
{
    size_t len = strlen(name);

    return len > 0 && len <= NAME_MAX_LEN &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == len;
}

static bool more_is_fine(const struct checkpoint_state *s)
{
    if (s->n_more > CHECKPOINT_MORE_MAX) {
        return false;
    }
    for (size_t i = 0; i < s->n_more; i++) {
        if (!is_name(s->more[i].name) || strcmp(s->more[i].name, PHI) == 0 ||
            s->more[i].data == NULL) {
            return false;
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(s->more[i].name, s->more[k].name) == 0) {
                return false;
            }
        }
    }
    return true;
}

int checkpoint_save(const char *dir,
                    const struct checkpoint_state *state,
                    const struct st_meta *extra,
                    size_t n_extra,
                    unsigned keep,
                    char *errmsg)
{
    char name[64];
    char path[FILE_PATH_MAX];
    int rv;

    if (state->phi == NULL || state->run_id == NULL || keep == 0) {
        return errmsg_invalid(errmsg, "a checkpoint needs phi and a run id");
    }
    if (!more_is_fine(state)) {
        return errmsg_invalid(
            errmsg,
            "too many vectors, or a vector's name is invalid or reserved");
    }
    checkpoint_name(name, state->round);
    rv = file_path_join(path, dir, name, errmsg);
    rv = rv == 0 ? write_state(path, state, extra, n_extra, errmsg) : rv;
    if (rv == 0) {
        prune(dir, state->round, keep);
    }
    return rv;
}

/* ---------------------------------------------------------------- loading */

static int fail_format(char *errmsg, const char *problem)
{
    return errmsg_fail(errmsg, LOCO_EFORMAT, "checkpoint: %s", problem);
}

static int read_metadata(struct checkpoint *c, char *errmsg)
{
    const struct safetensors *f = &c->file;
    const char *version = safetensors_meta(f, "loco");
    const char *moments = safetensors_meta(f, "moment_steps");

    if (version == NULL || strcmp(version, VERSION) != 0) {
        return fail_format(errmsg, "not a checkpoint, or of another version");
    }
    c->state.run_id = safetensors_meta(f, "run_id");
    if (c->state.run_id == NULL ||
        !parse_u64(safetensors_meta(f, "round"), &c->state.round) ||
        !parse_u64(safetensors_meta(f, "inner_step"), &c->state.inner_step) ||
        !parse_u64(safetensors_meta(f, "tokens"), &c->state.tokens)) {
        return fail_format(errmsg, "round, inner_step, tokens or run_id is "
                                   "missing or malformed");
    }
    c->state.moment_steps = c->state.inner_step;
    if (moments != NULL && !parse_u64(moments, &c->state.moment_steps)) {
        return fail_format(errmsg, "moment_steps is malformed");
    }
    return 0;
}

static int read_vectors(struct checkpoint *c, char *errmsg)
{
    if (c->file.n_tensors > N_TENSORS_MAX) {
        return fail_format(errmsg, "too many vectors");
    }
    for (size_t i = 0; i < c->file.n_tensors; i++) {
        const struct st_tensor *t = &c->file.tensors[i];

        if (!is_name(t->name)) {
            return fail_format(errmsg, "a vector has an invalid name");
        }
        if (t->dtype != ST_F32 || t->n_dims != 1 ||
            (uintptr_t)t->data % sizeof(float) != 0) {
            return fail_format(errmsg, "a vector is not flat, aligned F32");
        }
        if (i > 0 && t->shape[0] != c->state.n) {
            return fail_format(errmsg, "the vectors differ in length");
        }
        c->state.n = t->shape[0];
    }
    c->state.phi = checkpoint_vector(c, PHI);
    /* Empty vectors share one offset: their order would not be defined. */
    if (c->state.phi == NULL || c->state.n == 0) {
        return fail_format(errmsg, "phi is missing or empty");
    }
    return 0;
}

static int check_sum(const struct checkpoint *c, char *errmsg)
{
    const char *stored = safetensors_meta(&c->file, KEY_CHECKSUM);
    char computed[17];
    struct st_meta pair;
    uint64_t h = 0;

    for (size_t i = 0; safetensors_meta_at(&c->file, i, &pair); i++) {
        if (i >= CHECKPOINT_META_MAX) {
            return fail_format(errmsg, "too much metadata");
        }
        if (is_hashed(pair.key)) {
            h = hash_text(pair.key, h);
            h = hash_text(pair.value, h);
        }
    }
    h = hash_tensors(c->file.tensors, c->file.n_tensors, h);
    (void)snprintf(computed, sizeof computed, "%016" PRIx64, h);
    if (stored == NULL || strcmp(stored, computed) != 0) {
        return errmsg_fail(errmsg, LOCO_EHASH,
                           "checkpoint: the checksum does not match: the file "
                           "is damaged");
    }
    return 0;
}

/* c->file is open. */
static int read_state(struct checkpoint *c, char *errmsg)
{
    int rv = read_metadata(c, errmsg);

    rv = rv == 0 ? read_vectors(c, errmsg) : rv;
    rv = rv == 0 ? check_sum(c, errmsg) : rv;
    if (rv != 0) {
        checkpoint_close(c);
    }
    return rv;
}

int checkpoint_open_memory(struct checkpoint *c,
                           const uint8_t *file,
                           size_t size,
                           char *errmsg)
{
    int rv;

    memset(c, 0, sizeof *c);
    rv = safetensors_open_memory(&c->file, file, size, errmsg);
    return rv == 0 ? read_state(c, errmsg) : rv;
}

int checkpoint_open(struct checkpoint *c, const char *path, char *errmsg)
{
    char problem[ERRMSG_SIZE];
    int rv;

    memset(c, 0, sizeof *c);
    rv = safetensors_open(&c->file, path, errmsg);
    if (rv != 0) {
        return rv;
    }
    rv = read_state(c, problem);
    return rv == 0 ? 0 : errmsg_fail(errmsg, rv, "%s: %s", path, problem);
}

int checkpoint_open_round(struct checkpoint *c,
                          const char *dir,
                          uint64_t round,
                          char *errmsg)
{
    char name[64];
    char path[FILE_PATH_MAX];
    int rv;

    memset(c, 0, sizeof *c);
    checkpoint_name(name, round);
    rv = file_path_join(path, dir, name, errmsg);
    return rv == 0 ? checkpoint_open(c, path, errmsg) : rv;
}

size_t checkpoint_rounds(const char *dir, uint64_t *rounds, size_t max)
{
    uint64_t *all;
    size_t n;

    if (list_rounds(dir, &all, &n, NULL) != 0) {
        return 0;
    }
    n = n < max ? n : max;
    if (n > 0) {
        memcpy(rounds, all, n * sizeof *rounds);
    }
    free(all);
    return n;
}

int checkpoint_open_newest(struct checkpoint *c, const char *dir, char *errmsg)
{
    uint64_t *rounds;
    size_t n;
    unsigned n_damaged = 0;
    int rv = list_rounds(dir, &rounds, &n, errmsg);

    memset(c, 0, sizeof *c);
    if (rv != 0) {
        return rv;
    }
    rv = LOCO_ENOENT;
    for (size_t i = 0; i < n; i++) {
        char name[64];
        char path[FILE_PATH_MAX];

        checkpoint_name(name, rounds[i]);
        rv = file_path_join(path, dir, name, errmsg);
        rv = rv == 0 ? checkpoint_open(c, path, errmsg) : rv;
        if (rv != LOCO_EFORMAT && rv != LOCO_EHASH) {
            break;
        }
        n_damaged++;
        rv = LOCO_ENOENT;
    }
    free(rounds);
    c->n_damaged = n_damaged;
    if (rv == LOCO_ENOENT && n_damaged == 0) {
        return errmsg_fail(errmsg, rv, "no checkpoint in %s", dir);
    }
    return rv;
}

const float *checkpoint_vector(const struct checkpoint *c, const char *name)
{
    const struct st_tensor *t = safetensors_find(&c->file, name);

    return t == NULL ? NULL : t->data;
}

const char *checkpoint_text(const struct checkpoint *c, const char *key)
{
    return safetensors_meta(&c->file, key);
}

void checkpoint_close(struct checkpoint *c)
{
    safetensors_close(&c->file);
    memset(&c->state, 0, sizeof c->state);
}
