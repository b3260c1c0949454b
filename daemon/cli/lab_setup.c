/* lab_setup.c - from arguments to a laboratory; see lab_setup.h. */
#include "daemon/cli/lab_setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/settings/method_manifest.h"
#include "daemon/settings/model_file.h"
#include "p2p/pipeline/route.h"
#include "proto/base/err.h"

/* What a manifest has no field for. */
struct lab_number {
    const char *path;
    double least, most;
    double value;
};

enum {
    LAB_EVAL_EVERY,
    LAB_EVAL_TOKENS,
    LAB_FIXED_ROUTES,
    LAB_GRACE_S,
    LAB_LIARS,
    LAB_NUMBERS
};

static const struct lab_number lab_numbers[LAB_NUMBERS] = {
    [LAB_EVAL_EVERY] = {"lab.eval_every_tokens", 0, 1e15, -1},
    [LAB_EVAL_TOKENS] = {"lab.eval_tokens", 0, 1e15, 32768},
    [LAB_FIXED_ROUTES] = {"lab.fixed_routes", 0, 1, 0},
    [LAB_GRACE_S] = {"lab.grace_s", 0, 1e9, -1},
    [LAB_LIARS] = {"lab.liars", 0, LAB_PEERS_MAX, 0},
};

static int set_lab(const struct lab_setup *s,
                   struct lab_number *numbers,
                   const char *path,
                   const char *text)
{
    for (size_t i = 0; i < LAB_NUMBERS; i++) {
        char *end;
        double v;

        if (strcmp(numbers[i].path, path) != 0) {
            continue;
        }
        v = strtod(text, &end);
        if (end == text || *end != '\0' || !(v >= numbers[i].least) ||
            !(v <= numbers[i].most)) {
            return cli_fail(TROUBLE_RUN_SETTINGS,
                            "%s: %s is a number from %g to %g, not "
                            "\"%.40s\"",
                            s->a.command, path, numbers[i].least,
                            numbers[i].most, text);
        }
        numbers[i].value = v;
        return 0;
    }
    return cli_fail(TROUBLE_RUN_SETTINGS,
                    "sim train: unknown setting %.60s; the laboratory's own "
                    "are lab.eval_every_tokens, lab.eval_tokens, "
                    "lab.fixed_routes, lab.grace_s, lab.liars, lab.lie and "
                    "lab.activations",
                    path);
}

/* The wire type between stages. */
static int set_activations(struct lab_setup *s, const char *name)
{
    const struct codec *c = codec_find(name);

    if (c == NULL) {
        return cli_fail(TROUBLE_RUN_SETTINGS,
                        "%s: lab.activations is %s, not \"%.40s\"",
                        s->a.command, codec_names, name);
    }
    s->lab.activations = c->id;
    return 0;
}

static int set_lie(struct lab_setup *s, const char *name)
{
    char names[128];

    if (lab_lie_named(name, &s->lab.lie)) {
        return 0;
    }
    lab_lie_names(names, sizeof names);
    return cli_fail(TROUBLE_RUN_SETTINGS, "%s: lab.lie is %s, not \"%.40s\"",
                    s->a.command, names, name);
}

static int
apply_set(struct lab_setup *s, struct lab_number *numbers, bool *steps)
{
    for (size_t i = 0; i < s->a.set.n; i++) {
        char path[DOC_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
        const char *value = cli_set_split(s->a.command, s->a.set.item[i], path);
        int rv = 0;

        if (value == NULL) {
            return LOCO_EXIT_USAGE;
        }
        if (strcmp(path, "lab.activations") == 0) {
            rv = set_activations(s, value);
        } else if (strcmp(path, "lab.lie") == 0) {
            rv = set_lie(s, value);
        } else if (strncmp(path, "lab.", 4) == 0) {
            rv = set_lab(s, numbers, path, value);
        } else if (doc_set(manifest_schema(), &s->manifest, path, value,
                           errmsg) != 0) {
            rv = cli_fail(TROUBLE_RUN_SETTINGS, "%s: %s", s->a.command, errmsg);
        }
        if (rv != 0) {
            return rv;
        }
        *steps = *steps || strcmp(path, "inner.steps") == 0;
    }
    return 0;
}

/* The first values: those of the quick start, which suit a small model and a
 * short run. */
static void first_values(struct manifest_inner *inner)
{
    inner->batch = 4;
    inner->micro_batch = 4;
    inner->lr = 0.003;
    inner->lr_min = 0.0003;
    inner->warmup = 20;
}

static int fill_inner(struct lab_setup *s, char *errmsg)
{
    const struct manifest_inner *inner = &s->manifest.inner;
    struct lab_options *o = &s->lab;
    const char *reason = NULL;

    o->batch = inner->batch;
    o->micro_batch = inner->micro_batch;
    o->seq = inner->seq;
    o->optimizer = (struct optimizer_options){
        .beta1 = inner->beta1,
        .beta2 = inner->beta2,
        .eps = inner->eps,
        .weight_decay = inner->weight_decay,
        .clip_norm = inner->clip,
        .muon_lr = inner->muon_lr,
    };
    o->schedule = (struct schedule){
        .peak = inner->lr,
        .lowest = inner->lr_min,
        .warmup_steps = inner->warmup,
        .total_steps = inner->steps,
        .decay_steps = inner->decay,
    };
    if (optimizer_rule_named(inner->optimizer, &o->optimizer.rule) != 0) {
        return errmsg_invalid(
            errmsg,
            "inner.optimizer is adamw, adopt, muon, sgdm or sgd, not "
            "%.16s",
            inner->optimizer);
    }
    if (optimizer_check(&o->optimizer, &reason) != 0 ||
        schedule_kind_named(inner->schedule, &o->schedule.kind) != 0 ||
        schedule_check(&o->schedule, &reason) != 0) {
        return errmsg_invalid(errmsg, "inner: %s",
                              reason == NULL ? "unknown schedule" : reason);
    }
    return 0;
}

_Static_assert(LLAMA_STAGES_MAX <= ROUTE_STAGES_MAX, "each cut has routes");

/* The routes of p2p/pipeline/pipeline.h. */
static void random_route(void *data,
                         uint64_t step,
                         uint64_t mb,
                         uint32_t columns,
                         uint32_t stages,
                         uint32_t entry,
                         uint32_t *path)
{
    const struct lab_setup *s = data;
    const struct route_draw d = {.seed = s->a.seed, .step = step};
    uint32_t hosts[ROUTE_STAGES_MAX];

    for (uint32_t i = 0; i < stages; i++) {
        hosts[i] = columns;
    }
    route_path(&d, mb, hosts, stages, entry, path);
}

static void fill_stages(struct lab_setup *s, bool fixed)
{
    s->lab.stages = s->manifest.stages;
    s->lab.route = fixed ? NULL : random_route;
    s->lab.route_data = s;
}

static void fill_lab(struct lab_setup *s, const struct lab_number *numbers)
{
    struct lab_options *o = &s->lab;
    double every = numbers[LAB_EVAL_EVERY].value;
    double step_s = (double)o->batch * o->seq / s->machines[0].tokens_per_s;

    o->peers = (uint32_t)s->a.peers;
    o->tokens = s->a.tokens;
    o->seed = s->a.seed;
    o->threads = (int)s->a.threads;
    fill_stages(s, numbers[LAB_FIXED_ROUTES].value > 0);
    o->eval_every = every < 0 ? s->a.tokens / 20 : (uint64_t)every;
    o->eval_tokens = (uint64_t)numbers[LAB_EVAL_TOKENS].value;
    o->liars = (uint32_t)numbers[LAB_LIARS].value;
    o->butterfly = strcmp(s->manifest.sync.topology, "butterfly") == 0;
    o->clip = (float)s->manifest.sync.norm_clip;
    o->centred = strcmp(s->manifest.sync.robust, "centred") == 0;
    /* About one inner step (algorithms page 6.3). */
    o->grace_s =
        numbers[LAB_GRACE_S].value < 0 ? step_s : numbers[LAB_GRACE_S].value;
}

/* What would be ignored: better said. */
static int check_lies(const struct lab_setup *s, uint64_t peers)
{
    const struct lab_options *o = &s->lab;
    bool sums = o->butterfly || !codec_adds(codec_get(o->method.wire));

    if (o->liars > 0 && (o->liars >= peers || o->method.gradients ||
                         o->method.group != METHOD_ALL)) {
        return cli_fail(TROUBLE_RUN_SETTINGS,
                        "%s: lab.liars is below --peers, and for methods "
                        "in which all peers average parameters",
                        s->a.command);
    }
    if (s->manifest.sync.rollback > 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS,
                        "%s: sync.rollback is of real peers: a laboratory "
                        "takes no round back",
                        s->a.command);
    }
    if (audit_has_sums(s->manifest.sync.audit)) {
        return cli_fail(TROUBLE_RUN_SETTINGS,
                        "%s: sync.audit is of real peers: in a laboratory no "
                        "owner of a slice lies; set sync.audit=off",
                        s->a.command);
    }
    return o->clip > 0 && !sums
               ? cli_fail(TROUBLE_RUN_SETTINGS,
                          "%s: sync.norm_clip is of a butterfly: set "
                          "sync.topology=butterfly",
                          s->a.command)
               : 0;
}

int lab_setup_settings(struct lab_setup *s)
{
    struct manifest *m = &s->manifest;
    struct lab_number numbers[LAB_NUMBERS];
    const struct preset *preset;
    char errmsg[ERRMSG_SIZE];
    bool steps_set = false;
    uint64_t steps;
    int rv;

    memcpy(numbers, lab_numbers, sizeof numbers);
    manifest_default(m);
    first_values(&m->inner);
    if (model_find(s->a.model, &s->lab.model, errmsg) != 0 ||
        preset_find(s->a.sync, &preset, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "%s: %s", s->a.command, errmsg);
    }
    m->inner.seq = s->lab.model.seq;
    manifest_from_preset(m, preset);
    rv = apply_set(s, numbers, &steps_set);
    if (rv != 0) {
        return rv;
    }
    steps = s->a.tokens * m->stages /
            ((uint64_t)s->a.peers * m->inner.batch * m->inner.seq);
    if (!steps_set) {
        m->inner.steps = steps > 0 ? steps : 1;
        m->inner.warmup =
            m->inner.warmup < m->inner.steps ? m->inner.warmup : 0;
    }
    if (method_from_manifest(&s->lab.method, m, SCOPE_SETTINGS, errmsg) != 0 ||
        fill_inner(s, errmsg) != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "%s: %s", s->a.command, errmsg);
    }
    fill_lab(s, numbers);
    return check_lies(s, s->a.peers);
}

static int fill_rest(struct lab_setup *s)
{
    struct lab_options *o = &s->lab;
    char errmsg[ERRMSG_SIZE];
    int rv;

    o->machines = s->machines;
    o->events = s->events;
    rv = lab_links_read(s->a.links, s->machines, errmsg);
    rv = rv != 0
             ? rv
             : lab_members_read(s->a.members, s->events, &o->n_events, errmsg);
    if (rv != 0) {
        return cli_fail(TROUBLE_RUN_SETTINGS, "%s: %s", s->a.command, errmsg);
    }
    rv = lab_text_open(&s->text, s->a.data, errmsg);
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_RUN_SETTINGS), "%s: %s",
                        s->a.command, errmsg);
    }
    o->train = s->text.train;
    o->n_train = s->text.n_train;
    o->val = &s->text.val;
    return 0;
}

static int check_arguments(struct lab_setup *s)
{
    const struct lab_arguments *a = &s->a;

    if (a->peers == 0 || a->peers > LAB_PEERS_MAX || a->tokens == 0 ||
        a->threads == 0 || a->threads > BACKEND_THREADS_MAX) {
        return cli_fail(TROUBLE_USAGE,
                        "%s: --peers is 1 to %d, --tokens at least 1, "
                        "--threads 1 to %d",
                        a->command, LAB_PEERS_MAX, BACKEND_THREADS_MAX);
    }
    if (!backend_dtype_named(a->dtype, &s->lab.dtype)) {
        return cli_fail(TROUBLE_USAGE,
                        "%s: --dtype is fp32, bf16 or auto, not %s", a->command,
                        a->dtype);
    }
    return 0;
}

int lab_setup_open(struct lab_setup *s)
{
    int rv = check_arguments(s);

    rv = rv != 0 ? rv : fill_rest(s);
    return rv != 0 ? rv : lab_setup_settings(s);
}

void lab_setup_close(struct lab_setup *s)
{
    lab_text_close(&s->text);
}
