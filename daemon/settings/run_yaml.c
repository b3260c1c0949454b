/* run_yaml.c - see run_yaml.h. Reader, then writer. */
#include "daemon/settings/run_yaml.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"

/* The root of the file is the manifest's keys and these two. */
#define ROOT_FIELDS_MAX 32

struct reader {
    yaml_parser_t parser;
    yaml_event_t event;
    const char *name; /* of the file, for sentences */
    char *errmsg;
};

/* "NAME:LINE: " and the sentence. */
__attribute__((format(printf, 4, 5))) static int
fail(struct reader *r, int err, size_t line, const char *fmt, ...)
{
    char text[LOCO_ERRMSG_MAX];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)snprintf(r->errmsg, LOCO_ERRMSG_MAX, "%.80s:%zu: %.160s", r->name,
                   line, text);
    return err;
}

/* The next event replaces the last one. */
static int next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        memset(&r->event, 0, sizeof r->event);
        return fail(
            r, LOCO_EFORMAT, r->parser.problem_mark.line + 1, "not YAML: %s",
            r->parser.problem == NULL ? "malformed" : r->parser.problem);
    }
    if (r->event.type == YAML_ALIAS_EVENT) {
        return fail(r, LOCO_EFORMAT, r->event.start_mark.line + 1,
                    "aliases are not allowed here");
    }
    return 0;
}

static size_t line_of(const struct reader *r)
{
    return r->event.start_mark.line + 1;
}

static int read_map(struct reader *r,
                    const struct doc_schema *s,
                    uint8_t *obj,
                    const char *prefix);

/* One value of `f` at p, whose first event is the current one. */
static int read_value(struct reader *r,
                      const struct doc_field *f,
                      uint8_t *p,
                      const char *path)
{
    char sentence[LOCO_ERRMSG_MAX], prefix[DOC_PATH_MAX + 32];
    const yaml_event_t *e = &r->event;
    const char *text;

    if (f->kind == DOC_MAP) {
        if (e->type != YAML_MAPPING_START_EVENT) {
            return fail(r, LOCO_EINVAL, line_of(r), "%s: must hold keys", path);
        }
        (void)snprintf(prefix, sizeof prefix, "%s.", path);
        return read_map(r, f->sub, p, prefix);
    }
    if (e->type != YAML_SCALAR_EVENT) {
        return fail(r, LOCO_EINVAL, line_of(r), "%s: must be one value", path);
    }
    text = (const char *)e->data.scalar.value;
    if (strlen(text) != e->data.scalar.length) {
        return fail(r, LOCO_EINVAL, line_of(r), "%s: holds a zero byte", path);
    }
    if (doc_parse_value(f, text, path, p, sentence) != 0) {
        return fail(r, LOCO_EINVAL, line_of(r), "%s", sentence);
    }
    return 0;
}

static int read_list(struct reader *r,
                     const struct doc_field *f,
                     uint8_t *obj,
                     const char *path)
{
    char element[DOC_PATH_MAX + 16];
    uint32_t n = 0;
    int rv;

    if (r->event.type != YAML_SEQUENCE_START_EVENT) {
        return fail(r, LOCO_EINVAL, line_of(r), "%s: must be a list", path);
    }
    for (;; n++) {
        rv = next(r);
        if (rv != 0) {
            return rv;
        }
        if (r->event.type == YAML_SEQUENCE_END_EVENT) {
            doc_set_count(f, obj, n);
            return 0;
        }
        if (n == f->max) {
            return fail(r, LOCO_EINVAL, line_of(r), "%s: more than %zu", path,
                        f->max);
        }
        (void)snprintf(element, sizeof element, "%s[%u]", path, (unsigned)n);
        rv = read_value(r, f, obj + f->offset + n * f->size, element);
        if (rv != 0) {
            return rv;
        }
    }
}

/* The keys of a map whose start is the current event, to its end. */
static int read_map(struct reader *r,
                    const struct doc_schema *s,
                    uint8_t *obj,
                    const char *prefix)
{
    char path[DOC_PATH_MAX], sentence[LOCO_ERRMSG_MAX];
    uint64_t seen = 0;
    int rv;

    assert(s->n_fields <= 64);
    for (;;) {
        const struct doc_field *f;
        uint64_t bit;

        rv = next(r);
        if (rv != 0 || r->event.type == YAML_MAPPING_END_EVENT) {
            return rv;
        }
        if (r->event.type != YAML_SCALAR_EVENT) {
            return fail(r, LOCO_EINVAL, line_of(r), "a key must be a word");
        }
        f = doc_find(s, (const char *)r->event.data.scalar.value, sentence);
        if (f == NULL) {
            int n = prefix[0] == '\0' ? 0 : (int)strlen(prefix) - 1;

            return fail(r, LOCO_EINVAL, line_of(r), "%.*s%s%s", n, prefix,
                        n == 0 ? "" : ": ", sentence);
        }
        (void)snprintf(path, sizeof path, "%s%s", prefix, f->key);
        bit = (uint64_t)1 << (f - s->fields);
        if ((seen & bit) != 0) {
            return fail(r, LOCO_EINVAL, line_of(r), "%s: given twice", path);
        }
        seen |= bit;
        rv = next(r);
        if (rv != 0) {
            return rv;
        }
        rv = f->list ? read_list(r, f, obj, path)
                     : read_value(r, f, obj + f->offset, path);
        if (rv != 0) {
            return rv;
        }
    }
}

/* Expect one event of the document frame. */
static int expect(struct reader *r, yaml_event_type_t type)
{
    int rv = next(r);

    if (rv == 0 && r->event.type != type) {
        rv = fail(r, LOCO_EINVAL, line_of(r),
                  "must be one document of keys and values");
    }
    return rv;
}

static int read_document(struct reader *r, struct run_yaml *out)
{
    static const struct doc_field extra[] = {
        DOC_FIELD_HEX(struct run_yaml, run_id, "hash of all other values"),
        DOC_FIELD_HEX(struct run_yaml, signature, "by the author"),
    };
    struct doc_field fields[ROOT_FIELDS_MAX];
    const struct doc_schema *m = manifest_schema();
    struct doc_schema root = {.fields = fields, .size = sizeof *out};
    int rv;

    static_assert(offsetof(struct run_yaml, manifest) == 0,
                  "the manifest's offsets are the file's");
    assert(m->n_fields + 2 <= ROOT_FIELDS_MAX);
    memcpy(fields, m->fields, m->n_fields * sizeof fields[0]);
    memcpy(fields + m->n_fields, extra, sizeof extra);
    root.n_fields = m->n_fields + 2;
    rv = expect(r, YAML_STREAM_START_EVENT);
    rv = rv == 0 ? expect(r, YAML_DOCUMENT_START_EVENT) : rv;
    rv = rv == 0 ? expect(r, YAML_MAPPING_START_EVENT) : rv;
    rv = rv == 0 ? read_map(r, &root, (uint8_t *)out, "") : rv;
    rv = rv == 0 ? expect(r, YAML_DOCUMENT_END_EVENT) : rv;
    rv = rv == 0 ? expect(r, YAML_STREAM_END_EVENT) : rv;
    return rv;
}

/* Whether the file says what its author signed. */
static int check_signature(struct run_yaml *out,
                           const struct hash32 *named,
                           const char *name,
                           char *errmsg)
{
    struct signer signer = signer_sodium(NULL);
    const char *what = NULL;
    int rv;

    if (!out->is_signed || hash32_is_zero(named)) {
        what = "is not signed; sign it with: loco run sign";
    } else if (!hash32_eq(named, &out->run_id)) {
        what = "was altered: its values do not match its run id; restore it, "
               "or sign it as a new run with: loco run sign";
    } else {
        rv = manifest_verify(&out->manifest, &signer, out->signature);
        if (rv != 0 && rv != LOCO_ESIG) {
            return rv;
        }
        if (rv == LOCO_ESIG) {
            what = "was altered: the signature is not the author's; "
                   "restore it, or sign it as a new run with: loco run sign";
        }
    }
    if (what == NULL) {
        return 0;
    }
    (void)snprintf(errmsg, LOCO_ERRMSG_MAX, "%.80s: %s", name, what);
    return LOCO_EINVAL;
}

int run_yaml_parse(const char *text,
                   size_t len,
                   const char *name,
                   enum run_yaml_trust trust,
                   struct run_yaml *out,
                   char *errmsg)
{
    static const uint8_t no_signature[SIGN_BYTES];
    char sentence[LOCO_ERRMSG_MAX];
    struct reader r = {.name = name, .errmsg = errmsg};
    struct hash32 named;
    int rv;

    memset(out, 0, sizeof *out);
    manifest_default(&out->manifest);
    if (!yaml_parser_initialize(&r.parser)) {
        return LOCO_ENOMEM;
    }
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, len);
    rv = read_document(&r, out);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    if (rv != 0) {
        return rv;
    }
    if (manifest_validate(&out->manifest, sentence) != 0) {
        (void)snprintf(errmsg, LOCO_ERRMSG_MAX, "%.80s: %.170s", name,
                       sentence);
        return LOCO_EINVAL;
    }
    out->is_signed =
        memcmp(out->signature, no_signature, sizeof no_signature) != 0;
    named = out->run_id;
    rv = manifest_run_id(&out->manifest, &out->run_id);
    if (rv != 0 || trust == RUN_YAML_ANY) {
        return rv;
    }
    return check_signature(out, &named, name, errmsg);
}

int run_yaml_load(const char *path,
                  enum run_yaml_trust trust,
                  struct run_yaml *out,
                  char *errmsg)
{
    char *text;
    size_t len;
    int rv = file_read_whole(path, RUN_YAML_BYTES_MAX, &text, &len, errmsg);

    if (rv == 0) {
        rv = run_yaml_parse(text, len, path, trust, out, errmsg);
        free(text);
    }
    return rv;
}

int run_yaml_load_kept(const char *path, struct run_yaml *out, char *errmsg)
{
    struct signer signer = signer_sodium(NULL);
    struct file_map map;
    int rv = file_map_open(&map, path, errmsg);

    if (rv == 0) {
        rv = manifest_unpack(map.data, map.size, &signer, &out->manifest,
                             out->signature, &out->run_id, errmsg);
        file_map_close(&map);
    }
    return rv;
}

int run_yaml_sign(struct run_yaml *r, const struct identity *author)
{
    struct signer signer = signer_sodium(author);
    int rv = manifest_sign(&r->manifest, &signer, r->signature);

    if (rv != 0) {
        return rv;
    }
    r->is_signed = true;
    return manifest_run_id(&r->manifest, &r->run_id);
}

/* A YAML double-quoted string. */
static void write_quoted(FILE *file, const char *text)
{
    (void)fputc('"', file);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') {
            (void)fprintf(file, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f) {
            (void)fprintf(file, "\\x%02x", c);
        } else {
            (void)fputc(c, file);
        }
    }
    (void)fputc('"', file);
}

static void write_scalar(FILE *file, const struct doc_field *f, const void *p)
{
    char text[DOC_TEXT_MAX];

    doc_format_value(f, p, text);
    /* Hex is quoted too: digits with one 'e' would read as a float. */
    if (f->kind == DOC_STR || f->kind == DOC_HEX) {
        write_quoted(file, text);
    } else {
        (void)fputs(text, file);
    }
    (void)fputc('\n', file);
}

/* The keys of a map, each line indented, the first only where `first`. */
static void write_map(FILE *file,
                      const struct doc_schema *s,
                      const uint8_t *obj,
                      int indent,
                      bool first)
{
    for (size_t i = 0; i < s->n_fields; i++) {
        const struct doc_field *f = &s->fields[i];
        uint32_t n = doc_count(f, obj);
        const uint8_t *p = obj + f->offset;

        if (doc_absent(f, obj)) {
            continue;
        }
        (void)fprintf(file, "%*s%s:", i > 0 || first ? indent : 0, "", f->key);
        if (f->list) {
            (void)fputs(n == 0 ? " []\n" : "\n", file);
            for (uint32_t j = 0; j < n; j++, p += f->size) {
                (void)fprintf(file, "%*s- ", indent + 2, "");
                if (f->kind == DOC_MAP) {
                    write_map(file, f->sub, p, indent + 4, false);
                } else {
                    write_scalar(file, f, p);
                }
            }
        } else if (f->kind == DOC_MAP) {
            (void)fputc('\n', file);
            write_map(file, f->sub, p, indent + 2, true);
        } else {
            (void)fputc(' ', file);
            write_scalar(file, f, p);
        }
    }
}

static void write_file(FILE *file, const struct run_yaml *r)
{
    char run[ID_HEX_MAX], sig[2 * SIGN_BYTES + 1];

    hash32_hex(&r->run_id, run);
    hex_encode(r->signature, SIGN_BYTES, sig);
    (void)fputs("# A loco run. Its values are signed: after an edit it is "
                "another run and\n# needs a new signature (loco run sign).\n",
                file);
    if (r->is_signed) {
        (void)fprintf(file, "run_id: \"%s\"\nsignature: \"%s\"\n", run, sig);
    }
    write_map(file, manifest_schema(), (const uint8_t *)&r->manifest, 0, true);
}

int run_yaml_save(const struct run_yaml *r, const char *path, char *errmsg)
{
    char *text = NULL;
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    int rv;

    if (file == NULL) {
        return errmsg_fail(errmsg, LOCO_ENOMEM, "write %s: no memory", path);
    }
    write_file(file, r);
    rv = fclose(file) == 0
             ? file_write_whole(path, text, len, errmsg)
             : errmsg_fail(errmsg, LOCO_ENOMEM, "write %s: no memory", path);
    free(text);
    return rv;
}
