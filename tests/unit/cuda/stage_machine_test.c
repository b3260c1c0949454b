/* A machine that holds a stage on a GPU (emulated): what its jobs answer when
 * the GPU breaks or lacks memory, and what it does when it moves to another
 * stage after that. */
#include <dlfcn.h>

#include "tests/emu/emu_control.h"
#include "tests/unit/daemon/rig_jobs.h"

#define TAG ((uint64_t)7 << 32)

static struct device_options device = {
    .plugin = LOCO_EMULATED_PLUGIN,
    .gpu = {.bf16 = true},
};
static struct emu_control *emu;

static uint64_t memory_bytes; /* of the machine; 0: no limit */
static uint64_t moments_need; /* of the last one that takes() made */
static uint32_t stages = 2, batch = 2;
static uint64_t cap_bytes; /* of the GPU; 0: none */

/* A run of two stages of one layer, and a GPU as new. */
static struct rig *open_rig(bool cpu_fallback)
{
    struct rig *g = make_rig("localsgd");
    struct manifest *f = &g->manifest;

    emu->memory = (uint64_t)8 << 30;
    emu->fail_malloc = emu->fail_launch = emu->fail_pin = 0;
    emu->sticky = emu->hanging = 0;
    device.gpu.memory_bytes = cap_bytes;
    f->model.layers = 2;
    f->stages = stages;
    f->model.tied = false;
    f->inner.batch = batch;
    f->eval.tokens = 2 * RIG_SEQ;
    add_text(g, "a.ltk", false);
    add_text(g, "v.ltk", true);
    g->device = &device;
    g->gpu_bytes = emu->memory;
    g->cpu_fallback = cpu_fallback;
    g->settings.memory_bytes = memory_bytes;
    start_rig(g);
    return g;
}

static int stage(struct rig *g, uint32_t index)
{
    struct job job = {.type = JOB_STAGE, .stage.stage = index};

    return ask(g, &job, LOCAL_STAGED)->rc;
}

/* A machine in the first stage, at round 0. */
static struct rig *open_first(bool cpu_fallback)
{
    struct rig *g = open_rig(cpu_fallback);

    assert_int_equal(stage(g, 0), 0);
    load_seed(g);
    return g;
}

static int work(struct rig *g, enum pipe_op op, uint32_t count)
{
    bool evaluates = op == PIPE_EVAL_FORWARD;
    struct job job = {.type = JOB_PIPE,
                      .pipe = {.op = op,
                               .attempt = TAG,
                               .slot = evaluates ? g->terms.pipe_slots : 0,
                               .round = evaluates ? 0 : 1,
                               .count = count}};

    return ask(g, &job, LOCAL_PIPED)->rc;
}

/* The GPU breaks in a forward pass. */
static void break_gpu(struct rig *g)
{
    assert_int_equal(work(g, PIPE_FORWARD, 0), 0);
    emu->fail_launch = 1;
    assert_int_equal(work(g, PIPE_FORWARD, 0), LOCO_ECUDA);
}

/* ---- a GPU that breaks --------------------------------------------------- */

/* Whatever the job is: the node hears that there is nothing to work on. */
static void without_fallback_a_broken_gpu_is_no_device(void **state)
{
    static const enum pipe_op ops[] = {PIPE_FORWARD, PIPE_STEP,
                                       PIPE_EVAL_FORWARD};
    struct rig *g = open_first(false);

    (void)state;
    break_gpu(g);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        assert_int_equal(work(g, ops[i], 0), LOCO_EDEVICE);
    }
    close_rig(g);
}

/* It may answer again in the meantime. */
static void a_gpu_that_comes_back_is_opened_for_the_next_attempt(void **state)
{
    struct rig *g = open_first(false);

    (void)state;
    break_gpu(g);
    emu->sticky = 0;
    assert_int_equal(work(g, PIPE_FORWARD, 0), 0);
    assert_int_equal(work(g, PIPE_STEP, 0), 0);
    close_rig(g);
}

/* What the processor takes in its place is in what the stage needs; without
 * that memory there is no such place. */
static void the_processor_takes_over_where_there_is_memory_for_it(void **state)
{
    uint64_t need[2];

    (void)state;
    for (int fallback = 0; fallback < 2; fallback++) {
        struct rig *g = open_first(fallback != 0);

        need[fallback] = machine_memory_need(g->m);
        close_rig(g);
    }
    assert_true(need[1] > need[0]);
    for (int there = 0; there < 2; there++) {
        struct rig *g;

        memory_bytes = need[there];
        g = open_first(true);
        memory_bytes = 0;
        assert_int_equal(machine_memory_need(g->m), need[there]);
        break_gpu(g);
        assert_int_equal(work(g, PIPE_FORWARD, 0), there ? 0 : LOCO_EDEVICE);
        close_rig(g);
    }
}

/* What a machine logs when it takes the model, or its first stage, and whether
 * it does; the GPU has so many bytes then, under its cap. */
static bool takes(uint64_t gpu, char *said, size_t cap)
{
    FILE *f = tmpfile();
    int errors = dup(STDERR_FILENO);
    struct rig *g;
    bool taken;

    assert_true(f != NULL && errors >= 0);
    assert_true(dup2(fileno(f), STDERR_FILENO) >= 0);
    cap_bytes = gpu;
    g = open_rig(false);
    taken = stages == 1 || stage(g, 0) == 0;
    if (taken) {
        load_seed(g);
    }
    moments_need = machine_memory_need(g->m);
    close_rig(g);
    cap_bytes = 0;
    assert_true(dup2(errors, STDERR_FILENO) >= 0);
    (void)close(errors);
    rewind(f);
    said[fread(said, 1, cap - 1, f)] = '\0';
    (void)fclose(f);
    return taken;
}

/* The GPU has less when the stage, or the model, is taken than when the machine
 * began: what it leaves to this process's memory is counted, or is not there.
 * Of a step of so many tokens layers can be made again instead. */
static void moments_are_here_only_where_they_are_counted(void **state)
{
    static const char here[] = "the optimizer's moments, ",
                      layers[] = "recomputes whole layers";
    const uint64_t products = (uint64_t)64 << 20;
    uint64_t usual, gpu = products + 200000; /* of 183,000 they are here */
    char said[4000];

    (void)state;
    batch = 32768 / RIG_SEQ;
    assert_true(takes(0, said, sizeof said));
    usual = moments_need;
    assert_null(strstr(said, here));
    do {
        gpu -= 2000;
        assert_true(gpu > products + 10000);
        assert_true(takes(gpu, said, sizeof said));
    } while (strstr(said, here) == NULL);
    assert_true(moments_need > usual);
    memory_bytes = moments_need;
    assert_true(takes(gpu, said, sizeof said));
    assert_non_null(strstr(said, here));
    memory_bytes--;
    assert_true(takes(gpu, said, sizeof said));
    assert_null(strstr(said, here));
    assert_non_null(strstr(said, layers));
    assert_int_equal(moments_need, usual);
    memory_bytes = 0;

    stages = 1; /* its need was found at the start, with all of the GPU */
    gpu = products + 280000; /* with 254,000 layers are made again */
    do {
        gpu -= 1000;
        assert_true(gpu > products + 10000);
        assert_true(takes(gpu, said, sizeof said));
        assert_null(strstr(said, here));
    } while (strstr(said, layers) == NULL);
    stages = batch = 2;
}

/* A launcher finds no memory: that of activations goes, and with it what was in
 * the slots. The machine says that the attempt may be made again, and so it
 * may. */
static void a_stage_without_memory_makes_room_and_says_so(void **state)
{
    struct rig *g = open_rig(false);

    (void)state;
    assert_int_equal(stage(g, 0), 0);
    emu->fail_pin = 3; /* there is no memory of the outer step to give back */
    load_seed(g);
    emu->fail_malloc = 1; /* the scratch of a launcher */
    assert_int_equal(work(g, PIPE_FORWARD, 0), LOCO_EBUSY);
    assert_int_equal(emu->fail_malloc, 0);
    assert_int_equal(work(g, PIPE_FORWARD, 0), 0);
    assert_int_equal(work(g, PIPE_STEP, 0), 0);
    close_rig(g);
}

/* A gradient of zeros comes back from the next stage. */
static void come_back(struct rig *g)
{
    struct segment s = {.attempt = TAG,
                        .stream = STREAM_PIPE,
                        .buffer = BUFFER_BACK,
                        .len = RIG_SEQ * RIG_DIM};
    uint8_t bytes[RIG_SEQ * (RIG_DIM + 1) * 4] = {0};
    size_t len = g->calls.wire_len(g->calls.self, &s);

    assert_true(len <= sizeof bytes);
    assert_int_equal(g->calls.take(g->calls.self, &s, bytes, len), 0);
}

/* What passes beside the steps takes nothing of theirs away. */
static void held_out_text_without_memory_costs_no_step(void **state)
{
    struct rig *g = open_rig(true);
    uint64_t mallocs;

    (void)state;
    assert_int_equal(stage(g, 0), 0);
    emu->fail_pin = 3; /* there is no memory of the outer step to give back */
    load_seed(g);
    assert_int_equal(work(g, PIPE_FORWARD, 0), 0);
    emu->fail_malloc = 1; /* the copy of the anchor */
    mallocs = emu->mallocs;
    assert_int_equal(work(g, PIPE_EVAL_FORWARD, 0), LOCO_ENOMEM);
    assert_int_equal(emu->fail_malloc, 0);
    come_back(g);
    assert_int_equal(work(g, PIPE_BACKWARD, 0), 0);
    assert_int_equal(work(g, PIPE_STEP, 1), 0);
    assert_int_equal(work(g, PIPE_EVAL_FORWARD, 0), 0);
    assert_true(emu->mallocs > mallocs); /* and it is still on the GPU */
    close_rig(g);
}

/* ---- another stage ------------------------------------------------------- */

/* Whether or not the GPU would open again. */
static void a_machine_that_left_its_gpu_moves_without_it(void **state)
{
    (void)state;
    for (int answers = 0; answers < 2; answers++) {
        struct rig *g = open_first(true);
        uint64_t mallocs;

        break_gpu(g);
        assert_int_equal(work(g, PIPE_FORWARD, 0), 0); /* on the processor */
        emu->sticky = answers ? 0 : emu->sticky;
        mallocs = emu->mallocs;
        assert_int_equal(stage(g, 1), 0);
        assert_int_equal(g->terms.stage_fits, 3);
        load_seed(g);
        assert_int_equal(work(g, PIPE_STEP, 0), 0);
        assert_int_equal(emu->mallocs, mallocs);
        close_rig(g);
    }
}

/* The answer comes before anything of the stage is taken: the machine goes on,
 * in a stage that it has the memory for. */
static void a_stage_that_lacks_memory_now_is_refused(void **state)
{
    struct rig *g = open_first(true);

    (void)state;
    assert_int_equal(g->terms.stage_fits, 3);
    device.gpu.memory_bytes = (64 << 20) + 1000; /* others took the rest */
    assert_int_equal(stage(g, 1), LOCO_ENOMEM);
    device.gpu.memory_bytes = cap_bytes;
    assert_int_equal(stage(g, 0), 0);
    assert_int_equal(g->terms.stage_fits, 1); /* nobody asks it again */
    load_seed(g);
    assert_int_equal(work(g, PIPE_STEP, 0), 0);
    close_rig(g);
}

/* Nothing of it has been used since the stage before. */
static void a_gpu_that_broke_unseen_is_left_on_a_move(void **state)
{
    (void)state;
    for (int fallback = 0; fallback < 2; fallback++) {
        struct rig *g = open_first(fallback != 0);

        emu->sticky = 700; /* an illegal address */
        assert_int_equal(stage(g, 1), fallback ? 0 : LOCO_EDEVICE);
        if (fallback != 0) {
            load_seed(g);
            assert_int_equal(work(g, PIPE_STEP, 0), 0);
        }
        close_rig(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(without_fallback_a_broken_gpu_is_no_device),
        CASE(a_gpu_that_comes_back_is_opened_for_the_next_attempt),
        CASE(the_processor_takes_over_where_there_is_memory_for_it),
        CASE(moments_are_here_only_where_they_are_counted),
        CASE(a_stage_without_memory_makes_room_and_says_so),
        CASE(held_out_text_without_memory_costs_no_step),
        CASE(a_stage_that_lacks_memory_now_is_refused),
        CASE(a_gpu_that_broke_unseen_is_left_on_a_move),
        CASE(a_machine_that_left_its_gpu_moves_without_it),
    };
    void *library;

    library = dlopen(device.plugin, RTLD_NOW | RTLD_LOCAL);
    emu = library == NULL ? NULL : dlsym(library, "emu_control");
    if (emu == NULL || sign_start() != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
