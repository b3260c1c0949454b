/* pack_input.c - see pack_input.h. */
#include "train/data/pack_input.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define DEPTH_MAX 32 /* directories in directories */
#define FILES_MAX 1000000

/* What stays the same over all inputs. */
struct opening {
    struct pack_inputs *in;
    const struct pack_options *opt;
    uint32_t vocab;
    const char *out_dir;
    char *errmsg;
};

void pack_inputs_close(struct pack_inputs *in)
{
    for (size_t i = 0; i < in->n; i++) {
        file_map_close(&in->items[i].map);
        shard_close(&in->items[i].tokens);
        free(in->items[i].path);
    }
    free(in->items);
    memset(in, 0, sizeof *in);
}

static struct pack_input *item_new(const struct opening *o, const char *path)
{
    struct pack_inputs *in = o->in;
    struct pack_input *item;

    if (in->n == in->room) {
        size_t room = 2 * in->room + 16;
        struct pack_input *items = realloc(in->items, room * sizeof *items);

        if (items == NULL || in->n >= FILES_MAX) {
            in->items = items == NULL ? in->items : items;
            (void)errmsg_fail(o->errmsg, LOCO_ENOMEM, "too many inputs: %zu",
                              in->n);
            return NULL;
        }
        in->items = items;
        in->room = room;
    }
    item = &in->items[in->n];
    memset(item, 0, sizeof *item);
    item->path = strdup(path);
    if (item->path == NULL) {
        (void)errmsg_fail(o->errmsg, LOCO_ENOMEM, "no memory for a path");
        return NULL;
    }
    in->n++;
    return item;
}

/* ---- JSONL --------------------------------------------------------------- */

/* Append the text of one line to `f`. */
static int line_text(const struct opening *o,
                     struct file_out *f,
                     const char *line,
                     size_t len,
                     char *problem)
{
    json_error_t where = {.text = ""};
    json_t *object = json_loadb(line, len, JSON_ALLOW_NUL, &where);
    const json_t *text = json_object_get(object, "text");
    const char *separator =
        o->opt->separator == NULL ? "\n" : o->opt->separator;
    int rv;

    if (!json_is_string(text)) {
        rv = errmsg_fail(problem, LOCO_EFORMAT,
                         "not an object with a string \"text\"%s%.80s",
                         object == NULL ? ": " : "", where.text);
    } else {
        rv = file_out_write(f, json_string_value(text),
                            json_string_length(text), problem);
        if (rv == 0) {
            rv = file_out_write(f, separator, strlen(separator), problem);
        }
    }
    json_decref(object);
    return rv;
}

static bool is_blank(const char *line, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
            return false;
        }
    }
    return true;
}

static int all_lines(const struct opening *o,
                     struct file_out *f,
                     const struct file_map *map,
                     const char *path)
{
    const char *p = (const char *)map->data;
    const char *end = p + map->size;
    int rv = 0;

    for (size_t line = 1; rv == 0 && p < end; line++) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((newline == NULL ? end : newline) - p);
        char problem[ERRMSG_SIZE];

        if (!is_blank(p, len)) {
            rv = line_text(o, f, p, len, problem);
        }
        if (rv != 0) {
            return errmsg_fail(o->errmsg, rv, "%.120s:%zu: %.120s", path, line,
                               problem);
        }
        p += len + 1;
    }
    return rv;
}

/* The texts of a JSONL file, joined, in a file without a name. */
static int
map_jsonl(const struct opening *o, const char *path, struct file_map *out)
{
    char joined[FILE_PATH_MAX];
    struct file_map map;
    struct file_out f;
    int rv = file_path_join(joined, o->out_dir, "texts.tmp", o->errmsg);

    rv = rv == 0 ? file_map_open(&map, path, o->errmsg) : rv;
    if (rv != 0) {
        return rv;
    }
    rv = file_out_open(&f, joined, o->errmsg);
    if (rv == 0) {
        rv = all_lines(o, &f, &map, path);
        if (rv != 0) {
            file_out_abort(&f);
        } else {
            rv = file_out_commit(&f, o->errmsg);
        }
    }
    file_map_close(&map);
    if (rv == 0) {
        rv = file_map_open(out, joined, o->errmsg);
        (void)unlink(joined);
    }
    return rv;
}

/* ---- one file ------------------------------------------------------------ */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

static enum pack_format format_of(const struct opening *o, const char *path)
{
    if (o->opt->format != PACK_AUTO) {
        return o->opt->format;
    }
    if (ends_with(path, ".jsonl") || ends_with(path, ".ndjson")) {
        return PACK_JSONL;
    }
    return ends_with(path, ".bin") && shard_is_llmc(path) ? PACK_LLMC
                                                          : PACK_TEXT;
}

static int open_tokens(const struct opening *o,
                       struct pack_input *item,
                       enum pack_format format)
{
    enum shard_format as = format == PACK_LLMC  ? SHARD_LLMC
                           : format == PACK_U16 ? SHARD_U16
                                                : SHARD_U32;
    int rv = shard_open_as(&item->tokens, item->path, as, o->vocab, o->errmsg);

    item->units = item->tokens.info.tokens;
    return rv;
}

static int open_file(const struct opening *o, const char *path)
{
    enum pack_format format = format_of(o, path);
    struct pack_input *item = item_new(o, path);
    bool tokens = format != PACK_TEXT && format != PACK_JSONL;
    int rv;

    if (item == NULL) {
        return LOCO_ENOMEM;
    }
    if (o->in->n > 1 && tokens != o->in->tokens) {
        return errmsg_fail(o->errmsg, LOCO_EINVAL,
                           "%.160s: text and ready tokens do not mix", path);
    }
    o->in->tokens = tokens;
    if (tokens) {
        rv = open_tokens(o, item, format);
    } else {
        rv = format == PACK_JSONL ? map_jsonl(o, path, &item->map)
                                  : file_map_open(&item->map, path, o->errmsg);
        item->units = item->map.size;
    }
    o->in->units += rv == 0 ? item->units : 0;
    return rv;
}

/* ---- directories -------------------------------------------------------- */

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int open_path(const struct opening *o, const char *path, int depth);

static int open_directory(const struct opening *o, const char *dir, int depth)
{
    struct dirent **names;
    int n = scandir(dir, &names, is_visible, by_name);
    int rv = 0;

    if (n < 0) {
        return errmsg_fail(o->errmsg, LOCO_EIO, "read directory %.160s: %s",
                           dir, strerror(errno));
    }
    if (depth == DEPTH_MAX) {
        rv = errmsg_fail(o->errmsg, LOCO_EINVAL,
                         "%.120s: more than %d directories deep", dir,
                         DEPTH_MAX);
    }
    for (int i = 0; i < n; i++) {
        char path[FILE_PATH_MAX];
        struct stat st;

        if (rv == 0) {
            rv = file_path_join(path, dir, names[i]->d_name, o->errmsg);
        }
        if (rv == 0 && lstat(path, &st) == 0 &&
            (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
            rv = open_path(o, path, depth + 1);
        }
        free(names[i]);
    }
    free(names);
    return rv;
}

static int open_path(const struct opening *o, const char *path, int depth)
{
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return open_directory(o, path, depth);
    }
    return open_file(o, path);
}

int pack_inputs_open(struct pack_inputs *in,
                     const char *const *paths,
                     size_t n,
                     const struct pack_options *options,
                     uint32_t vocab,
                     const char *out_dir,
                     char *errmsg)
{
    struct opening o = {in, options, vocab, out_dir, errmsg};
    int rv = 0;

    memset(in, 0, sizeof *in);
    for (size_t i = 0; rv == 0 && i < n; i++) {
        rv = open_path(&o, paths[i], 0);
    }
    if (rv == 0 && in->n == 0) {
        rv = errmsg_invalid(errmsg, "there is no file in %.160s", paths[0]);
    }
    return rv;
}

/* ---- lines -------------------------------------------------------------- */

uint64_t pack_line_after(const struct pack_inputs *in, uint64_t at)
{
    uint64_t base = 0;

    for (size_t i = 0; i < in->n; i++) {
        const struct file_map *f = &in->items[i].map;
        /* A line starts behind a newline: look from one byte earlier. */
        uint64_t skip = at > base + 1 ? at - 1 - base : 0;

        if (skip < f->size) {
            const uint8_t *p = f->data + skip;
            const uint8_t *nl = memchr(p, '\n', f->size - skip);
            if (nl != NULL) {
                uint64_t start = base + (uint64_t)(nl - f->data) + 1;
                return start < in->units ? start : 0;
            }
        }
        base += f->size;
    }
    return 0;
}

uint64_t pack_line_before(const struct pack_inputs *in, uint64_t at)
{
    uint64_t base = in->units;

    for (size_t i = in->n; i-- > 0;) {
        const struct file_map *f = &in->items[i].map;
        uint64_t n;

        base -= f->size;
        if (base + 1 >= at) {
            continue;
        }
        n = at - base - 1; /* newlines before byte at - 1 start such lines */
        n = n < f->size ? n : f->size;
        const uint8_t *nl = n == 0 ? NULL : memrchr(f->data, '\n', n);
        if (nl != NULL) {
            return base + (uint64_t)(nl - f->data) + 1;
        }
    }
    return 0;
}
