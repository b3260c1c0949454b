/* text.c - tokens for the trainer: the tokenizer, held-out text, and
 * train shards, which may come while it trains (p2p/round/text.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/machine/internal.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/log.h"
#include "train/data/loader.h"
#include "train/data/tokenizer.h"

#define BYTES 256 /* ids of the byte tokenizer */

/* With one order of all, training begins before all of the text is here. */
void machine_read_text(struct machine *m)
{
    const struct manifest_data *data = &m->manifest->data;
    struct run_terms *t = &m->terms;

    t->window_batch = t->lease_quota > 0 ? m->replica.batch : 0;
    t->position_tokens = (uint64_t)m->replica.batch * m->replica.seq;
    t->step_tokens_most = terms_staged(t) ? 0
                          : m->replica.method.trainers > 0
                              ? (uint64_t)BATCH_CAP *
                                    m->replica.method.batch_most *
                                    m->replica.seq
                              : t->position_tokens;
    for (uint32_t i = 0; i < data->n_shards; i++) {
        const struct manifest_shard *s = &data->shards[i];

        t->shards[i].windows = s->val || !manifest_is_text(data, i)
                                   ? 0
                                   : loader_windows(s->tokens, m->replica.seq);
    }
}

/* How many bytes each id stands for: the held-out text is scored per byte. */
static int
read_tokenizer(struct machine *m, const struct file_map *map, char *errmsg)
{
    uint32_t vocab;
    char problem[ERRMSG_SIZE];
    struct tokenizer *t;
    int rv = tokenizer_open_memory(&t, map->data, map->size, problem);

    if (rv != 0) {
        return errmsg_fail(errmsg, rv, "the run's tokenizer: %.200s", problem);
    }
    /* Of a list of tensors nobody knows what ids its model takes. */
    vocab = manifest_has_tensors(m->manifest) ? tokenizer_vocab(t)
                                              : m->replica.model.vocab;
    if (tokenizer_vocab(t) > vocab) {
        rv = errmsg_invalid(
            errmsg, "the run's tokenizer has %u ids, its model knows %u",
            tokenizer_vocab(t), vocab);
    }
    m->replica.vocab = vocab;
    free(m->token_bytes);
    m->token_bytes = rv == 0 ? calloc(vocab, sizeof *m->token_bytes) : NULL;
    if (rv == 0 && m->token_bytes == NULL) {
        rv = errmsg_fail(errmsg, LOCO_ENOMEM, "out of memory");
    }
    for (uint32_t id = 0; rv == 0 && id < tokenizer_vocab(t); id++) {
        size_t len = 0;

        (void)tokenizer_text(t, id, &len);
        m->token_bytes[id] = (uint32_t)len;
    }
    tokenizer_close(t);
    m->replica.token_bytes = m->token_bytes;
    return rv;
}

/* Whether a file of tokens was made for this run's model and tokenizer, and is
 * as long as everybody counts with. */
static int check_tokens(const struct machine *m, uint32_t i, char *errmsg)
{
    const struct manifest_data *data = &m->manifest->data;
    const struct shard_info *info = &m->files[i].shard.info;
    char hex[ID_HEX_MAX], name[SHARD_TOKENIZER_SIZE];

    if (info->vocab > m->replica.vocab) {
        return errmsg_invalid(errmsg,
                              "shard %s has %u token ids, the run's %s knows "
                              "%u",
                              data->shards[i].name, info->vocab,
                              manifest_has_tensors(m->manifest) ? "tokenizer"
                                                                : "model",
                              m->replica.vocab);
    }
    if (info->tokens != data->shards[i].tokens) {
        return errmsg_invalid(
            errmsg, "shard %s has %llu tokens, the manifest says %llu",
            data->shards[i].name, (unsigned long long)info->tokens,
            (unsigned long long)data->shards[i].tokens);
    }
    hash32_hex(&data->tokenizer_blake2b, hex);
    (void)snprintf(name, sizeof name, "blake2b:%.32s", hex);
    if (strcmp(data->tokenizer, "byte") != 0 &&
        strcmp(info->tokenizer, name) != 0) {
        return errmsg_invalid(
            errmsg,
            "shard %s was tokenized by %s, the run's tokenizer "
            "is %s",
            data->shards[i].name, info->tokenizer, name);
    }
    return 0;
}

/* A train shard that is still to come. */
static bool comes_later(const struct machine *m, uint32_t i)
{
    return !m->files[i].held && m->terms.window_batch > 0 &&
           m->terms.shards[i].windows > 0;
}

/* How many ids the text may have: what is not text is read first. */
static int open_vocabulary(struct machine *m, char *errmsg)
{
    const struct manifest_data *data = &m->manifest->data;
    int rv = 0;

    m->replica.vocab =
        manifest_has_tensors(m->manifest) ? BYTES : m->replica.model.vocab;
    for (uint32_t i = 0; rv == 0 && i < data->n_shards; i++) {
        if (manifest_is_tokenizer(data, i) && m->files[i].held) {
            rv = read_tokenizer(m, &m->files[i].shard.map, errmsg);
        }
    }
    return rv;
}

/* What is needed is here: hand it to the trainer's options. */
int machine_open_data(struct machine *m, char *errmsg)
{
    const struct manifest *f = m->manifest;
    size_t n = 0;
    int rv = open_vocabulary(m, errmsg);

    m->replica.val = NULL;
    for (uint32_t i = 0; rv == 0 && i < f->data.n_shards; i++) {
        if (comes_later(m, i)) {
            m->train[n] =
                (struct shard){.info.tokens = f->data.shards[i].tokens};
            m->files[i].slot = n++;
            continue;
        }
        if (!m->files[i].held && m->terms.shards[i].begins) {
            continue; /* machine_open_init() */
        }
        if (!m->files[i].held) {
            return errmsg_fail(errmsg, LOCO_ENOENT, "shard %s is missing",
                               m->files[i].path);
        }
        if (!manifest_is_text(&f->data, i)) {
            continue;
        }
        rv = check_tokens(m, i, errmsg);
        if (f->data.shards[i].val) {
            m->replica.val = &m->files[i].shard;
        } else {
            m->files[i].slot = n;
            m->train[n++] = m->files[i].shard;
        }
    }
    m->replica.train = m->train;
    m->replica.n_train = n;
    return rv == 0 ? machine_open_model(m, errmsg) : rv;
}

void machine_add_text(struct machine *m, uint32_t i)
{
    char errmsg[ERRMSG_SIZE];

    if (m->trainer == NULL || m->terms.shards[i].windows == 0) {
        return;
    }
    if (check_tokens(m, i, errmsg) != 0) {
        log_error("data", "%s", errmsg);
        machine_stop(m, LOCO_EXIT_CONFIG);
        return;
    }
    trainer_add_text(m->trainer, m->files[i].slot, &m->files[i].shard);
}
