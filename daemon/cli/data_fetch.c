/* data_fetch.c - loco data fetch: the shards of a run by their URLs,
 * without a daemon.
 *
 * For who starts a run whose data lies on a server, and to see whether URLs are
 * right before the run is announced. What is in DIR already and has its hash
 * stays; what broke off is continued.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/file_hash.h"
#include "daemon/settings/run_yaml.h"
#include "daemon/visit/download.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"

struct fetching {
    const char *out, *mirror;
    bool any;
    uint64_t stall_s, retries, cap;
    const struct manifest_shard *shard;
    char path[FILE_PATH_MAX], part[FILE_PATH_MAX], url[FILE_PATH_MAX];
};

static int stop_fd = -1;

static void on_signal(int signum)
{
    int before = errno;

    (void)signum;
    (void)eventfd_write(stop_fd, 1);
    errno = before;
}

static int is_shard(void *data, char *errmsg)
{
    const struct fetching *f = data;

    return file_check(f->part, f->shard->bytes, &f->shard->blake2b, errmsg);
}

static bool is_here(const struct fetching *f)
{
    return file_check(f->path, f->shard->bytes, &f->shard->blake2b, NULL) == 0;
}

static void on_progress(void *data, uint64_t bytes)
{
    const struct fetching *f = data;

    if (isatty(STDERR_FILENO)) {
        (void)fprintf(stderr, "\r%s  %llu of %llu MB", f->shard->name,
                      (unsigned long long)(bytes / 1000000),
                      (unsigned long long)(f->shard->bytes / 1000000));
    }
}

static void add_urls(struct fetching *f, struct download *d)
{
    const struct manifest_shard *s = f->shard;

    if (f->mirror != NULL) {
        size_t len = strlen(f->mirror);

        (void)snprintf(f->url, sizeof f->url, "%s%s%s", f->mirror,
                       len > 0 && f->mirror[len - 1] == '/' ? "" : "/",
                       s->name);
        d->urls[d->n_urls++] = (struct download_url){f->url, true};
    }
    for (uint32_t i = 0; i < s->n_urls; i++) {
        d->urls[d->n_urls++] = (struct download_url){s->urls[i], false};
    }
}

static int fetch_shard(struct fetching *f)
{
    struct download d = {
        .path = f->part,
        .bytes = f->shard->bytes,
        .private_too = f->any,
        .bytes_per_s = f->cap,
        .floor_bytes_per_s = 1000,
        .stall_ms = (uint32_t)f->stall_s * 1000,
        .retry_ms = 500,
        .tries = (uint32_t)f->retries,
        .stop_fd = stop_fd,
        .check = is_shard,
        .progress = on_progress,
        .data = f,
    };
    char errmsg[ERRMSG_SIZE];
    int rv;

    if (file_path_join(f->path, f->out, f->shard->name, errmsg) != 0 ||
        snprintf(f->part, sizeof f->part, "%s.url", f->path) >=
            (int)sizeof f->part) {
        return cli_fail(TROUBLE_USAGE, "data fetch: --out is too long");
    }
    if (is_here(f)) {
        (void)printf("%s is complete\n", f->path);
        return LOCO_EXIT_OK;
    }
    add_urls(f, &d);
    if (d.n_urls == 0) {
        return cli_fail(TROUBLE_DATA,
                        "data fetch: the run names no URL for %s; give "
                        "--mirror URL",
                        f->shard->name);
    }
    rv = download(&d, errmsg);
    if (rv == 0 && rename(f->part, f->path) != 0) {
        rv = LOCO_EIO;
        (void)snprintf(errmsg, sizeof errmsg, "rename: %s", strerror(errno));
    }
    if (rv != 0) {
        return cli_fail(rv == LOCO_EIO ? TROUBLE_DOWNLOAD
                                       : cli_trouble_of(rv, TROUBLE_DATA),
                        "data fetch: %s: %s", f->shard->name, errmsg);
    }
    (void)printf("%s\n", f->path);
    return LOCO_EXIT_OK;
}

static int fetch_all(struct fetching *f, const char *run)
{
    static struct run_yaml r;
    char errmsg[LOCO_ERRMSG_MAX];
    int rv = LOCO_EXIT_OK;

    if (run_yaml_load(run, RUN_YAML_SIGNED, &r, errmsg) != 0) {
        rv = cli_fail(TROUBLE_MANIFEST, "%s", errmsg);
    } else if (mkdir(f->out, 0755) != 0 && errno != EEXIST) {
        rv = cli_fail(TROUBLE_FILE, "data fetch: make %s: %s", f->out,
                      strerror(errno));
    }
    for (uint32_t i = 0; rv == 0 && i < r.manifest.data.n_shards; i++) {
        f->shard = &r.manifest.data.shards[i];
        rv = fetch_shard(f);
    }
    return rv;
}

int cli_data_fetch(const struct cli_call *call)
{
    struct fetching f = {.out = ".", .stall_s = 20, .retries = 4};
    struct cli_list words = {0};
    const struct cli_option options[] = {
        {"--out", CLI_TEXT, &f.out, "DIR", "directory for the shards (.)"},
        {"--mirror", CLI_TEXT, &f.mirror, "URL",
         "server to try first, as URL/NAME; may be file:///DIR"},
        {"--any", CLI_FLAG, &f.any, NULL,
         "allow URLs of this machine and its network"},
        {"--bytes-per-s", CLI_COUNT, &f.cap, "N",
         "download limit; 0: none (0)"},
        {"--stall-s", CLI_COUNT, &f.stall_s, "N",
         "retry a server after this silence (20)"},
        {"--tries", CLI_COUNT, &f.retries, "N",
         "failed tries after which a URL is given up (4)"},
    };
    int rv = CLI_PARSE(call, options, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    if (f.stall_s == 0 || f.stall_s > 3600 || f.retries == 0 ||
        f.retries > 1000) {
        return cli_fail(TROUBLE_USAGE, "data fetch: --stall-s is 1 to 3600, "
                                       "--tries 1 to 1000");
    }
    stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_fd >= 0) {
        (void)signal(SIGINT, on_signal);
        (void)signal(SIGTERM, on_signal);
    }
    return fetch_all(&f, words.item[0]);
}
