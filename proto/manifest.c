/* manifest.c - see manifest.h. Checks, then bytes. */
#include "proto/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/hash.h"
#include "proto/mp.h"

#define DOMAIN_RUN  "loco-run-1"
#define DOMAIN_SIGN "loco-manifest-1"

/* Printable ASCII: it stands in requests, logs and on terminals. */
static bool url_safe(const char *url)
{
    for (; *url != '\0'; url++) {
        if (*url <= ' ' || *url > '~') {
            return false;
        }
    }
    return true;
}

/* Names become file names on every member: nothing that leaves a folder. They
 * are shown on terminals: nothing that controls one. */
static bool name_safe(const char *name)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789._-";

    return name[0] != '\0' && name[0] != '.' && name[0] != '-' &&
           name[strspn(name, allowed)] == '\0';
}

/* Shown on terminals and pages of every member: no control characters, neither
 * those of ASCII nor U+0080 to U+009F. It is UTF-8 already. */
static bool text_shows(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;

    for (; *c != '\0'; c++) {
        if (*c < 0x20 || *c == 0x7f || (*c == 0xc2 && c[1] < 0xa0)) {
            return false;
        }
    }
    return true;
}

bool manifest_refuses(enum conflict_id id, const struct manifest *f)
{
    switch (id) {
#define REFUSE_FORMAT(name, settings, condition, reason, nearest)              \
    case CONFLICT_##name:                                                      \
        return condition;
#include "proto/base/rules.def"
    default:
        return false;
    }
}

bool manifest_value(const void *self, const char *path, char *out, size_t cap)
{
    char text[DOC_TEXT_MAX];

    if (doc_get(manifest_schema(), self, path, text, NULL) != 0 ||
        strlen(text) >= cap) {
        return false;
    }
    memcpy(out, text, strlen(text) + 1);
    return true;
}

int manifest_refuse(enum conflict_id id, const struct manifest *m, char *errmsg)
{
    if (errmsg != NULL) {
        conflict_say(id, manifest_value, m, errmsg, LOCO_ERRMSG_MAX);
    }
    return LOCO_EINVAL;
}

static int check_rules(const struct manifest *m, char *errmsg)
{
    for (unsigned id = 0; id < CONFLICT_COUNT; id++) {
        if (manifest_refuses((enum conflict_id)id, m)) {
            return manifest_refuse((enum conflict_id)id, m, errmsg);
        }
    }
    return 0;
}

/* What members call a shard that is not whole yet. */
static bool is_partial(const char *name)
{
    static const char *const ends[] = {".part", ".url", ".tmp"};
    size_t n = strlen(name);

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        size_t len = strlen(ends[i]);

        if (n >= len && strcmp(name + n - len, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool manifest_is_tokenizer(const struct manifest_data *data, uint32_t i)
{
    return strcmp(data->tokenizer, "byte") != 0 &&
           strcmp(data->shards[i].name, data->tokenizer) == 0;
}

bool manifest_is_text(const struct manifest_data *data, uint32_t i)
{
    return data->shards[i].tokens > 0;
}

bool manifest_has_tensors(const struct manifest *m)
{
    return m->model.params > 0;
}

uint32_t manifest_shard_named(const struct manifest_data *data,
                              const char *name)
{
    uint32_t i = 0;

    while (i < data->n_shards && strcmp(data->shards[i].name, name) != 0) {
        i++;
    }
    return i;
}

static int check_shard(const struct manifest *m, uint32_t i, char *errmsg)
{
    const struct manifest_data *data = &m->data;
    const struct manifest_shard *s = &data->shards[i];
    bool text = !manifest_is_tokenizer(data, i) &&
                strcmp(s->name, m->model.layout) != 0 &&
                strcmp(s->name, m->model.init) != 0;

    if (!name_safe(s->name) || is_partial(s->name)) {
        return errmsg_invalid(
            errmsg,
            "data.shards[%u].name: must be letters, digits and "
            "'._-', not starting with '.' or '-', not ending with "
            "'.part', '.url' or '.tmp'",
            i);
    }
    if (text != (s->tokens > 0) || (!text && s->val)) {
        return errmsg_invalid(
            errmsg,
            "data.shards[%u].tokens: must be 0 for the tokenizer and "
            "for files of the model, which are not held out, and for "
            "nothing else",
            i);
    }
    for (uint32_t j = 0; j < i; j++) {
        if (strcmp(data->shards[j].name, s->name) == 0) {
            return errmsg_invalid(errmsg,
                                  "data.shards[%u].name: '%s' is also shard %u",
                                  i, s->name, j);
        }
    }
    for (uint32_t j = 0; j < s->n_urls; j++) {
        if ((strncmp(s->urls[j], "https://", 8) != 0 &&
             strncmp(s->urls[j], "http://", 7) != 0) ||
            !url_safe(s->urls[j])) {
            return errmsg_invalid(errmsg,
                                  "data.shards[%u].urls[%u]: must begin with "
                                  "https:// or http://, and have no spaces",
                                  i, j);
        }
    }
    return 0;
}

/* A file of the model that `key` names. */
static int check_file(const struct manifest *m,
                      const char *key,
                      const char *name,
                      char *errmsg)
{
    if (!name_safe(name)) { /* not shown: it may control a terminal */
        return errmsg_invalid(errmsg, "%s: must be the name of a file", key);
    }
    if (manifest_shard_named(&m->data, name) == m->data.n_shards) {
        return errmsg_invalid(errmsg, "%s: '%s' must be one of data.shards",
                              key, name);
    }
    return strcmp(name, m->data.tokenizer) != 0
               ? 0
               : errmsg_invalid(errmsg, "%s: '%s' is the tokenizer", key, name);
}

/* Of a list of tensors: the layout is read whole, and the parameters are fp32
 * behind a header of that size at most. */
static int check_tensor_files(const struct manifest *m, char *errmsg)
{
    const struct manifest_data *data = &m->data;
    uint64_t layout =
        data->shards[manifest_shard_named(data, m->model.layout)].bytes;
    uint64_t init =
        data->shards[manifest_shard_named(data, m->model.init)].bytes;
    uint64_t theta = m->model.params * sizeof(float);

    if (strcmp(m->model.layout, m->model.init) == 0) {
        return errmsg_invalid(
            errmsg, "model.layout: must be another file than model.init");
    }
    if (layout > MANIFEST_LAYOUT_MAX) {
        return errmsg_invalid(
            errmsg, "model.layout: has %llu bytes, at most %u are read",
            (unsigned long long)layout, MANIFEST_LAYOUT_MAX);
    }
    return init > theta && init - theta <= MANIFEST_LAYOUT_MAX + 8
               ? 0
               : errmsg_invalid(errmsg,
                                "model.init: has %llu bytes, which is not a "
                                "file of model.params=%llu fp32 numbers",
                                (unsigned long long)init,
                                (unsigned long long)m->model.params);
}

/* Which files a model needs, and has. */
static int check_model(const struct manifest *m, char *errmsg)
{
    const struct manifest_model *f = &m->model;
    bool tensors = manifest_has_tensors(m);
    int rv = 0;

    if (tensors && (f->layout[0] == '\0' || f->init[0] == '\0')) {
        return errmsg_invalid(errmsg,
                              "model.%s: must name a file, as model.params "
                              "says that the model is a list of tensors",
                              f->layout[0] == '\0' ? "layout" : "init");
    }
    if (!tensors && f->layout[0] != '\0') {
        return errmsg_invalid(errmsg, "model.layout: is for a model that is a "
                                      "list of tensors: set model.params");
    }
    if (f->init[0] != '\0') {
        rv = check_file(m, "model.init", f->init, errmsg);
    }
    if (rv == 0 && tensors) {
        rv = check_file(m, "model.layout", f->layout, errmsg);
    }
    return rv == 0 && tensors ? check_tensor_files(m, errmsg) : rv;
}

static int check_data(const struct manifest *m, char *errmsg)
{
    const struct manifest_data *data = &m->data;
    bool byte = strcmp(data->tokenizer, "byte") == 0;
    const struct manifest_shard *tokenizer = NULL;
    uint32_t n_train = 0, n_text = 0;
    uint64_t bytes = 0, tokens = 0;

    for (uint32_t i = 0; i < data->n_shards; i++) {
        int rv = check_shard(m, i, errmsg);

        if (rv != 0) {
            return rv;
        }
        /* Else the sum could wrap, and what people agree to would be small. */
        bytes += data->shards[i].bytes;
        tokens += data->shards[i].tokens;
        if (bytes > MANIFEST_SUM_MAX || tokens > MANIFEST_SUM_MAX) {
            return errmsg_invalid(errmsg,
                                  "data.shards: have more than 10^18 bytes or "
                                  "tokens together");
        }
        if (manifest_is_tokenizer(data, i)) {
            tokenizer = &data->shards[i];
        } else if (manifest_is_text(data, i)) {
            n_text++;
            n_train += !data->shards[i].val;
        }
    }
    /* A loop of its own may have a text of its own. */
    if (n_train == 0 && !manifest_has_tensors(m)) {
        return errmsg_invalid(errmsg,
                              "data.shards: there is nothing to train on");
    }
    if (n_text > 0 && m->inner.seq < 2) {
        return errmsg_invalid(errmsg, "inner.seq: must be at least 2 where "
                                      "there is text: each token has a next "
                                      "one");
    }
    if (!name_safe(data->tokenizer)) {
        return errmsg_invalid(
            errmsg, "data.tokenizer: must be 'byte' or a plain file name");
    }
    if (byte != hash32_is_zero(&data->tokenizer_blake2b)) {
        return errmsg_invalid(
            errmsg, "data.tokenizer_blake2b: must be zeros for the byte "
                    "tokenizer and the file's hash for any other");
    }
    if (!byte && (tokenizer == NULL ||
                  !hash32_eq(&tokenizer->blake2b, &data->tokenizer_blake2b))) {
        return errmsg_invalid(
            errmsg,
            "data.tokenizer: '%s' must be one of data.shards, with "
            "the hash data.tokenizer_blake2b",
            data->tokenizer);
    }
    return 0;
}

int manifest_validate(const struct manifest *m, char *errmsg)
{
    int rv = doc_check(manifest_schema(), m, errmsg);

    if (rv == 0 && m->name[0] == '\0') {
        rv = errmsg_invalid(errmsg, "name: is empty");
    }
    if (rv == 0 && !text_shows(m->name)) {
        rv = errmsg_invalid(errmsg, "name: holds control characters");
    }
    if (rv == 0 && !text_shows(m->data.licence)) {
        rv = errmsg_invalid(errmsg, "data.licence: holds control characters");
    }
    if (rv == 0 && !name_safe(m->sync.preset)) {
        rv = errmsg_invalid(errmsg,
                            "sync.preset: must be letters, digits and '._-', "
                            "not starting with '.' or '-'");
    }
    if (rv == 0 && !(m->inner.lr > 0)) {
        rv = errmsg_invalid(errmsg, "inner.lr: must be above 0");
    }
    if (rv == 0) {
        rv = manifest_has_tensors(m) ? manifest_check_tensors(m, errmsg)
                                     : manifest_check_llama(m, errmsg);
    }
    rv = rv == 0 ? check_rules(m, errmsg) : rv;
    rv = rv == 0 ? check_data(m, errmsg) : rv;
    rv = rv == 0 ? check_model(m, errmsg) : rv;
    return rv;
}

int manifest_encode(const struct manifest *m, uint8_t *out, size_t cap)
{
    return doc_encode(manifest_schema(), m, out, cap);
}

int manifest_decode(const uint8_t *in, size_t len, struct manifest *m)
{
    if (len > MANIFEST_BYTES_MAX) {
        memset(m, 0, sizeof *m);
        return LOCO_EPROTO;
    }
    return doc_decode(manifest_schema(), in, len, m);
}

void manifest_hash(const uint8_t *bytes, size_t len, struct hash32 *run)
{
    hash_bytes(DOMAIN_RUN, bytes, len, run);
}

/* Canonical bytes in memory of their own: the caller frees *bytes. */
static int encode_alloc(const struct manifest *m, uint8_t **bytes)
{
    int n;

    *bytes = malloc(MANIFEST_BYTES_MAX);
    if (*bytes == NULL) {
        return LOCO_ENOMEM;
    }
    n = manifest_encode(m, *bytes, MANIFEST_BYTES_MAX);
    if (n < 0) {
        free(*bytes);
        *bytes = NULL;
    }
    return n;
}

int manifest_run_id(const struct manifest *m, struct hash32 *run)
{
    uint8_t *bytes;
    int n = encode_alloc(m, &bytes);

    if (n < 0) {
        return n;
    }
    manifest_hash(bytes, (size_t)n, run);
    free(bytes);
    return 0;
}

int manifest_sign(struct manifest *m,
                  const struct signer *signer,
                  uint8_t sig[SIGN_BYTES])
{
    uint8_t *bytes;
    int n;

    if (signer->public == NULL) {
        return LOCO_EINVAL;
    }
    memcpy(m->author, signer->public, sizeof m->author);
    n = encode_alloc(m, &bytes);
    if (n < 0) {
        return n;
    }
    n = signer->sign(signer->self, DOMAIN_SIGN, bytes, (size_t)n, sig);
    free(bytes);
    return n;
}

int manifest_verify(const struct manifest *m,
                    const struct signer *signer,
                    const uint8_t sig[SIGN_BYTES])
{
    uint8_t *bytes;
    bool good;
    int n = encode_alloc(m, &bytes);

    if (n < 0) {
        return n;
    }
    good = signer->verify(signer->self, m->author, DOMAIN_SIGN, bytes,
                          (size_t)n, sig);
    free(bytes);
    return good ? 0 : LOCO_ESIG;
}

int manifest_pack(const struct manifest *m,
                  const uint8_t sig[SIGN_BYTES],
                  uint8_t *out,
                  size_t cap)
{
    struct mp_writer w;
    uint8_t *bytes;
    int n = encode_alloc(m, &bytes);

    if (n < 0) {
        return n;
    }
    mp_write_init(&w, out, cap);
    mp_write_array(&w, 3);
    mp_write_bin(&w, bytes, (size_t)n);
    mp_write_bin(&w, m->author, sizeof m->author);
    mp_write_bin(&w, sig, SIGN_BYTES);
    free(bytes);
    return w.full ? LOCO_ERANGE : (int)w.len;
}

int manifest_unpack(const uint8_t *in,
                    size_t len,
                    const struct signer *signer,
                    struct manifest *m,
                    uint8_t sig[SIGN_BYTES],
                    struct hash32 *run,
                    char *errmsg)
{
    const uint8_t *bytes, *public, *sign;
    uint32_t n, n_bytes, n_public, n_sign;
    struct mp_reader r;
    int rv = LOCO_EPROTO;

    mp_read_init(&r, in, len);
    if (mp_read_array(&r, &n) != 0 || n != 3 ||
        mp_read_bin(&r, &bytes, &n_bytes) != 0 ||
        mp_read_bin(&r, &public, &n_public) != 0 ||
        mp_read_bin(&r, &sign, &n_sign) != 0 || mp_read_end(&r) != 0 ||
        n_public != SIGN_PUBLIC_BYTES || n_sign != SIGN_BYTES ||
        manifest_decode(bytes, n_bytes, m) != 0) {
        (void)errmsg_invalid(errmsg, "manifest: the bytes are malformed");
        return rv;
    }
    if (memcmp(public, m->author, n_public) != 0 ||
        !signer->verify(signer->self, public, DOMAIN_SIGN, bytes, n_bytes,
                        sign)) {
        (void)errmsg_invalid(errmsg,
                             "manifest: the author's signature is wrong");
        return LOCO_ESIG;
    }
    if (sig != NULL) {
        memcpy(sig, sign, SIGN_BYTES);
    }
    manifest_hash(bytes, n_bytes, run);
    return manifest_validate(m, errmsg);
}
