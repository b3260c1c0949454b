/* upgrade_memory.c - STATE/upgrade.json; see upgrade.h.
 *
 *     {"serial": 1795000000, "failed": "0.2.1",
 *      "trial": {"from": "0.1.0", "to": "0.2.0", "was": "training",
 *                "peers": 3,
 *                "pid": 4711, "began": 99, "boot": "..", "args": ["locod", ..],
 * "cwd":
 * "/home/anna", "log": "/home/anna/.local/state/loco/locod.log", "unit": ""}}
 *
 * The file is this user's own, as is the state directory. It is checked all
 * the same: a damaged one must not start anything.
 */
#include "daemon/cli/upgrade.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"

#define FILE_BYTES_MAX ((size_t)128 << 10)

/* A text of the object, cut never: false where it is not there or too long. */
static bool text_of(const json_t *o, const char *key, char *out, size_t size)
{
    const char *text = json_string_value(json_object_get(o, key));

    if (text == NULL || strlen(text) >= size) {
        return false;
    }
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool read_args(struct upgrade_process *p, const json_t *list)
{
    size_t n = json_array_size(list), used = 0;

    if (n > UPGRADE_ARGS_MAX) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        size_t len = text == NULL ? 0 : strlen(text) + 1;

        if (text == NULL || len > sizeof p->args - used) {
            return false;
        }
        memcpy(p->args + used, text, len);
        p->arg[p->n_args++] = p->args + used;
        used += len;
    }
    p->arg[p->n_args] = NULL;
    return true;
}

static bool read_trial(struct upgrade_memory *m, const json_t *o)
{
    json_int_t pid = json_integer_value(json_object_get(o, "pid"));
    json_int_t began = json_integer_value(json_object_get(o, "began"));
    struct version v;

    m->trial = true;
    m->process.pid = pid > 0 && pid < INT32_MAX ? (pid_t)pid : 0;
    m->peers_alive = json_integer_value(json_object_get(o, "peers"));
    m->process.began = began > 0 ? (uint64_t)began : 0;
    return text_of(o, "from", m->from, sizeof m->from) &&
           text_of(o, "to", m->to, sizeof m->to) &&
           version_parse(&v, m->from) == 0 && version_parse(&v, m->to) == 0 &&
           text_of(o, "was", m->was, sizeof m->was) &&
           text_of(o, "boot", m->process.boot, sizeof m->process.boot) &&
           text_of(o, "cwd", m->process.cwd, sizeof m->process.cwd) &&
           text_of(o, "log", m->process.log, sizeof m->process.log) &&
           text_of(o, "unit", m->process.unit, sizeof m->process.unit) &&
           read_args(&m->process, json_object_get(o, "args"));
}

static bool read_memory(struct upgrade_memory *m, const json_t *o)
{
    const json_t *trial = json_object_get(o, "trial");
    json_int_t serial = json_integer_value(json_object_get(o, "serial"));

    m->serial = serial > 0 ? (uint64_t)serial : 0;
    return serial >= 0 && json_is_object(o) &&
           text_of(o, "failed", m->failed, sizeof m->failed) &&
           (trial == NULL || read_trial(m, trial));
}

int upgrade_memory_load(struct upgrade_memory *m,
                        const char *state,
                        char *errmsg)
{
    char *text = NULL;
    json_t *o;
    size_t size = 0;
    bool whole;
    int rv;

    memset(m, 0, sizeof *m);
    rv = file_path_join(m->path, state, STATE_DIR_UPGRADE, errmsg);
    rv = rv == 0
             ? file_read_whole(m->path, FILE_BYTES_MAX, &text, &size, errmsg)
             : rv;
    if (rv != 0) {
        return rv == LOCO_ENOENT ? 0 : rv;
    }
    o = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    whole = read_memory(m, o);
    json_decref(o);
    free(text);
    return whole ? 0
                 : errmsg_fail(errmsg, LOCO_EFORMAT,
                               "%.180s is damaged; remove it", m->path);
}

static json_t *trial_of(const struct upgrade_memory *m)
{
    const struct upgrade_process *p = &m->process;
    json_t *args = json_array();

    for (uint32_t i = 0; i < p->n_args; i++) {
        (void)json_array_append_new(args, json_string(p->arg[i]));
    }
    return json_pack("{ss ss ss sI sI sI ss so ss ss ss}", "from", m->from,
                     "to", m->to, "was", m->was, "peers",
                     (json_int_t)m->peers_alive, "pid", (json_int_t)p->pid,
                     "began", (json_int_t)p->began, "boot", p->boot, "args",
                     args, "cwd", p->cwd, "log", p->log, "unit", p->unit);
}

int upgrade_memory_save(const struct upgrade_memory *m, char *errmsg)
{
    json_t *o = json_pack("{sI ss}", "serial", (json_int_t)m->serial, "failed",
                          m->failed);
    char *text = NULL;
    bool made = o != NULL;
    int rv;

    if (made && m->trial) {
        made = json_object_set_new(o, "trial", trial_of(m)) == 0;
    }
    text = made ? json_dumps(o, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(o);
    rv = text == NULL
             ? errmsg_fail(errmsg, LOCO_ENOMEM,
                           "out of memory, or a name that is not UTF-8")
             : file_write_whole(m->path, text, strlen(text), errmsg);
    free(text);
    return rv;
}
