/* machine_memory_test.c - whether a run fits into a machine: with all
 * activations kept, with some made again, with the processor in the place of a
 * lost GPU; and what the machine says of it. */
#include "daemon/jobs/run_needs.h"
#include "tests/unit/daemon/rig_jobs.h"

#define LAYERS 4
#define DIM    32
#define SEQ    128
#define ROWS   8

static char said[4000]; /* by the last machine */
static uint64_t gpu_bytes = (uint64_t)1 << 40;
static uint32_t batch = ROWS;

static struct rig *make(uint32_t stages)
{
    struct rig *g = make_rig("localsgd");
    struct manifest *f = &g->manifest;

    f->model.layers = LAYERS;
    f->model.dim = f->model.ffn = DIM;
    f->model.seq = f->inner.seq = SEQ;
    f->model.tied = stages == 1;
    f->stages = stages;
    f->inner.batch = batch;
    f->inner.micro_batch = ROWS;
    add_text(g, "a.ltk", false);
    return g;
}

/* What a machine with so much memory (0: no limit) says that the run needs
 * there; 0: it refuses. */
static uint64_t need(uint32_t stages,
                     uint64_t cap,
                     const struct device_options *device,
                     bool cpu_fallback,
                     bool fits)
{
    struct rig *g = make(stages);
    FILE *f = tmpfile();
    int errors = dup(STDERR_FILENO);
    uint64_t bytes;

    g->settings.memory_bytes = cap;
    g->device = device;
    g->gpu_bytes = gpu_bytes;
    g->cpu_fallback = cpu_fallback;
    g->configured_rc = fits ? 0 : LOCO_ENOMEM;
    assert_true(f != NULL && errors >= 0);
    assert_true(dup2(fileno(f), STDERR_FILENO) >= 0);
    start_rig(g);
    assert_true(dup2(errors, STDERR_FILENO) >= 0);
    (void)close(errors);
    rewind(f);
    said[fread(said, 1, sizeof said - 1, f)] = '\0';
    (void)fclose(f);
    bytes = machine_memory_need(g->m);
    close_rig(g);
    return bytes;
}

static void expect(const char *words)
{
    if (strstr(said, words) == NULL) {
        fail_msg("\"%s\" is not in: %s", words, said);
    }
}

/* As few as it takes; refused is what does not fit even so. */
static void activations_are_made_again_before_a_run_is_refused(void **state)
{
    static const char *const what[] = {"recomputes norms and SwiGLU: with all",
                                       "recomputes whole layers"};
    uint64_t kept, bytes;

    (void)state;
    kept = bytes = need(1, 0, NULL, false, true);
    assert_null(strstr(said, "recompute"));
    assert_int_equal(need(1, kept, NULL, false, true), kept);
    for (int i = 0; i < 2; i++) {
        uint64_t less = need(1, bytes - 1, NULL, false, true);

        assert_true(less > 0 && less < bytes);
        expect(what[i]);
        expect(" MB, and the setting memory_bytes has ");
        bytes = less;
    }
    assert_true(kept - bytes > (uint64_t)3 << 20);
    assert_int_equal(need(1, bytes - 1, NULL, false, false), 0);
    expect("the run needs ");
    expect(" MB of memory, at least ");
    expect(" MB, and the setting memory_bytes has ");
}

/* Of each stage for itself; the figure is that of the one that takes least. */
static void a_stage_is_taken_that_fits_with_fewer_activations(void **state)
{
    uint64_t kept = need(2, 0, NULL, false, true), less;

    (void)state;
    less = need(2, kept - 1, NULL, false, true);
    assert_true(less > 0 && less < kept);
    less = need(2, less, NULL, false, true);
    assert_true(less > 0 && less < kept);
    assert_int_equal(need(2, 1, NULL, false, false), 0);
    expect(" MB of memory, at least ");
}

/* Bytes that the processor takes in the place of a GPU, of such a run. */
static uint64_t of_processor(enum llama_recompute recompute)
{
    struct replica_options o = {.model = {.dim = DIM,
                                          .layers = LAYERS,
                                          .heads = 2,
                                          .kv_heads = 2,
                                          .ffn = DIM,
                                          .vocab = 256,
                                          .seq = SEQ,
                                          .tied = true},
                                .optimizer = optimizer_defaults(),
                                .batch = ROWS,
                                .micro_batch = ROWS,
                                .seq = SEQ,
                                .threads = 1,
                                .recompute = recompute};

    return replica_fallback_bytes(&o);
}

static void the_processor_in_a_lost_gpus_place_is_counted(void **state)
{
    const struct device_options device = {.gpu = {.bf16 = true}};

    (void)state;
    for (uint32_t stages = 1; stages <= 2; stages++) {
        uint64_t alone = need(stages, 0, &device, false, true);
        uint64_t both = need(stages, 0, &device, true, true), less;

        assert_true(both > alone + ((uint64_t)4 << 20));
        if (stages == 1) {
            assert_int_equal(both - alone,
                             of_processor(LLAMA_RECOMPUTE_NOTHING));
        }
        less = need(stages, both - 1, &device, true, true);
        assert_true(less < both && less > alone);
        if (stages == 1) {
            assert_int_equal(less - alone,
                             of_processor(LLAMA_RECOMPUTE_BRANCHES));
            expect("once the GPU is lost, the backward pass recomputes norms");
        }
        /* Without: the run is not refused for it. */
        assert_int_equal(need(stages, alone, &device, true, true), alone);
        if (stages == 1) {
            expect("a GPU that is lost ends this machine's part in the run: "
                   "the processor in its place needs ");
        }
        assert_int_equal(need(stages, alone - 1, &device, true, false), 0);
    }
}

/* What `loco join` and `loco doctor` say is what a daemon does. */
static void what_is_said_before_is_what_the_machine_counts(void **state)
{
    const struct device_options device = {.gpu = {.bf16 = true}};

    (void)state;
    for (int gpu = 0; gpu < 3; gpu++) {
        const struct run_host host = {
            .threads = 1, .keep = 2, .gpu = gpu > 0, .cpu_fallback = gpu == 2};
        const struct device_options *d = gpu > 0 ? &device : NULL;
        struct rig *g = make(1);
        struct run_needs said_before = run_needs(&g->manifest, &host);
        uint64_t least = said_before.memory_least_bytes;

        free(g);
        assert_int_equal(need(1, 0, d, gpu == 2, true),
                         said_before.memory_bytes);
        assert_int_equal(need(1, least, d, gpu == 2, true), least);
        assert_int_equal(need(1, least - 1, d, gpu == 2, false), 0);
    }
}

/* What a small GPU leaves to this process's memory is counted, and said before;
 * it stays with the GPU where that has no room for it, before the processor's
 * place is given up. */
static void moments_of_a_small_gpu_are_counted(void **state)
{
    static const struct device_options device = {.gpu = {.bf16 = true}};
    const uint64_t usual = gpu_bytes;
    const uint64_t n = 8; /* bytes of a parameter's moments */

    (void)state;
    for (int fallback = 0; fallback < 2; fallback++) {
        const struct run_host host = {.threads = 1,
                                      .keep = 2,
                                      .gpu = true,
                                      .cpu_fallback = fallback == 1};
        struct rig *g;
        struct run_needs said_before;
        uint64_t kept, more, least, less = 0;

        batch = 32768 / SEQ; /* a long step: layers are made again after it */
        g = make(1);
        said_before = run_needs(&g->manifest, &host);
        free(g);
        kept = said_before.memory_bytes;
        more = kept + said_before.gpu.moments_bytes;
        assert_int_equal(more, kept + n * said_before.parameters);
        gpu_bytes = said_before.gpu.stay_bytes - PLUGIN_PRODUCTS_BYTES;
        assert_int_equal(need(1, 0, &device, fallback, true), kept);
        gpu_bytes--;
        assert_int_equal(need(1, 0, &device, fallback, true), more);
        assert_int_equal(need(1, more, &device, fallback, true), more);
        /* Each level of what the processor would keep, then moments there. */
        for (int i = 0; i < (fallback ? 3 : 1); i++) {
            less = need(1, (i == 0 ? more : less) - 1, &device, fallback, true);
            assert_true(less < more);
            assert_null(strstr(said, "ends this machine's part"));
        }
        assert_true(less <= kept);
        /* A GPU that holds nothing more than it must: no room, no run. */
        gpu_bytes = said_before.gpu.least_bytes - PLUGIN_PRODUCTS_BYTES;
        assert_int_equal(need(1, 0, &device, fallback, true), more);
        least = said_before.memory_least_bytes + n * said_before.parameters;
        assert_int_equal(need(1, least, &device, fallback, true), least);
        assert_int_equal(need(1, least - 1, &device, fallback, false), 0);
        expect("the run needs ");
        gpu_bytes--; /* for the replica to refuse */
        assert_int_equal(need(1, 0, &device, fallback, true), kept);
    }
    batch = ROWS;
    gpu_bytes = usual;
}

/* A loop of its own holds the model: nobody computes it here when a GPU is
 * lost. Of a list of tensors it cannot even be said what that would take. */
static void a_loops_model_has_no_place_of_a_lost_gpu(void **state)
{
    const struct run_host gpu = {.threads = 1,
                                 .keep = 2,
                                 .gpu = true,
                                 .cpu_fallback = true,
                                 .socket = true};
    struct run_host without = gpu;
    struct rig *g = make(1);

    (void)state;
    without.cpu_fallback = false;
    for (int tensors = 0; tensors < 2; tensors++) {
        uint64_t memory = run_needs(&g->manifest, &gpu).memory_bytes;

        assert_true(memory > 0);
        assert_int_equal(memory,
                         run_needs(&g->manifest, &without).memory_bytes);
        g->manifest.model = (struct manifest_model){.params = 1000};
    }
    free(g);
}

/* The stage that takes least with all activations kept need not be the one that
 * takes least without: the last one has logits. */
static void the_least_is_that_of_any_stage(void **state)
{
    const struct run_host host = {.threads = 1, .keep = 2};
    struct rig *g = make(4);
    struct manifest_model *m = &g->manifest.model;
    struct run_needs needs;

    (void)state;
    m->dim = 2048;
    m->layers = 16;
    m->heads = m->kv_heads = 16;
    m->ffn = 5504;
    m->vocab = 128000;
    m->seq = g->manifest.inner.seq = 1024;
    g->manifest.inner.batch = g->manifest.inner.micro_batch = 2;
    needs = run_needs(&g->manifest, &host);
    /* The last stage takes 18.3 GB, at least 17.0; one in the middle 14.4. */
    assert_true(needs.memory_bytes > 18000000000);
    assert_true(needs.memory_least_bytes < 15000000000);
    free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(activations_are_made_again_before_a_run_is_refused),
        CASE(a_stage_is_taken_that_fits_with_fewer_activations),
        CASE(the_processor_in_a_lost_gpus_place_is_counted),
        CASE(what_is_said_before_is_what_the_machine_counts),
        CASE(moments_of_a_small_gpu_are_counted),
        CASE(a_loops_model_has_no_place_of_a_lost_gpu),
        CASE(the_least_is_that_of_any_stage),
    };

    if (sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
