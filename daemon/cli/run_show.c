/* run_show.c - loco run show: what a manifest says and what it needs. */
#include <stdio.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/run_show.h"
#include "daemon/jobs/run_needs.h"
#include "daemon/settings/run_yaml.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/file.h"

static json_t *map_json(const struct doc_schema *s, const void *obj);

static json_t *value_json(const struct doc_field *f, const void *p)
{
    char text[DOC_TEXT_MAX];

    switch (f->kind) {
    case DOC_U32:
        return json_integer(*(const uint32_t *)p);
    case DOC_U64:
        return json_integer((json_int_t) * (const uint64_t *)p);
    case DOC_F64:
        return json_real(*(const double *)p);
    case DOC_BOOL:
        return json_boolean(*(const bool *)p);
    case DOC_MAP:
        return map_json(f->sub, p);
    case DOC_STR:
    case DOC_HEX:
    case DOC_KIND_COUNT:
        break;
    }
    doc_format_value(f, p, text);
    return json_string(text);
}

/* Recursion is bounded by the schema's depth, DOC_DEPTH_MAX. */
static json_t *map_json(const struct doc_schema *s, const void *obj)
{
    json_t *map = json_object();

    for (size_t i = 0; i < s->n_fields; i++) {
        const struct doc_field *f = &s->fields[i];
        const char *p = (const char *)obj + f->offset;
        json_t *list;

        if (!f->list) {
            json_object_set_new(map, f->key, value_json(f, p));
            continue;
        }
        list = json_array();
        for (uint32_t j = 0; j < doc_count(f, obj); j++) {
            json_array_append_new(list, value_json(f, p + j * f->size));
        }
        json_object_set_new(map, f->key, list);
    }
    return map;
}

static void
print_need(const struct manifest *m, const char *name, uint64_t bytes)
{
    (void)printf("%-10s %.1f MB%s\n", name, (double)bytes / 1e6,
                 m->stages > 1 ? " at least" : "");
}

/* What joining costs. */
static void print_needs(const struct manifest *m)
{
    struct run_needs needs = run_needs_stated(m, NULL);

    print_need(m, "disk", needs.disk_bytes);
    print_need(m, "memory", needs.memory_bytes);
    (void)printf("traffic    %.1f MB each way every %u inner steps",
                 (double)needs.round_bytes / 1e6, m->sync.period);
    if (m->limits.traffic_bytes_per_day > 0) {
        (void)printf(", %.1f GB a day",
                     (double)m->limits.traffic_bytes_per_day / 1e9);
    }
    (void)putchar('\n');
}

static void print_model(const struct manifest *m)
{
    if (manifest_has_tensors(m)) {
        (void)printf("model      %llu parameters in tensors (%s), for training "
                     "loops of their own\n",
                     (unsigned long long)m->model.params, m->model.layout);
    } else {
        (void)printf("model      dim %u, %u layers, %u heads, ffn %u, vocab "
                     "%u, context %u\n",
                     m->model.dim, m->model.layers, m->model.heads,
                     m->model.ffn, m->model.vocab, m->model.seq);
    }
    if (m->model.init[0] != '\0') {
        (void)printf("begins at  %s\n", m->model.init);
    }
}

/* Zero width, or another direction for what follows: with these a name could
 * look like other lines of what is agreed to. */
static bool misleads(uint32_t c)
{
    return c == 0xad || c == 0x34f || c == 0x61c || c == 0x180e ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
           (c >= 0xe0000 && c <= 0xe0fff);
}

/* UTF-8, as every text of a manifest is, with a ? for each of those. */
static const char *plain(const char *text, char *out, size_t size)
{
    size_t n = 0;

    while (*text != '\0') {
        const unsigned char first = (unsigned char)*text;
        const size_t len = first < 0xc0   ? 1
                           : first < 0xe0 ? 2
                           : first < 0xf0 ? 3
                                          : 4;
        uint32_t c = len == 1 ? first : first & (0x7fU >> len);

        if (n + len >= size || strnlen(text, len) < len) {
            break;
        }
        for (size_t i = 1; i < len; i++) {
            c = c << 6 | ((unsigned char)text[i] & 0x3fU);
        }
        if (misleads(c)) {
            out[n++] = '?';
        } else {
            memcpy(out + n, text, len);
            n += len;
        }
        text += len;
    }
    out[n] = '\0';
    return out;
}

void run_show_text(const struct run_yaml *r)
{
    char name[DOC_TEXT_MAX], licence[DOC_TEXT_MAX];
    const struct manifest *m = &r->manifest;
    char author[ID_HEX_MAX], hex[ID_HEX_MAX];
    uint64_t tokens = 0, bytes = 0;

    hex_encode(m->author, sizeof m->author, author);
    hash32_hex(&r->run_id, hex);
    for (uint32_t i = 0; i < m->data.n_shards; i++) {
        bytes += m->data.shards[i].bytes;
        tokens += m->data.shards[i].val ? 0 : m->data.shards[i].tokens;
    }
    (void)printf("run        %s\nname       %s\nauthor     %s\n", hex,
                 plain(m->name, name, sizeof name), author);
    print_model(m);
    (void)printf("data       %u files, %.1f MB, %llu tokens, licence: %s\n",
                 m->data.n_shards, (double)bytes / 1e6,
                 (unsigned long long)tokens,
                 m->data.licence[0] == '\0'
                     ? "not stated"
                     : plain(m->data.licence, licence, sizeof licence));
    (void)printf("method     %s, every %u inner steps, %s by %s, outer %g / "
                 "%g\n",
                 m->sync.preset, m->sync.period, m->sync.wire, m->sync.topology,
                 m->sync.outer_lr, m->sync.outer_momentum);
    (void)printf("inner      %s, lr %g %s, batch %u x %u tokens\n",
                 m->inner.optimizer, m->inner.lr, m->inner.schedule,
                 m->inner.batch, m->inner.seq);
    (void)printf("starts at  %u peers\nstops at   round %llu, token %llu "
                 "(0: never)\n",
                 m->round.min_peers, (unsigned long long)m->stop.rounds,
                 (unsigned long long)m->stop.tokens);
}

static void print_json(const struct run_yaml *r, const char *hex)
{
    json_t *o = map_json(manifest_schema(), &r->manifest);

    json_object_set_new(o, "run_id", json_string(hex));
    (void)cli_print_json(o, JSON_INDENT(1));
}

int cli_run_show(const struct cli_call *call)
{
    struct cli_list words = {0};
    const char *state = NULL;
    bool json = false;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &state, "DIR",
         "state directory of a daemon in the run"},
        {"--json", CLI_FLAG, &json, NULL,
         "print every value as one JSON object"},
    };
    char errmsg[LOCO_ERRMSG_MAX] = "", hex[ID_HEX_MAX], path[FILE_PATH_MAX];
    static struct run_yaml r;
    int rv = CLI_PARSE(call, options, &words, 0, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    if ((words.n == 1) == (state != NULL)) {
        return cli_fail(TROUBLE_USAGE,
                        "run show: name a run.yaml, or --state DIR");
    }
    if (state == NULL) {
        rv = run_yaml_load(words.item[0], RUN_YAML_SIGNED, &r, errmsg);
    } else {
        rv = file_path_join(path, state, STATE_DIR_MANIFEST, errmsg);
        rv = rv == 0 ? run_yaml_load_kept(path, &r, errmsg) : rv;
    }
    if (rv != 0) {
        return cli_fail(TROUBLE_MANIFEST, "%s",
                        errmsg[0] == '\0' ? loco_strerror(rv) : errmsg);
    }
    hash32_hex(&r.run_id, hex);
    if (json) {
        print_json(&r, hex);
    } else {
        run_show_text(&r);
        print_needs(&r.manifest);
    }
    return LOCO_EXIT_OK;
}
