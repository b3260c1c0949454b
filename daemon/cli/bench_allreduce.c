/* bench_allreduce.c - loco bench allreduce. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <sodium.h>

#include "daemon/bench/allreduce.h"
#include "daemon/cli/cli.h"
#include "p2p/uv/addr.h"
#include "proto/base/err.h"
#include "proto/hash.h"
#include "proto/limits.h"
#include "proto/uri.h"

#define ELEMENTS_MAX (1ULL << 32)
#define SEGMENT_KIB  256 /* as the daemon's; 64 to 512 measure alike */

struct arguments {
    const char *wire, *exchange, *encryption, *cipher, *addresses, *rank;
    const char *fault;
    uint64_t fault_percent;
    uint64_t peers, elements, rounds, warmup, segment_kib, sites;
    bool verbose, json;
};

static int print_json(const struct arguments *a, const struct bench_result *r)
{
    json_t *o = json_pack(
        "{s:I, s:I, s:s, s:s, s:I, s:s, s:f, s:f, s:f, s:f, s:f, s:I, s:f, "
        "s:f, s:I, "
        "s:f, s:I, s:I}",
        "peers", (json_int_t)a->peers, "elements", (json_int_t)a->elements,
        "wire", a->wire, "exchange", a->exchange, "rounds",
        (json_int_t)a->rounds, "encryption", a->encryption, "seconds_median",
        r->seconds_median, "seconds_min", r->seconds_min,
        "commit_seconds_median", r->commit_seconds_median, "elements_per_s",
        r->elements_per_s, "bus_bytes_per_s", r->bus_bytes_per_s, "bytes_sent",
        (json_int_t)r->bytes_sent, "cpu_seconds", r->cpu_seconds,
        "hash_cpu_seconds", r->hash_cpu_seconds, "max_rss_bytes",
        (json_int_t)r->max_rss_bytes, "max_error", r->max_error,
        "rounds_aborted", (json_int_t)r->rounds_aborted, "segment_kib",
        (json_int_t)a->segment_kib);

    if (a->fault != NULL) {
        json_object_update_new(
            o, json_pack("{s:s, s:f, s:f, s:f}", "fault", a->fault, "fault_at",
                         (double)a->fault_percent / 100, "fault_seconds",
                         r->fault_seconds, "fault_commit_seconds",
                         r->fault_commit_seconds));
    }
    if (a->rank != NULL) { /* the figures are this rank's alone */
        json_object_set_new(
            o, "rank", json_integer((json_int_t)strtoul(a->rank, NULL, 10)));
    }
    return cli_print_json(o, JSON_REAL_PRECISION(9));
}

static int print_text(const struct arguments *a, const struct bench_result *r)
{
    (void)printf("%llu peers, %llu elements, %s, %s, encryption %s: %.2f ms "
                 "per round (best %.2f), commit %.2f ms later\n"
                 "%.1f M elements/s, %.2f GB/s per rank and direction\n"
                 "per round: %.1f MB sent, %.3f CPU seconds, %.3f of them to "
                 "hash the vote; peak memory %.0f MB per rank; largest error "
                 "%.2g\n",
                 (unsigned long long)a->peers, (unsigned long long)a->elements,
                 a->wire, a->exchange, a->encryption, r->seconds_median * 1e3,
                 r->seconds_min * 1e3, r->commit_seconds_median * 1e3,
                 r->elements_per_s / 1e6, r->bus_bytes_per_s / 1e9,
                 r->bytes_sent / 1e6, r->cpu_seconds, r->hash_cpu_seconds,
                 (double)r->max_rss_bytes / 1e6, r->max_error);
    if (a->fault != NULL) {
        (void)printf("%s of the last rank at %llu %% of the last round: the "
                     "others had the result after %.3f s, the commit after "
                     "%.3f s\n",
                     a->fault, (unsigned long long)a->fault_percent,
                     r->fault_seconds, r->fault_commit_seconds);
    }
    return LOCO_EXIT_OK;
}

/* "A,B,...": one HOST:PORT a rank, numeric hosts. */
static int read_addresses(const char *text,
                          struct bench_rank_options *o,
                          char host[URI_HOST_MAX])
{
    char one[ADDR_TEXT_MAX], errmsg[LOCO_ERRMSG_MAX];

    for (uint32_t k = 0; k < o->n; k++) {
        size_t len = strcspn(text, ",");
        struct uri_host h;

        if (len == 0 || len >= sizeof one) {
            return LOCO_EINVAL;
        }
        memcpy(one, text, len);
        one[len] = '\0';
        if (uri_host_parse(one, false, &h, errmsg) != 0 ||
            address_parse(h.host, h.port, &o->address[k]) != 0) {
            return LOCO_EINVAL;
        }
        if (k == o->rank) {
            memcpy(host, h.host, URI_HOST_MAX);
            o->host = host;
            o->port = h.port;
        }
        text += len;
        text += *text == ',' ? 1 : 0;
    }
    return *text == '\0' ? 0 : LOCO_EINVAL;
}

static int check(struct arguments *a)
{
    const struct codec *codec = codec_find(a->wire);

    if (codec == NULL) {
        return cli_fail(TROUBLE_USAGE,
                        "bench allreduce: --wire is %s, not '%s'", codec_names,
                        a->wire);
    }
    if (a->exchange == NULL) { /* the ring, where it can carry that */
        a->exchange = codec_adds(codec) ? "ring" : "butterfly";
    }
    if (strcmp(a->exchange, "ring") != 0 && strcmp(a->exchange, "auto") != 0 &&
        strcmp(a->exchange, "butterfly") != 0) {
        return cli_fail(TROUBLE_USAGE,
                        "bench allreduce: --exchange is ring, butterfly or "
                        "auto, not '%s'",
                        a->exchange);
    }
    if (strcmp(a->exchange, "butterfly") != 0 && !codec_adds(codec)) {
        return cli_fail(TROUBLE_USAGE,
                        "bench allreduce: a ring sums on the way, and %s "
                        "cannot be summed: use --exchange butterfly",
                        a->wire);
    }
    if (a->sites > a->peers ||
        (a->sites > 0 && strcmp(a->exchange, "ring") != 0)) {
        return cli_fail(TROUBLE_USAGE, "bench allreduce: --sites needs a ring "
                                       "and at most one site per rank");
    }
    if (strcmp(a->encryption, "on") != 0 && strcmp(a->encryption, "off") != 0) {
        return cli_fail(TROUBLE_USAGE,
                        "bench allreduce: --encryption is on or off, not '%s'",
                        a->encryption);
    }
    if (a->peers < 2 || a->peers > BENCH_PEERS_MAX || a->elements == 0 ||
        a->elements > ELEMENTS_MAX || a->rounds == 0 ||
        a->rounds > BENCH_ROUNDS_MAX || a->warmup > BENCH_ROUNDS_MAX ||
        a->segment_kib == 0 || a->segment_kib > 1024) {
        return cli_fail(TROUBLE_USAGE,
                        "bench allreduce: --peers is 2 to %d, --elements 1 to "
                        "2^32, --rounds 1 to %d, a segment 1 to 1024 KiB",
                        BENCH_PEERS_MAX, BENCH_ROUNDS_MAX);
    }
    if (strcmp(a->cipher, "auto") != 0 && strcmp(a->cipher, "chacha20") != 0) {
        return cli_fail(TROUBLE_USAGE,
                        "bench allreduce: --cipher is auto or chacha20, not "
                        "'%s'",
                        a->cipher);
    }
    if (a->fault != NULL &&
        ((strcmp(a->fault, "kill") != 0 && strcmp(a->fault, "stop") != 0) ||
         a->fault_percent > 100 || a->rank != NULL || a->peers < 3 ||
         a->rounds < 2)) {
        return cli_fail(TROUBLE_USAGE,
                        "bench allreduce: --fault is kill or stop, --fault-at "
                        "0 to 100 per cent; a fault needs at least 3 ranks and "
                        "2 rounds on this machine");
    }
    if ((a->rank == NULL) != (a->addresses == NULL)) {
        return cli_fail(
            TROUBLE_USAGE,
            "bench allreduce: give both --rank and --addresses, or neither");
    }
    return CLI_GO;
}

/* Ranks that were not started for the same measurement must not meet. */
static void name_run(const struct arguments *a, struct bench_rank_options *o)
{
    struct hash_state s;
    uint64_t numbers[] = {a->elements, a->rounds, o->warmup, a->segment_kib,
                          a->sites};

    hash_init(&s, "loco-bench-1");
    hash_update(&s, numbers, sizeof numbers);
    hash_update(&s, a->wire, strlen(a->wire) + 1);
    hash_update(&s, a->exchange, strlen(a->exchange) + 1);
    hash_update(&s, a->addresses, strlen(a->addresses));
    hash_final(&s, &o->run_id);
}

/* One rank of many processes. */
static int run_rank(const struct arguments *a,
                    struct bench_rank_options *o,
                    struct bench_result *result)
{
    char host[URI_HOST_MAX];
    size_t len = strlen(a->rank);

    if (strspn(a->rank, "0123456789") != len || len == 0 || len > 2 ||
        sscanf(a->rank, "%u", &o->rank) != 1 || o->rank >= o->n) {
        return cli_fail(TROUBLE_USAGE,
                        "bench allreduce: --rank is 0 to %u, not '%s'",
                        o->n - 1, a->rank);
    }
    if (read_addresses(a->addresses, o, host) != 0) {
        return cli_fail(TROUBLE_USAGE,
                        "bench allreduce: --addresses is a comma-separated "
                        "list of %u numeric HOST:PORT, one per rank",
                        o->n);
    }
    name_run(a, o);
    return bench_allreduce_rank(o, result);
}

static void set_options(const struct arguments *a, struct bench_rank_options *o)
{
    bool butterfly = strcmp(a->exchange, "butterfly") == 0;
    bool ring = !butterfly && a->sites == 0;

    o->n = (uint32_t)a->peers;
    o->elements = a->elements;
    o->codec = codec_find(a->wire);
    o->exchange = butterfly ? EXCHANGE_BUTTERFLY
                  : ring    ? EXCHANGE_RING
                            : EXCHANGE_SITES;
    o->adapts = strcmp(a->exchange, "auto") == 0;
    o->sites = (uint32_t)a->sites;
    o->rounds = (uint32_t)a->rounds;
    o->warmup = a->warmup > 0 ? (uint32_t)a->warmup : 2 * o->n;
    o->segment_bytes = (uint32_t)a->segment_kib << 10;
    o->encrypted = strcmp(a->encryption, "on") == 0;
    o->no_aes = strcmp(a->cipher, "auto") != 0;
    if (a->fault != NULL) {
        o->fault =
            strcmp(a->fault, "kill") == 0 ? BENCH_FAULT_KILL : BENCH_FAULT_STOP;
        o->fault_at = (double)a->fault_percent / 100;
    }
    o->verbose = a->verbose;
}

int cli_bench_allreduce(const struct cli_call *call)
{
    struct arguments a = {.wire = "fp16",
                          .encryption = "on",
                          .cipher = "auto",
                          .fault_percent = 50,
                          .peers = 2,
                          .elements = 16U << 20,
                          .rounds = 9,
                          .segment_kib = SEGMENT_KIB};
    const struct cli_option options[] = {
        {"--peers", CLI_COUNT, &a.peers, "N", "number of ranks (2)"},
        {"--elements", CLI_COUNT, &a.elements, "E",
         "elements of the vector (16 Mi)"},
        {"--wire", CLI_TEXT, &a.wire, codec_names, "wire type (fp16)"},
        {"--exchange", CLI_TEXT, &a.exchange, "ring|butterfly|auto",
         "exchange (ring where the wire type can be summed)"},
        {"--sites", CLI_COUNT, &a.sites, "S",
         "number of sites; the first N / S ranks are one (0: none)"},
        {"--rounds", CLI_COUNT, &a.rounds, "R", "rounds to measure (9)"},
        {"--warmup", CLI_COUNT, &a.warmup, "W", "warm-up rounds (2 N)"},
        {"--encryption", CLI_TEXT, &a.encryption, "on|off",
         "encrypt tensor data (on)"},
        {"--cipher", CLI_TEXT, &a.cipher, "auto|chacha20",
         "auto: AES where the processor supports it (auto)"},
        {"--fault", CLI_TEXT, &a.fault, "kill|stop",
         "what the last rank does in the last round"},
        {"--fault-at", CLI_COUNT, &a.fault_percent, "P",
         "per cent of that round at which it happens (50)"},
        {"--segment-kib", CLI_COUNT, &a.segment_kib, "K",
         "bytes of a segment, in KiB"},
        {"--rank", CLI_TEXT, &a.rank, "I", "run only this rank"},
        {"--addresses", CLI_TEXT, &a.addresses, "A,B,...",
         "addresses of all ranks"},
        {"--verbose", CLI_FLAG, &a.verbose, NULL, "log level of every rank"},
        {"--json", CLI_FLAG, &a.json, NULL, "print one JSON object"},
    };
    struct bench_rank_options o = {.host = "127.0.0.1"};
    struct bench_result result = {0};
    bool child = false;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    rv = rv == CLI_GO ? check(&a) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    set_options(&a, &o);
    if (a.rank != NULL) {
        rv = run_rank(&a, &o, &result);
    } else {
        randombytes_buf(o.run_id.b, sizeof o.run_id.b);
        rv = bench_allreduce_local(&o, &result, &child);
    }
    if (child || rv > 0) {
        return rv;
    }
    if (rv < 0) {
        return cli_fail(
            cli_trouble_of(rv, TROUBLE_RUN_SETTINGS), "bench allreduce: %s",
            result.error[0] != '\0' ? result.error : loco_strerror(rv));
    }
    return a.json ? print_json(&a, &result) : print_text(&a, &result);
}
