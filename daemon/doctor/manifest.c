/* manifest.c - the probe of a run's manifest and its shards, see
 * doctor/probe.h. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/doctor/probe.h"
#include "daemon/jobs/run_needs.h"
#include "daemon/settings/file_hash.h"
#include "daemon/settings/run_yaml.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/file.h"

/* More is left to `loco verify`: about a second of hashing. */
#define HASH_BYTES_MAX ((uint64_t)1 << 30)

static void check_shard(struct fact_manifest *m,
                        const struct manifest_shard *s,
                        const char *dir,
                        uint64_t *left_bytes)
{
    char path[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    struct hash32 hash;
    struct stat st;
    bool bad;

    if (file_path_join(path, dir, s->name, errmsg) != 0 ||
        stat(path, &st) != 0) {
        if (m->missing[0] == '\0') {
            (void)snprintf(m->missing, sizeof m->missing, "%s", s->name);
        }
        return;
    }
    m->n_here++;
    bad = (uint64_t)st.st_size != s->bytes;
    if (!bad && s->bytes <= *left_bytes) {
        *left_bytes -= s->bytes;
        m->n_hashed++;
        bad = file_hash(path, &hash, errmsg) != 0 ||
              !hash32_eq(&hash, &s->blake2b);
    }
    if (bad && m->bad[0] == '\0') {
        (void)snprintf(m->bad, sizeof m->bad, "%s", s->name);
    }
}

static void check(struct fact_manifest *m,
                  const struct run_yaml *r,
                  const char *dir,
                  const struct run_host *host)
{
    const struct manifest_data *data = &r->manifest.data;
    struct run_needs needs = run_needs_stated(&r->manifest, host);
    uint64_t left_bytes = HASH_BYTES_MAX;

    (void)snprintf(m->name, sizeof m->name, "%s", r->manifest.name);
    m->floor_bytes_per_s = r->manifest.round.progress_floor_bytes_per_s;
    m->memory_bytes = needs.memory_bytes;
    m->memory_least_bytes = needs.memory_least_bytes;
    m->disk_bytes = needs.disk_bytes;
    m->gpu = needs.gpu;
    m->n_shards = data->n_shards;
    for (uint32_t i = 0; i < data->n_shards; i++) {
        check_shard(m, &data->shards[i], dir, &left_bytes);
    }
    if (m->n_here == m->n_shards && m->bad[0] == '\0') {
        m->disk_bytes = m->disk_bytes > needs.spare_bytes
                            ? m->disk_bytes - needs.spare_bytes
                            : 0;
    }
}

void probe_manifest(const struct doctor_options *opt, void *fact)
{
    struct fact_manifest *m = fact;
    char path[FILE_PATH_MAX], dir[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX] = "";
    struct run_yaml *r;

    if (opt->run != NULL) {
        (void)snprintf(path, sizeof path, "%s", opt->run);
        file_folder(dir, opt->run);
    } else if (file_path_join(path, opt->state, STATE_DIR_MANIFEST, errmsg) !=
                   0 ||
               file_path_join(dir, opt->state, STATE_DIR_SHARDS, errmsg) != 0 ||
               access(path, F_OK) != 0) {
        return; /* no run was ever here */
    }
    r = calloc(1, sizeof *r);
    if (r == NULL) {
        return;
    }
    (void)snprintf(m->source, sizeof m->source, "%.250s", path);
    m->must_be_here = opt->run != NULL;
    m->rc = opt->run != NULL ? run_yaml_load(path, RUN_YAML_SIGNED, r, errmsg)
                             : run_yaml_load_kept(path, r, errmsg);
    (void)snprintf(m->errmsg, sizeof m->errmsg, "%s",
                   errmsg[0] != '\0' || m->rc == 0 ? errmsg
                                                   : loco_strerror(m->rc));
    if (m->rc == 0) {
        check(m, r, dir, &opt->host);
    }
    free(r);
}
