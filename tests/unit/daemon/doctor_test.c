/* doctor_test.c - facts and the lines that follow from them. What real sockets
 * and files give is in tests/e2e/doctor_tests.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "daemon/doctor/doctor.h"
#include "daemon/doctor/probe.h"
#include "daemon/jobs/run_needs.h"
#include "daemon/settings/method_manifest.h"
#include "daemon/settings/run_model.h"
#include "proto/base/err.h"

#define NOW_S 1800000000

/* A machine with nothing wrong, behind no NAT, asked about no run. */
static struct doctor_facts *sound(void)
{
    static struct doctor_facts f;
    static const uint8_t v4[16] = {0, 0, 0,    0,    0,  0,   0, 0,
                                   0, 0, 0xff, 0xff, 93, 184, 1, 2};

    memset(&f, 0, sizeof f);
    f.limit_ms = 5000;
    f.driver.state = f.memory.state = f.disk.state = FACT_FOUND;
    f.clock.state = f.ip.state = f.port.state = FACT_FOUND;
    f.memory.total_bytes = 16000000000;
    f.memory.available_bytes = 8000000000;
    (void)snprintf(f.disk.path, sizeof f.disk.path, "/state");
    f.disk.exists = true;
    f.disk.free_bytes = 50000000000;
    f.disk.free_files = UINT64_MAX;
    f.clock.now_s = NOW_S;
    f.clock.ntp_known = f.clock.ntp_synced = true;
    f.clock.ntp_error_ms = 12;
    f.ip.v4_route = true;
    memcpy(f.ip.v4.ip, v4, 16);
    (void)snprintf(f.port.listen, sizeof f.port.listen, "0.0.0.0:7700");
    f.port.port = 7700;
    return &f;
}

/* The same, with one bootstrap that was talked to. */
static struct doctor_facts *linked(void)
{
    struct doctor_facts *f = sound();
    struct fact_host *h = &f->host[0];

    f->n_hosts = 1;
    h->state = FACT_FOUND;
    h->limit_ms = 4000;
    (void)snprintf(h->host.host, sizeof h->host.host, "seed.example");
    h->host.port = 7700;
    h->is_name = true;
    h->contact.step = CONTACT_TALKED;
    h->contact.observed = f->ip.v4;
    return f;
}

static void set_v4(struct address *a, const uint8_t v4[4])
{
    memset(a->ip, 0, 10);
    memset(a->ip + 10, 0xff, 2);
    memcpy(a->ip + 12, v4, 4);
}

/* The line of one check has this level, and holds these texts. */
static void expect(const struct doctor_facts *f,
                   enum doctor_check check,
                   enum doctor_level level,
                   const char *what,
                   const char *fix)
{
    struct doctor_line line[DOCTOR_CHECK_COUNT];

    doctor_judge(f, line);
    if (line[check].level != level || strstr(line[check].what, what) == NULL ||
        (fix != NULL && strstr(line[check].fix, fix) == NULL)) {
        fail_msg("%s: %s: %s -> %s", doctor_check_name(check),
                 doctor_level_name(line[check].level), line[check].what,
                 line[check].fix);
    }
    assert_true(level == DOCTOR_OK || line[check].fix[0] != '\0');
}

static void a_sound_machine_has_no_warning(void **state)
{
    struct doctor_line line[DOCTOR_CHECK_COUNT];

    (void)state;
    doctor_judge(linked(), line);
    for (int i = 0; i < DOCTOR_CHECK_COUNT; i++) {
        assert_true(line[i].level == DOCTOR_OK ||
                    line[i].level == DOCTOR_UNCHECKED);
        assert_true(line[i].what[0] != '\0');
        assert_true(line[i].level != DOCTOR_OK || line[i].fix[0] == '\0');
    }
    expect(linked(), DOCTOR_CHECK_nat, DOCTOR_OK,
           "no NAT towards seed.example, which sees our address 93.184.1.2",
           NULL);
}

static void every_way_a_gpu_can_fail_has_its_fix(void **state)
{
    struct doctor_facts *f = sound();
    struct fact_driver *d = &f->driver;

    (void)state;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_OK, "no NVIDIA GPU", NULL);
    d->n_nvidia = 1;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_WARNING, "module is not loaded",
           "apt-get install nvidia-driver");
    d->module = true;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_WARNING, "libcuda.so.1 cannot",
           "libcuda1");
    d->library = true;
    d->cuda_rc = 803;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_WARNING, "cuInit fails with code 803",
           "restart");
    d->cuda_rc = 0;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_WARNING, "shows no GPU",
           "CUDA_VISIBLE_DEVICES");
    d->n_devices = 2;
    d->bytes = 80000000000;
    d->cuda_version = 12040;
    (void)snprintf(d->name, sizeof d->name, "H100");
    expect(f, DOCTOR_CHECK_driver, DOCTOR_OK,
           "2 GPUs, first H100 with 80.0 GB, CUDA 12.4; this build trains on "
           "the CPU",
           NULL);
    d->wanted = true;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_PROBLEM, "H100", "use --device cpu");
    d->built = true;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_OK, "CUDA 12.4", NULL);
    d->need.bytes = d->need.least_bytes = 30000000000;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_OK, "takes at most 30.0 GB", NULL);
    d->cap_bytes = 20000000000;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_WARNING, "takes at most 30.0 GB",
           "gpu_memory_bytes allows 20.0 GB: raise it");
    d->need.least_bytes = 15000000000;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_WARNING, "takes at most 30.0 GB",
           "needs at least 15.0 GB, which the setting gpu_memory_bytes "
           "allows. It may");
    d->need.least_bytes = 25000000000;
    d->need.bytes = 90000000000;
    d->cap_bytes = 0;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_WARNING, "takes at most 90.0 GB",
           "needs at least 25.0 GB, which the GPU has. It may");
    d->need.least_bytes = 85000000000;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_WARNING, "takes at most 90.0 GB",
           "A run may use 79.5 GB of the GPU's memory, which may not suffice");
    d->n_devices = 0;
    expect(f, DOCTOR_CHECK_driver, DOCTOR_PROBLEM, "shows no GPU",
           "CUDA_VISIBLE_DEVICES");
}

static void a_run(struct manifest *m)
{
    const struct preset *preset;

    assert_int_equal(preset_find("opendiloco", &preset, NULL), 0);
    manifest_default(m);
    manifest_from_preset(m, preset);
    m->model.dim = 64;
    m->model.ffn = 128;
    m->model.heads = m->model.kv_heads = 4;
    m->model.layers = 4;
    m->model.vocab = 256;
    m->model.seq = m->inner.seq = 64;
    m->model.tied = false;
}

static void
a_manifest_of_another_run_says_nothing_of_this_ones_need(void **state)
{
    static const struct run_host host = {.threads = 1, .keep = 2};
    static struct manifest wrong, right;
    struct doctor_facts *f = linked();

    (void)state;
    a_run(&right);
    wrong = right;
    wrong.limits.memory_bytes = wrong.limits.disk_bytes = 1ULL << 40;
    f->n_hosts = 2;
    f->host[1] = f->host[0];
    f->run_id.b[0] = 1;
    f->host[0].contact.manifest = &wrong;
    f->host[0].contact.manifest_run.b[0] = 2;
    f->host[1].contact.manifest = &right;
    f->host[1].contact.manifest_run.b[0] = 1;
    doctor_take_needs(&host, f);
    assert_true(f->memory.need_bytes == run_needs(&right, &host).memory_bytes);
    assert_true(f->disk.need_bytes == run_needs(&right, &host).disk_bytes);
    assert_true(f->memory.need_bytes > 0);
    /* Of its own, doctor counts what the author states; the sums do not. */
    f->host[1].contact.manifest = &wrong;
    f->memory.need_bytes = 0;
    doctor_take_needs(&host, f);
    assert_true(f->memory.need_bytes == 1ULL << 40);
    assert_true(run_needs(&wrong, &host).memory_bytes < 1ULL << 40);
}

/* Counted by hand: bytes a parameter, beside the second replica. */
static void an_audit_of_work_takes_a_second_replica_and_more(void **state)
{
    const uint64_t bases = 4 * 4, contributions = 3 * 2, own = 6 * 4;
    const uint64_t rooms = 3 * (4 + 4 + 4), again = 8 + 12;
    struct replica_options r = {.threads = 1, .batch = 1, .seq = 64};
    const char *reason = NULL;
    static struct manifest m;
    struct run_vector v;
    uint64_t n, less, more, want;

    (void)state;
    a_run(&m);
    assert_int_equal(run_model_whole(&m, &r.model, &r.part, NULL), 0);
    assert_int_equal(run_vector_read(&v, &m, NULL), 0);
    assert_int_equal(run_inner_read(&r, &m.inner, &reason), 0);
    v.exchange = EXCHANGE_BUTTERFLY;
    v.codec = codec_find("fp16");
    v.audits = true;
    r.method = v.method;
    r.codec = v.codec;
    n = (uint64_t)r.part.numel;
    less = run_memory(&v, &r, n, false);
    v.audits_work = true;
    more = run_memory(&v, &r, n, false);
    want =
        replica_bytes(&r) + n * (bases + contributions + own + rooms + again);
    assert_true(more - less >= want);
    assert_true(more - less <= want + (4U << 20)); /* drawn blocks */
}

/* As large as a manifest allows: what people agree to is no small number that
 * is left when a sum wraps. */
static void the_largest_run_needs_much(void **state)
{
    static struct manifest m;
    struct run_needs needs;

    (void)state;
    a_run(&m);
    m.model.dim = 32768;
    m.model.ffn = 131072;
    m.model.heads = m.model.kv_heads = 128;
    m.model.layers = 512;
    m.model.vocab = 1U << 20;
    m.model.seq = m.inner.seq = 131072;
    m.inner.batch = 1U << 20;
    m.inner.micro_batch = MANIFEST_PASS_MAX / m.model.seq;
    m.sync.period = UINT32_MAX;
    needs = run_needs(&m, NULL);
    assert_true(needs.parameters > 1ULL << 42);
    assert_true(needs.memory_bytes > 1ULL << 52);
    assert_true(needs.memory_bytes < 1ULL << 60);
    assert_true(needs.disk_bytes > 1ULL << 46);
    assert_true(needs.round_bytes > 1ULL << 43);
    a_run(&m);
    m.stages = 2;
    m.inner.batch = 1U << 20;
    m.inner.micro_batch = 1;
    m.sync.period = UINT32_MAX; /* 2^65 bytes across the cut */
    assert_true(run_needs(&m, NULL).round_bytes > 1ULL << 58);
}

/* A part of the state, and what crosses the cut, bf16 with a label a row. */
static void a_stage_sends_its_part_and_what_crosses_its_cuts(void **state)
{
    static struct manifest m;
    uint64_t whole, rows, row, two;

    (void)state;
    a_run(&m);
    whole = run_needs(&m, NULL).round_bytes;
    assert_true(whole > 0);
    rows = (uint64_t)m.sync.period * m.inner.batch * m.inner.seq;
    row = 2ULL * m.model.dim + 4;
    m.stages = 2;
    two = run_needs(&m, NULL).round_bytes;
    assert_true(two > rows * row + whole / 4);
    assert_true(two < rows * row + whole * 3 / 4);
}

static void memory_is_held_against_the_runs_need_and_the_cgroup(void **state)
{
    struct doctor_facts *f = sound();

    (void)state;
    f->memory.need_bytes = 9000000000;
    expect(f, DOCTOR_CHECK_memory, DOCTOR_PROBLEM,
           "8.0 GB of 16.0 GB available; the run needs 9.0 GB", "9.0 GB free");
    f->memory.least_bytes = 8100000000;
    expect(f, DOCTOR_CHECK_memory, DOCTOR_PROBLEM, "the run needs 9.0 GB",
           "8.1 GB free");
    f->memory.least_bytes = 7500000000;
    expect(f, DOCTOR_CHECK_memory, DOCTOR_WARNING, "the run needs 9.0 GB",
           "It suffices for 7.5 GB: the run recomputes activations, and steps "
           "are up to a third longer.");
    f->driver.need.bytes = 1;
    expect(f, DOCTOR_CHECK_memory, DOCTOR_WARNING, "the run needs 9.0 GB",
           "longer. A GPU that is lost may end this machine's part.");
    /* What a GPU of 6 GB leaves to this process's memory comes on top. */
    f->driver.wanted = f->driver.built = true;
    f->driver.n_devices = 1;
    f->driver.bytes = 6000000000;
    f->driver.need.stay_bytes = 5000000000;
    f->driver.need.moments_bytes = 400000000;
    expect(f, DOCTOR_CHECK_memory, DOCTOR_WARNING, "the run needs 9.0 GB",
           "It suffices for 7.5 GB");
    f->driver.need.stay_bytes = 6000000000;
    expect(f, DOCTOR_CHECK_memory, DOCTOR_WARNING, "the run needs 9.4 GB",
           "It suffices for 7.5 GB");
    f->driver.wanted = false;
    f->driver.need.bytes = 0;
    f->memory.need_bytes = 4000000000;
    f->memory.limit_bytes = 1000000000;
    expect(f, DOCTOR_CHECK_memory, DOCTOR_PROBLEM, "limit of this cgroup",
           "Raise the memory limit");
    f->daemon.state = FACT_FOUND; /* it has its memory already */
    expect(f, DOCTOR_CHECK_memory, DOCTOR_OK, "1.0 GB", NULL);
    f = sound();
    f->memory.available_bytes = 100000000;
    expect(f, DOCTOR_CHECK_memory, DOCTOR_WARNING, "a run needs at least",
           "Close other programs");
}

static void the_disk_needs_room_for_what_is_not_there_yet(void **state)
{
    struct doctor_facts *f = sound();

    (void)state;
    f->disk.need_bytes = 60000000000;
    expect(f, DOCTOR_CHECK_disk, DOCTOR_PROBLEM, "50.0 GB free at /state",
           "Free 10.0 GB there");
    f->disk.used_bytes = 20000000000;
    expect(f, DOCTOR_CHECK_disk, DOCTOR_OK, "the run still needs 40.0 GB",
           NULL);
    f->disk.free_files = 10;
    expect(f, DOCTOR_CHECK_disk, DOCTOR_WARNING, "50.0 GB", "inodes");
    f->disk.rc = EACCES;
    expect(f, DOCTOR_CHECK_disk, DOCTOR_PROBLEM, "this user cannot write",
           "chown -R \"$USER\" '/state'");
    f->disk.rc = EIO;
    expect(f, DOCTOR_CHECK_disk, DOCTOR_PROBLEM, "Input/output error",
           "another state directory");
}

static void the_clock_is_judged_by_what_knows_most(void **state)
{
    struct doctor_facts *f = linked();
    struct contact *c = &f->host[0].contact;

    (void)state;
    expect(f, DOCTOR_CHECK_clock, DOCTOR_OK, "within 12 ms", NULL);
    c->newest_expiry_s = NOW_S + 7200 - 600; /* signed ten minutes ago */
    expect(f, DOCTOR_CHECK_clock, DOCTOR_OK, "within 12 ms", NULL);
    c->newest_expiry_s = NOW_S + 7200 + 5000; /* signed in our future */
    expect(f, DOCTOR_CHECK_clock, DOCTOR_PROBLEM,
           "this clock is 5000 s behind the times that the run's peers signed",
           "timedatectl set-ntp true");
    c->newest_expiry_s = NOW_S + 7200 - 3000; /* and not renewed since */
    expect(f, DOCTOR_CHECK_clock, DOCTOR_WARNING, "this clock is 2100 s ahead",
           "timedatectl");
    f = sound();
    f->clock.ntp_synced = false;
    expect(f, DOCTOR_CHECK_clock, DOCTOR_WARNING, "NTP is not synchronised",
           "systemd-timesyncd");
    f->clock.stepped_ms = -2000;
    expect(f, DOCTOR_CHECK_clock, DOCTOR_WARNING, "jumped by -2000 ms",
           "only one");
    f->clock.now_s = 1000;
    expect(f, DOCTOR_CHECK_clock, DOCTOR_PROBLEM, "has not been set",
           "timedatectl");
}

static void ipv6_without_a_route_is_a_warning_no_network_a_problem(void **state)
{
    struct doctor_facts *f = sound();

    (void)state;
    expect(f, DOCTOR_CHECK_ipv6, DOCTOR_OK, "no IPv6 here", NULL);
    f->ip.v6_address = true;
    expect(f, DOCTOR_CHECK_ipv6, DOCTOR_WARNING, "no route", "ip -6 route");
    f->ip.v6_route = true;
    f->ip.v6.ip[0] = 0x20;
    expect(f, DOCTOR_CHECK_ipv6, DOCTOR_OK, "address", NULL);
    f->ip = (struct fact_ip){.state = FACT_FOUND};
    expect(f, DOCTOR_CHECK_ipv6, DOCTOR_PROBLEM, "no route to the internet",
           "ip route");
}

static void nat_is_seen_from_outside_and_cgnat_has_another_fix(void **state)
{
    static const uint8_t home[4] = {192, 168, 1, 7}, cgnat[4] = {100, 70, 1, 2};
    struct doctor_facts *f = linked();

    (void)state;
    set_v4(&f->ip.v4, home);
    expect(f, DOCTOR_CHECK_nat, DOCTOR_WARNING,
           "seed.example sees 93.184.1.2, but this machine is 192.168.1.7",
           "Forward TCP port 7700 on the router");
    f->port.port = 0;
    expect(f, DOCTOR_CHECK_nat, DOCTOR_WARNING, "behind a NAT",
           "Listen on a fixed port");
    f->port.port = 7700;
    set_v4(&f->ip.v4, cgnat);
    expect(f, DOCTOR_CHECK_nat, DOCTOR_WARNING, "behind a NAT",
           "ask the provider for a public address");
    f->n_hosts = 0;
    expect(f, DOCTOR_CHECK_nat, DOCTOR_WARNING, "100.70.1.2 is a CGNAT address",
           "CGNAT");
    f->daemon.state = FACT_FOUND;
    (void)snprintf(f->daemon.reachability, sizeof f->daemon.reachability,
                   "unknown");
    expect(f, DOCTOR_CHECK_nat, DOCTOR_WARNING, "CGNAT address", NULL);
    (void)snprintf(f->daemon.reachability, sizeof f->daemon.reachability,
                   "relayed");
    (void)snprintf(f->daemon.reachability_reason,
                   sizeof f->daemon.reachability_reason,
                   "three peers tried to dial back");
    expect(
        f, DOCTOR_CHECK_nat, DOCTOR_WARNING,
        "the daemon's reachability is relayed: three peers tried to dial back",
        "CGNAT");
    (void)snprintf(f->daemon.reachability, sizeof f->daemon.reachability,
                   "public");
    expect(f, DOCTOR_CHECK_nat, DOCTOR_OK, "public", NULL);
}

static void a_port_that_cannot_be_had_says_why(void **state)
{
    struct doctor_facts *f = sound();

    (void)state;
    f->port.rc = EACCES;
    expect(f, DOCTOR_CHECK_port, DOCTOR_PROBLEM, "may not listen on 0.0.0.0",
           "above 1023");
    f->daemon.state = FACT_FOUND;
    expect(f, DOCTOR_CHECK_port, DOCTOR_PROBLEM, "does not answer",
           "nft list ruleset");
    f->port.ours = true;
    (void)snprintf(f->daemon.reachability, sizeof f->daemon.reachability,
                   "public");
    expect(f, DOCTOR_CHECK_port, DOCTOR_OK, "from outside: public", NULL);
    f->port.state = FACT_NONE;
    expect(f, DOCTOR_CHECK_port, DOCTOR_UNCHECKED, "is not known", "--listen");
}

static void bandwidth_is_held_against_the_runs_floor(void **state)
{
    struct doctor_facts *f = linked();
    struct fact_host *h = &f->host[0];

    (void)state;
    expect(f, DOCTOR_CHECK_bandwidth, DOCTOR_UNCHECKED, "only on request",
           "--bandwidth");
    h->wants_transfer = true;
    h->contact.transfer_rc = LOCO_ETIMEOUT;
    expect(f, DOCTOR_CHECK_bandwidth, DOCTOR_WARNING, "deadline passed",
           "try again");
    h->contact.transfer_bytes = 8000000;
    h->contact.transfer_us = 2000000;
    expect(f, DOCTOR_CHECK_bandwidth, DOCTOR_OK,
           "4.0 MB/s from seed.example (8.0 MB in 2.00 s)", NULL);
    f->manifest.floor_bytes_per_s = 5000000;
    expect(f, DOCTOR_CHECK_bandwidth, DOCTOR_PROBLEM, "4.0 MB/s",
           "counts a peer below 5.0 MB/s as gone");
    f->manifest.floor_bytes_per_s = 0;
    h->contact.transfer_us = 200000000;
    expect(f, DOCTOR_CHECK_bandwidth, DOCTOR_WARNING, "40.0 kB/s",
           "Rounds will wait");
}

static void
without_a_transfer_the_daemons_rounds_tell_the_bandwidth(void **state)
{
    struct doctor_facts *f = sound();

    (void)state;
    f->daemon.state = FACT_FOUND;
    f->daemon.best_in_bytes_per_s = 3000000;
    expect(f, DOCTOR_CHECK_bandwidth, DOCTOR_OK,
           "received at up to 3.0 MB/s and sent at up to ?/s", NULL);
    f->daemon.best_out_bytes_per_s = 20000;
    f->manifest.floor_bytes_per_s = 32768;
    expect(f, DOCTOR_CHECK_bandwidth, DOCTOR_WARNING, "sent at up to 20.0 kB/s",
           "raise upload_bytes_per_s");
}

static void every_step_towards_a_bootstrap_has_its_sentence(void **state)
{
    static const struct {
        enum contact_step step;
        int rc;
        const char *what, *fix;
    } cases[] = {
        {CONTACT_RESOLVE, EAI_AGAIN, "cannot be resolved", "line dns"},
        {CONTACT_CONNECT, -ECONNREFUSED, "refuses connections", "port"},
        {CONTACT_CONNECT, LOCO_ETIMEOUT, "does not answer within 4.0 s",
         "firewall"},
        {CONTACT_CONNECT, -ENETUNREACH, "Network is unreachable", "ip route"},
        {CONTACT_HANDSHAKE, LOCO_ERUN, "of another run or protocol version",
         "run id"},
        {CONTACT_HANDSHAKE, LOCO_ESIG, "not the peer", "invitation"},
        {CONTACT_HANDSHAKE, LOCO_EPROTO, "is not a loco peer", "port"},
        {CONTACT_HANDSHAKE, LOCO_ECLOSED, "during the handshake",
         "too many connections"},
        {CONTACT_HANDSHAKE, LOCO_ETIMEOUT, "sends nothing", "hangs"},
        {CONTACT_HANDSHAKE, -EPIPE, "Broken pipe", "Try again"},
        {CONTACT_HELLO, LOCO_ECLOSED, "completes the handshake", "full"},
        {CONTACT_HELLO, LOCO_ERUN, "speaks versions 2 to 3 of the protocol",
         "Update the older"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct doctor_facts *f = linked();

        f->host[0].contact.step = cases[i].step;
        f->host[0].contact.rc = cases[i].rc;
        f->host[0].contact.oldest = 2;
        f->host[0].contact.newest = 3;
        expect(f, DOCTOR_CHECK_bootstrap, DOCTOR_PROBLEM, cases[i].what,
               cases[i].fix);
        expect(f, DOCTOR_CHECK_manifest, DOCTOR_UNCHECKED,
               "no peer sent a manifest", "bootstrap");
        f->host[1] = f->host[0];
        f->n_hosts = 2;
        expect(f, DOCTOR_CHECK_bootstrap, DOCTOR_PROBLEM,
               "none of 2 answers: ", NULL);
    }
}

static void an_ipv6_host_stands_in_brackets(void **state)
{
    struct doctor_facts *f = linked();

    (void)state;
    (void)snprintf(f->host[0].host.host, sizeof f->host[0].host.host,
                   "2001:db8::7");
    f->host[0].host.ipv6 = true;
    expect(f, DOCTOR_CHECK_bootstrap, DOCTOR_OK,
           "1 of 1 answer; [2001:db8::7]:7700 is peer ", NULL);
}

static void a_name_server_that_is_silent_is_not_a_wrong_name(void **state)
{
    struct doctor_facts *f = linked();

    (void)state;
    f->host[0].contact.step = CONTACT_RESOLVE;
    f->host[0].contact.rc = EAI_NONAME;
    expect(f, DOCTOR_CHECK_dns, DOCTOR_PROBLEM, "cannot resolve seed.example",
           "spelt");
    f->host[0].contact.rc = EAI_AGAIN;
    expect(f, DOCTOR_CHECK_dns, DOCTOR_PROBLEM, "seed.example",
           "/etc/resolv.conf");
    f->host[0].state = FACT_LATE;
    expect(f, DOCTOR_CHECK_dns, DOCTOR_PROBLEM, "no answer in time",
           "/etc/resolv.conf");
    expect(f, DOCTOR_CHECK_bootstrap, DOCTOR_PROBLEM, "no answer within 5.0 s",
           "another peer");
}

static void what_was_refused_to_strangers_is_said(void **state)
{
    struct doctor_facts *f = sound();
    struct fact_daemon *d = &f->daemon;

    (void)state;
    d->state = FACT_NONE;
    expect(f, DOCTOR_CHECK_strangers, DOCTOR_UNCHECKED, "no daemon", "locod");
    d->state = FACT_FOUND;
    d->strangers = 4;
    expect(f, DOCTOR_CHECK_strangers, DOCTOR_OK, "nothing was refused", NULL);
    d->n_refused = 90;
    d->n_network_refused = 70;
    (void)snprintf(d->network, sizeof d->network, "9.9.9.0/24");
    (void)snprintf(d->why, sizeof d->why, "bytes");
    expect(f, DOCTOR_CHECK_strangers, DOCTOR_OK,
           "refused 90 times, most to 9.9.9.0/24 (70, bytes)", NULL);
    d->overdrawn = 2;
    expect(f, DOCTOR_CHECK_strangers, DOCTOR_WARNING, "2 over their budget",
           "firewall");
}

static void what_is_late_is_said_and_does_not_hide_the_rest(void **state)
{
    struct doctor_facts *f = sound();

    (void)state;
    f->disk.state = f->driver.state = f->manifest.state = FACT_LATE;
    f->daemon.state = FACT_LATE;
    expect(f, DOCTOR_CHECK_disk, DOCTOR_WARNING, "no answer within 5.0 s",
           "--limit");
    expect(f, DOCTOR_CHECK_driver, DOCTOR_WARNING, "no answer", "--limit");
    expect(f, DOCTOR_CHECK_manifest, DOCTOR_WARNING, "no answer",
           "loco verify");
    expect(f, DOCTOR_CHECK_daemon, DOCTOR_WARNING, "no answer", "SIGTERM");
    expect(f, DOCTOR_CHECK_memory, DOCTOR_OK, "8.0 GB", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_machine_has_no_warning),
        cmocka_unit_test(every_way_a_gpu_can_fail_has_its_fix),
        cmocka_unit_test(
            a_manifest_of_another_run_says_nothing_of_this_ones_need),
        cmocka_unit_test(an_audit_of_work_takes_a_second_replica_and_more),
        cmocka_unit_test(the_largest_run_needs_much),
        cmocka_unit_test(a_stage_sends_its_part_and_what_crosses_its_cuts),
        cmocka_unit_test(memory_is_held_against_the_runs_need_and_the_cgroup),
        cmocka_unit_test(the_disk_needs_room_for_what_is_not_there_yet),
        cmocka_unit_test(the_clock_is_judged_by_what_knows_most),
        cmocka_unit_test(
            ipv6_without_a_route_is_a_warning_no_network_a_problem),
        cmocka_unit_test(nat_is_seen_from_outside_and_cgnat_has_another_fix),
        cmocka_unit_test(a_port_that_cannot_be_had_says_why),
        cmocka_unit_test(bandwidth_is_held_against_the_runs_floor),
        cmocka_unit_test(
            without_a_transfer_the_daemons_rounds_tell_the_bandwidth),
        cmocka_unit_test(every_step_towards_a_bootstrap_has_its_sentence),
        cmocka_unit_test(an_ipv6_host_stands_in_brackets),
        cmocka_unit_test(a_name_server_that_is_silent_is_not_a_wrong_name),
        cmocka_unit_test(what_was_refused_to_strangers_is_said),
        cmocka_unit_test(what_is_late_is_said_and_does_not_hide_the_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
