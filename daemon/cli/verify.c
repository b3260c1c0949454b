/* verify.c - loco verify: a run.yaml and its shards, a state directory, a file
 * of evidence. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "daemon/cli/cli.h"
#include "daemon/jobs/evidence.h"
#include "daemon/model/model.h"
#include "daemon/settings/file_hash.h"
#include "daemon/settings/run_yaml.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"

/* ---- a run, a state directory ------------------------------------------- */

/* One shard against the manifest; 0, or an exit code after a sentence. */
static int verify_shard(const struct manifest_shard *s, const char *dir)
{
    char path[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    int rv = file_path_join(path, dir, s->name, errmsg);

    rv = rv != 0 ? rv : file_check(path, s->bytes, &s->blake2b, errmsg);
    if (rv != 0 && rv != LOCO_EHASH) {
        return cli_fail(TROUBLE_DATA, "%s", errmsg);
    }
    if (rv != 0) {
        return cli_fail(TROUBLE_DATA,
                        "%s: its hash differs from the manifest's; pack the "
                        "data again or fetch the file again",
                        path);
    }
    return 0;
}

static int verify_run(const char *path)
{
    static struct run_yaml r;
    char errmsg[LOCO_ERRMSG_MAX], dir[FILE_PATH_MAX];
    int rv;

    file_folder(dir, path);
    rv = run_yaml_load(path, RUN_YAML_SIGNED, &r, errmsg);
    if (rv != 0) {
        rv = cli_fail(TROUBLE_MANIFEST, "%s", errmsg);
    }
    for (uint32_t i = 0; rv == 0 && i < r.manifest.data.n_shards; i++) {
        rv = verify_shard(&r.manifest.data.shards[i], dir);
    }
    if (rv == 0) {
        (void)printf("%s: signature and %u shards are valid\n", path,
                     r.manifest.data.n_shards);
    }
    return rv;
}

/* The newest checkpoint's checksum, and the manifest's signature. */
static int verify_state(const struct cli_list *dirs)
{
    char errmsg[ERRMSG_SIZE];
    struct model m;
    int rv = model_open_state(&m, dirs->item, dirs->n, errmsg);

    if (rv != 0) {
        rv =
            cli_fail(rv == LOCO_ENOMEM ? TROUBLE_RESOURCES : TROUBLE_CHECKPOINT,
                     "%s", errmsg);
    } else {
        (void)printf("%s: manifest and checkpoint of round %llu are valid\n",
                     dirs->item[0], (unsigned long long)m.round);
    }
    model_close(&m);
    return rv;
}

/* ---- evidence ----------------------------------------------------------- */

/* What is wrong, as the end of a sentence. */
static void finding(const struct evidence_verdict *v, char *out, size_t cap)
{
    uint32_t n = (uint32_t)(v->end - v->first);
    int k;

    switch (v->finding) {
    case EVIDENCE_DIFFERS:
        k = snprintf(out, cap,
                     "are not the sum of the %u contributions: ", v->n_members);
        (void)snprintf(out + k, cap - (size_t)k,
                       v->n_differ == 0
                           ? "they are the same numbers in other bytes"
                           : "%u of %u differ, by %.6g at most",
                       v->n_differ, n, v->largest);
        return;
    case EVIDENCE_NO_SUM:
        (void)snprintf(out, cap,
                       "are no sum: the %u contributions have none that is "
                       "made of finite numbers, and who owns them votes for "
                       "no result then",
                       v->n_members);
        return;
    case EVIDENCE_NO_NUMBERS:
        (void)snprintf(out, cap,
                       "are not the sum of the %u contributions: its bytes are "
                       "no finite numbers",
                       v->n_members);
        return;
    case EVIDENCE_BAD_WORK: /* is about no sum: print_work() */
        (void)snprintf(out, cap, "are no sum");
        return;
    }
}

static void print_work(const struct evidence_verdict *v, const char *run)
{
    (void)printf("In run %s it voted for round %llu in a view of epoch %llu "
                 "that has %u full members, and %u of them signed that its "
                 "work for that round is bad.\n"
                 "The file does not show that this view is one of the run: "
                 "its members know.\n",
                 run, (unsigned long long)v->round,
                 (unsigned long long)v->epoch, v->n_members, v->n_words);
}

static void print_sum(const struct evidence_verdict *v, const char *run)
{
    char what[256];

    finding(v, what, sizeof what);
    (void)printf("In run %s, round %llu of epoch %llu, it owned elements %llu "
                 "to %llu and signed a result in which they %s.\n",
                 run, (unsigned long long)v->round,
                 (unsigned long long)v->epoch, (unsigned long long)v->first,
                 (unsigned long long)v->end - 1, what);
}

static void print_verdict(const char *path, const struct evidence_verdict *v)
{
    char run[ID_HEX_MAX], id[ID_HEX_MAX], brief[ID_SHORT_MAX];

    hash32_hex(&v->run, run);
    id_hex(&v->accused, id);
    id_short(&v->accused, brief);
    (void)printf("%s convicts peer %s (%s).\n", path, brief, id);
    if (v->finding == EVIDENCE_BAD_WORK) {
        print_work(v, run);
    } else {
        print_sum(v, run);
    }
}

static const char *finding_name(enum evidence_finding f)
{
    return f == EVIDENCE_DIFFERS    ? "differs"
           : f == EVIDENCE_NO_SUM   ? "no-sum"
           : f == EVIDENCE_BAD_WORK ? "bad-work"
                                    : "no-numbers";
}

/* What both kinds have. */
static json_t *verdict_json(const struct evidence_verdict *v)
{
    char run[ID_HEX_MAX], id[ID_HEX_MAX], brief[ID_SHORT_MAX];

    hash32_hex(&v->run, run);
    id_hex(&v->accused, id);
    id_short(&v->accused, brief);
    return json_pack("{s:b, s:s, s:s, s:s, s:I, s:I, s:I, s:s}", "convicts", 1,
                     "peer_id", id, "short", brief, "run_id", run, "round",
                     (json_int_t)v->round, "epoch", (json_int_t)v->epoch,
                     "members", (json_int_t)v->n_members, "finding",
                     finding_name(v->finding));
}

static int print_verdict_json(const struct evidence_verdict *v)
{
    json_t *more =
        v->finding == EVIDENCE_BAD_WORK
            ? json_pack("{s:I}", "words", (json_int_t)v->n_words)
            : json_pack("{s:I, s:I, s:I, s:f}", "first", (json_int_t)v->first,
                        "elements", (json_int_t)(v->end - v->first), "differ",
                        (json_int_t)v->n_differ, "largest", v->largest);
    json_t *all = verdict_json(v);
    bool bad =
        all == NULL || more == NULL || json_object_update(all, more) != 0;

    json_decref(more);
    if (bad) {
        json_decref(all);
        all = NULL;
    }
    return cli_print_json(all, JSON_REAL_PRECISION(9));
}

static int verify_evidence(const char *path, bool json)
{
    const struct signer verifier = signer_sodium(NULL);
    struct evidence_verdict verdict;
    struct file_map map = {0};
    char errmsg[ERRMSG_SIZE];
    int rv = file_map_open(&map, path, errmsg);

    if (rv != 0) {
        return cli_fail(TROUBLE_FILE, "%s", errmsg);
    }
    rv = evidence_check(map.data, map.size, &verifier, &verdict, errmsg);
    file_map_close(&map);
    if (rv != 0) {
        return cli_fail(rv == LOCO_ENOMEM ? TROUBLE_RESOURCES
                                          : TROUBLE_EVIDENCE,
                        "%s convicts nobody: %s", path, errmsg);
    }
    if (json) {
        return print_verdict_json(&verdict);
    }
    print_verdict(path, &verdict);
    return LOCO_EXIT_OK;
}

int cli_verify(const struct cli_call *call)
{
    struct cli_list files = {0}, state = {0};
    const char *evidence = NULL;
    bool json = false;
    const struct cli_option options[] = {
        {"--state", CLI_LIST, &state, "DIR",
         "state directory of a stopped daemon; with stages, repeat it for each "
         "stage"},
        {"--evidence", CLI_TEXT, &evidence, "FILE",
         "what convicts a member of a run with audits, of a wrong sum or of "
         "bad work; needs nothing else, and exit code 0 means that it "
         "convicts"},
        {"--json", CLI_FLAG, &json, NULL,
         "of --evidence: print one JSON object"},
    };
    int rv = CLI_PARSE(call, options, &files, 0, CLI_LIST_MAX);

    if (rv != CLI_GO) {
        return rv;
    }
    if ((files.n == 0 && state.n == 0) == (evidence == NULL) ||
        (json && evidence == NULL)) {
        return cli_fail(TROUBLE_USAGE, "verify: name a run.yaml, or --state "
                                       "DIR, or --evidence FILE, which alone "
                                       "takes --json");
    }
    if (evidence != NULL) {
        return verify_evidence(evidence, json);
    }
    rv = 0;
    for (size_t i = 0; rv == 0 && i < files.n; i++) {
        rv = verify_run(files.item[i]);
    }
    return rv == 0 && state.n > 0 ? verify_state(&state) : rv;
}
