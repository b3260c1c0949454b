/* registered_test.c - memory of the process that the driver knows: a replica's
 * outer step by way of it, without it and with a part of it has the same bits;
 * what the system refuses, what is asked for twice, what is freed too early; a
 * copy that arrives after its GPU was given up. Needs the emulator. */
#include "tests/unit/cuda/bench.h"

#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/errmsg.h"
#include "tests/unit/train/short_method.h"
#include "train/replica/host.h"

#define ROUNDS 2

static char errmsg[ERRMSG_SIZE];
static struct device_options device;
static size_t page;

static int renew(void **state)
{
    (void)state;
    emu_as_new();
    return 0;
}

static size_t whole(size_t bytes)
{
    return (bytes + page - 1) / page * page;
}

/* ---- replicas ------------------------------------------------------------ */

static void open_replica(struct replica *r, const char *name)
{
    struct replica_options opt = small_replica();

    device = (struct device_options){.plugin = plugin_path,
                                     .gpu = {.bf16 = true, .timeout_ms = 50}};
    opt.device = &device;
    opt.model.vocab = 1000; /* vectors end within a page and a block */
    opt.method = method_of(name);
    if (opt.method.overlap == 0 && opt.method.period > 0 && !opt.method.eager &&
        opt.method.fragments == 1) {
        opt.method.period = 1;
    }
    if (strcmp(name, "streaming") == 0) {
        opt.method.wire = CODEC_E3M0;
    } else if (strcmp(name, "opendiloco") == 0) {
        opt.method.wire = CODEC_FP16;
    }
    opt.codec = codec_get_portable(opt.method.wire);
    if (replica_open(r, &opt, errmsg) != 0) {
        fail_msg("%s: %s", name, errmsg);
    }
    if (r->outer.on) {
        r->outer.most = 4096; /* several pieces */
    }
    replica_init(r);
}

/* Rounds of a replica; the wire bytes lie in pages of their own, which stay.
 * Returns the state and theta, at the end. */
static float *train(struct replica *r)
{
    size_t room = whole(r->opt.codec->bytes(r->n_wire));
    uint8_t *wire = aligned_alloc(page, room);
    float *out;

    assert_non_null(wire);
    for (int round = 1; round <= ROUNDS; round++) {
        struct replica_commit c = {r->round + 1, wire, 0.5, 2, 2};
        float loss;

        while (replica_left(r) > 0) {
            assert_int_equal(replica_step(r, &loss), 0);
        }
        assert_int_equal(replica_pack(r), 0);
        while (replica_beside(r) > 0) {
            assert_int_equal(replica_step(r, &loss), 0);
        }
        assert_int_equal(r->opt.codec->encode(wire, r->contribution,
                                              replica_elements(r), 0.5F),
                         0);
        replica_know_wire(r, wire, room);
        assert_int_equal(replica_commit(r, &c), 0);
    }
    out = calloc(3 * r->n, sizeof *out);
    assert_non_null(out);
    memcpy(out, r->phi, r->n * sizeof *out);
    if (r->m != NULL) {
        memcpy(out + r->n, r->m, r->n * sizeof *out);
    }
    r->backend.get(&r->backend, out + 2 * r->n, r->theta, r->n * sizeof *out);
    assert_int_equal(r->backend.finish(&r->backend), 0);
    replica_close(r); /* first, as replica.h says */
    free(wire);
    return out;
}

/* Every way of being refused, at every vector: the same bits, and no less is
 * registered than could be. */
static void refused_where_it_may_be(const char *name, const float *want)
{
    static const int errors[] = {2 /* memory */,
                                 1 /* value */,
                                 304 /* operating system */,
                                 712 /* registered already */,
                                 800 /* not permitted */,
                                 801 /* not supported */};
    bool hit = true;

    for (int n = 1; hit; n++) {
        struct replica r;
        float *got;
        uint64_t before = emu->direct;
        size_t bytes;
        bool outer;

        emu->fail_register = n;
        emu->register_error = errors[n % 6];
        open_replica(&r, name);
        bytes = 3 * r.n * sizeof *got;
        outer = r.outer.on;
        got = train(&r);
        hit = emu->fail_register == 0;
        (void)renew(NULL);
        if (outer) { /* the others went there at once */
            assert_true(emu->direct > before);
        }
        assert_memory_equal(got, want, bytes);
        free(got);
        assert_int_equal(emu->registered, 0);
    }
}

static void with_and_without_it_bits_are_the_same(void **state)
{
    static const char *const names[] = {"localsgd",   "diloco", "streaming",
                                        "opendiloco", "eager",  "ddp"};

    (void)state;
    /* AddressSanitizer is slow, and looks at addresses: three are enough. */
    for (size_t i = 0; i < (RUNS == 1 ? 3 : sizeof names / sizeof names[0]);
         i++) {
        struct replica r;
        float *want, *got;
        uint64_t before;
        size_t bytes;

        open_replica(&r, names[i]);
        bytes = 3 * r.n * sizeof *want;
        replica_unregister(&r);
        before = emu->direct;
        assert_int_equal(emu->registered, 0);
        r.outer.n_wires = REPLICA_WIRES_MAX; /* nor wires */
        want = train(&r);
        assert_true(emu->direct == before);
        open_replica(&r, names[i]);
        assert_true(emu->registered > 0);
        got = train(&r);
        assert_memory_equal(got, want, bytes);
        assert_int_equal(emu->registered, 0);
        refused_where_it_may_be(names[i], want);
        free(got);
        free(want);
    }
}

/* Rounds of diloco: phi and m to the GPU once; each time the displacement out,
 * the wire bytes in, phi and m home: none of it is copied by the processor. */
static void a_round_copies_nothing_by_the_processor(void **state)
{
    struct replica r;
    uint64_t before, bytes;

    (void)state;
    open_replica(&r, "diloco");
    assert_true(r.outer.on);
    assert_int_equal(emu->registered,
                     /* contribution; phi, m, old and new */
                     4 * whole(r.n_wire * 4) + whole(r.n * 4));
    before = emu->direct;
    bytes = 2 * r.n * sizeof(float) +
            ROUNDS * (3 * r.n * sizeof(float) + r.opt.codec->bytes(r.n_wire));
    free(train(&r));
    assert_int_equal(emu->direct - before, bytes);
}

/* A broken GPU, in each of its ways, and what takes its place. */
static void what_takes_the_place_of_a_gpu_registers_anew(void **state)
{
    (void)state;
    for (int processor = 0; processor < 2; processor++) {
        struct replica r;
        float loss;

        open_replica(&r, "diloco");
        emu->fail_launch = 1;
        assert_int_equal(replica_step(&r, &loss), LOCO_ECUDA);
        (void)renew(NULL);
        assert_int_equal(replica_recover(&r, processor == 0, errmsg), 0);
        assert_true((emu->registered > 0) == (processor == 0));
        free(train(&r));
        assert_int_equal(emu->registered, 0);
    }
}

/* ---- the plug-in alone --------------------------------------------------- */

static const struct plugin_table *table;
static struct gpu *opened;
static unsigned char *pages; /* 8 */

static int open_plugin(void **state)
{
    const struct plugin_options opt = {.bf16 = true, .timeout_ms = 50};
    char why[PLUGIN_ERRMSG];

    (void)renew(state);
    if (open_gpu_with(&gpu, &opt, why) != 0) {
        return -1;
    }
    table = device_table(gpu.device);
    opened = device_gpu(gpu.device);
    pages = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED ? -1 : 0;
}

static int close_plugin(void **state)
{
    (void)renew(state);
    backend_close(&gpu);
    return munmap(pages, 8 * page);
}

static void what_cannot_be_is_refused_and_the_gpu_goes_on(void **state)
{
    size_t half = (size_t)sysconf(_SC_PHYS_PAGES) / 2 * page + page;
    void *much = mmap(NULL, half, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    (void)state;
    assert_int_equal(table->host_register(opened, pages, 4 * page), 0);
    assert_int_equal(table->host_register(opened, pages, 4 * page), LOCO_EBUSY);
    assert_int_equal(table->host_register(opened, pages + 3 * page, 2 * page),
                     LOCO_EBUSY);
    assert_int_equal(table->host_register(opened, pages + 4 * page, page - 1),
                     LOCO_EINVAL);
    assert_int_equal(table->host_register(opened, pages + 5 * page - 64, page),
                     LOCO_EINVAL);
    assert_int_equal(table->host_register(opened, pages + 4 * page, 0),
                     LOCO_EINVAL);
    assert_true(much != MAP_FAILED);
    assert_int_equal(table->host_register(opened, much, half), LOCO_ENOMEM);
    assert_non_null(strstr(table->message(opened), "half"));
    assert_int_equal(munmap(much, half), 0);
    assert_true(table->is_registered(opened, pages, 4 * page));
    assert_true(table->is_registered(opened, pages + 7, 1));
    assert_false(table->is_registered(opened, pages, 4 * page + 1));
    assert_false(table->is_registered(opened, pages + 4 * page, 1));
    table->host_unregister(opened, pages + page); /* nothing begins there */
    assert_true(table->is_registered(opened, pages, 1));
    table->host_unregister(opened, pages);
    assert_false(table->is_registered(opened, pages, 1));
    assert_int_equal(table->finish(opened), 0);
    assert_int_equal(emu->registered, 0);
}

static void an_error_of_the_gpu_is_no_refusal(void **state)
{
    (void)state;
    emu->fail_register = 1;
    emu->register_error = 700;
    assert_int_equal(table->host_register(opened, pages, page), LOCO_ECUDA);
    assert_int_equal(table->finish(opened), LOCO_ECUDA);
}

/* What is on its way when the GPU stops to answer arrives after all, when the
 * processor has long written something else there: those bytes stay. */
static void late(bool beside)
{
    unsigned char *mine = pages;
    size_t bytes = 3 * page;
    void *from;
    int rv;

    assert_int_equal(table->host_register(opened, mine, 8 * page), 0);
    assert_int_equal(table->take(opened, &from, bytes), 0);
    assert_int_equal(table->clear(opened, from, bytes), 0);
    assert_int_equal(table->finish(opened), 0);
    emu->hanging = 1;
    rv = beside ? table->get_beside(opened, mine + page, from, bytes)
                : table->get(opened, mine + page, from, bytes);
    rv = rv != 0 ? rv : table->copies_done(opened);
    assert_int_equal(rv, LOCO_ETIMEOUT);
    backend_close(&gpu);
    memset(mine, 7, 8 * page);
    emu->hanging = 0;
    assert_int_equal(open_plugin(NULL), 0);
    /* The driver has not forgotten: it goes on by pinned memory. */
    assert_int_equal(table->host_register(opened, mine, 8 * page), LOCO_ENOMEM);
    assert_int_equal(table->take(opened, &from, bytes), 0);
    table->give(opened, from); /* waits for all that was ever queued */
    for (size_t i = 0; i < 8 * page; i++) {
        assert_int_equal(mine[i], 7);
    }
    /* mine stays: it is the driver's until the process ends */
}

static void a_copy_that_comes_late_changes_nothing(void **state)
{
    (void)state;
    late(true);
    late(false);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(with_and_without_it_bits_are_the_same, renew),
        cmocka_unit_test_setup(a_round_copies_nothing_by_the_processor, renew),
        cmocka_unit_test_setup(what_takes_the_place_of_a_gpu_registers_anew,
                               renew),
        cmocka_unit_test_setup_teardown(
            what_cannot_be_is_refused_and_the_gpu_goes_on, open_plugin,
            close_plugin),
        cmocka_unit_test_setup_teardown(an_error_of_the_gpu_is_no_refusal,
                                        open_plugin, close_plugin),
        cmocka_unit_test_setup_teardown(a_copy_that_comes_late_changes_nothing,
                                        open_plugin, close_plugin),
    };

    plugin_path = argc > 1 ? argv[1] : plugin_path;
    page = (size_t)sysconf(_SC_PAGESIZE);
    open_text();
    open_gpu(true);
    backend_close(&gpu);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
