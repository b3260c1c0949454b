/* client_test.c - libloco against a daemon that the test itself plays: the
 * calls do not block for longer than they are told, so one thread is enough. */
#include "daemon/client/loco.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "proto/trainer_msg.h"
#include "tests/unit/train/tmpdir.h"

#define LONG_MS  20000 /* for what must come */
#define BATCH    2
#define SEQ      3
#define N_THETA  10
#define LAYOUT   4096
#define THETA    8192
#define TOKENS   12288
#define TARGETS  12544
#define FILE_END 16384

/* The daemon's side. */
struct fake {
    struct tmpdir dir;
    char state[600]; /* the directory of the socket */
    int listener, conn, memory;
    uint8_t *map;
    struct trainer_welcome welcome;
    struct loco *l;
    char said[4096]; /* what the library logged */
    char why[LOCO_ERRMSG_MAX];
};

static void on_log(void *data, const char *sentence)
{
    struct fake *f = data;
    size_t at = strlen(f->said);

    (void)snprintf(f->said + at, sizeof f->said - at, "%s\n", sentence);
}

/* ---- the shared file ---------------------------------------------------- */

static size_t put_tensor(uint8_t *at,
                         uint64_t offset,
                         const char *name,
                         uint64_t rows,
                         uint64_t columns)
{
    struct trainer_tensor t = {.offset = offset,
                               .numel = rows * columns,
                               .shape = {rows, columns},
                               .n_dims = 2,
                               .name_bytes = (uint32_t)strlen(name)};

    memcpy(at, &t, sizeof t);
    memcpy(at + sizeof t, name, t.name_bytes);
    return sizeof t + trainer_name_room(t.name_bytes);
}

/* Two tensors, "wide.weight" (2, 3) and "b" (4, 1), and room for a text. */
static void make_memory(struct fake *f, float first)
{
    size_t n;

    f->memory = memfd_create("loco-test", MFD_CLOEXEC);
    assert_true(f->memory >= 0);
    assert_int_equal(ftruncate(f->memory, FILE_END), 0);
    f->map =
        mmap(NULL, FILE_END, PROT_READ | PROT_WRITE, MAP_SHARED, f->memory, 0);
    assert_true(f->map != MAP_FAILED);
    n = put_tensor(f->map + LAYOUT, 0, "wide.weight", 2, 3);
    n += put_tensor(f->map + LAYOUT + n, 6, "b", 4, 1);
    for (int i = 0; i < N_THETA; i++) {
        float x = first + (float)i;

        memcpy(f->map + THETA + 4 * i, &x, sizeof x);
    }
    f->welcome = (struct trainer_welcome){
        .version = TRAINER_MSG_VERSION,
        .run_id = {{7}},
        .bytes = FILE_END,
        .n = N_THETA,
        .n_tensors = 2,
        .layout_at = LAYOUT,
        .layout_bytes = n,
        .theta_at = THETA,
        .tokens_at = TOKENS,
        .targets_at = TARGETS,
        .batch = BATCH,
        .seq = SEQ,
        .vocab = 100,
        .tokens_most = 1000,
        .period = 50,
        .n_run_name = 4,
        .n_preset = 7,
        .run_name = "tiny",
        .preset = "diloco2",
    };
}

static void drop_memory(struct fake *f)
{
    (void)munmap(f->map, FILE_END);
    (void)close(f->memory);
}

static struct trainer_tensor *tensor_at(struct fake *f, size_t i)
{
    size_t first = sizeof(struct trainer_tensor) + trainer_name_room(11);

    return (void *)(f->map + LAYOUT + i * first);
}

/* ---- the socket --------------------------------------------------------- */

static void listen_there(struct fake *f)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char path[800];
    int dir = open(f->state, O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert_true(dir >= 0);
    (void)snprintf(path, sizeof path, "%s/" TRAINER_SOCKET, f->state);
    (void)unlink(path);
    (void)snprintf(at.sun_path, sizeof at.sun_path,
                   "/proc/self/fd/%d/" TRAINER_SOCKET, dir);
    f->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->listener, (void *)&at, sizeof at), 0);
    assert_int_equal(listen(f->listener, 4), 0);
    (void)close(dir);
}

static void hang_up(struct fake *f)
{
    if (f->conn >= 0) {
        (void)close(f->conn);
        f->conn = -1;
    }
}

static void stop_listening(struct fake *f)
{
    char path[800];

    (void)snprintf(path, sizeof path, "%s/" TRAINER_SOCKET, f->state);
    (void)unlink(path);
    (void)close(f->listener);
    f->listener = -1;
}

static void say_with(struct fake *f, const struct trainer_msg *m, int memory)
{
    union {
        struct cmsghdr h;
        uint8_t room[CMSG_SPACE(sizeof(int))];
    } control = {.room = {0}};
    uint8_t packet[TRAINER_PACKET_MAX];
    int n = trainer_msg_encode(m, packet);
    struct iovec io = {.iov_base = packet, .iov_len = (size_t)n};
    struct msghdr h = {.msg_iov = &io, .msg_iovlen = 1};

    assert_true(n > 0);
    if (memory >= 0) {
        h.msg_control = &control;
        h.msg_controllen = sizeof control;
        CMSG_FIRSTHDR(&h)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&h)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&h)->cmsg_len = CMSG_LEN(sizeof memory);
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&h)), &memory, sizeof memory);
    }
    assert_int_equal(sendmsg(f->conn, &h, MSG_NOSIGNAL), n);
}

static void say(struct fake *f, struct trainer_msg m)
{
    say_with(f, &m, -1);
}

/* The next packet of the loop, which must be there. */
static struct trainer_msg hear(struct fake *f, enum trainer_msg_type type)
{
    uint8_t packet[TRAINER_PACKET_MAX];
    struct trainer_msg m;
    ssize_t n = recv(f->conn, packet, sizeof packet, MSG_DONTWAIT);

    assert_true(n > 0);
    assert_int_equal(
        trainer_msg_decode(packet, (size_t)n, TRAINER_SENDER_LOOP, &m), 0);
    assert_int_equal(m.type, type);
    return m;
}

static bool silent(const struct fake *f)
{
    uint8_t packet[8];

    return recv(f->conn, packet, sizeof packet, MSG_DONTWAIT) < 0 &&
           errno == EAGAIN;
}

static void accept_loop(struct fake *f)
{
    f->conn = accept(f->listener, NULL, NULL);
    assert_true(f->conn >= 0);
}

static void welcome(struct fake *f)
{
    struct trainer_msg m = {.type = TRAINER_MSG_WELCOME, .welcome = f->welcome};

    accept_loop(f);
    (void)hear(f, TRAINER_MSG_HELLO);
    say_with(f, &m, f->memory);
}

static void say_go(struct fake *f, uint64_t steps, uint64_t made)
{
    say(f, (struct trainer_msg){.type = TRAINER_MSG_GO,
                                .go = {.steps = steps, .inner_step = made}});
}

static void say_give(struct fake *f, uint64_t round)
{
    say(f, (struct trainer_msg){.type = TRAINER_MSG_GIVE,
                                .give = {.round = round}});
}

static void say_stop(struct fake *f, uint32_t code, const char *text)
{
    struct trainer_msg m = {
        .type = TRAINER_MSG_STOP,
        .stop = {.code = code, .n_text = (uint16_t)strlen(text)}};

    memcpy(m.stop.text, text, m.stop.n_text);
    say(f, m);
}

/* ---- the whole ---------------------------------------------------------- */

static struct loco_options options(struct fake *f)
{
    return (struct loco_options){.size = sizeof(struct loco_options),
                                 .state = f->state,
                                 .name = "test loop",
                                 .measures = 1,
                                 .log = on_log,
                                 .data = f};
}

static void begin(struct fake *f)
{
    memset(f, 0, sizeof *f);
    f->conn = f->listener = -1;
    tmpdir_make(&f->dir);
    (void)snprintf(f->state, sizeof f->state, "%s", f->dir.path);
    make_memory(f, 1);
    listen_there(f);
}

static void end(struct fake *f)
{
    loco_close(f->l);
    hang_up(f);
    if (f->listener >= 0) {
        stop_listening(f);
    }
    drop_memory(f);
    tmpdir_remove(&f->dir);
}

static void open_loop_with(struct fake *f, struct loco_options o)
{
    if (loco_open(&f->l, &o, f->why) != 0) {
        fail_msg("%s", f->why);
    }
}

/* Connected, welcomed, held. */
static void begin_up(struct fake *f)
{
    begin(f);
    open_loop_with(f, options(f));
    welcome(f);
    assert_int_equal(loco_ready(f->l, LONG_MS), 1);
}

/* The whole of it, going with so many steps. */
static void begin_going(struct fake *f, uint64_t steps)
{
    struct loco_todo t;

    begin_up(f);
    say_go(f, steps, 100);
    assert_int_equal(loco_next(f->l, LONG_MS, &t), LOCO_GO);
}

#define assert_sentence(f, words)                                              \
    do {                                                                       \
        if (strstr(loco_errmsg((f)->l), (words)) == NULL) {                    \
            fail_msg("\"%s\" does not say \"%s\"", loco_errmsg((f)->l),        \
                     (words));                                                 \
        }                                                                      \
    } while (0)

/* ---- greeting ----------------------------------------------------------- */

static void loop_says_who_it_is_and_learns_the_run(void **state)
{
    struct loco_tensor t;
    struct loco_info info;
    struct trainer_msg m;
    struct fake f;

    (void)state;
    begin(&f);
    open_loop_with(&f, options(&f));
    assert_int_equal(loco_ready(f.l, 0), 0);
    assert_int_equal(loco_info(f.l, &info), LOCO_FAIL_VALUE);
    assert_null(loco_theta(f.l));
    accept_loop(&f);
    m = hear(&f, TRAINER_MSG_HELLO);
    assert_int_equal(m.hello.version, TRAINER_MSG_VERSION);
    assert_int_equal(m.hello.pid, getpid());
    assert_true(m.hello.measures);
    assert_int_equal(m.hello.n_name, 9);
    assert_memory_equal(m.hello.name, "test loop", 9);
    m = (struct trainer_msg){.type = TRAINER_MSG_WELCOME, .welcome = f.welcome};
    say_with(&f, &m, f.memory);
    assert_int_equal(loco_ready(f.l, LONG_MS), 1);
    assert_int_equal(loco_info(f.l, &info), 0);
    assert_string_equal(info.run_name, "tiny");
    assert_string_equal(info.preset, "diloco2");
    assert_int_equal(info.n, N_THETA);
    assert_int_equal(info.n_tensors, 2);
    assert_int_equal(info.run_id[0], 7);
    assert_int_equal(info.started_pid, 0);
    assert_int_equal(loco_tensor(f.l, 1, &t), 0);
    assert_string_equal(t.name, "b");
    assert_int_equal(t.offset, 6);
    assert_int_equal(t.shape[0], 4);
    assert_int_equal(loco_tensor(f.l, 2, &t), LOCO_FAIL_VALUE);
    assert_true(loco_theta(f.l)[3] == 4.0F);
    end(&f);
}

static void state_directory_may_have_a_long_path(void **state)
{
    struct fake f;
    char name[201];

    (void)state;
    begin(&f);
    stop_listening(&f);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    (void)snprintf(f.state, sizeof f.state, "%s/%s", f.dir.path, name);
    assert_int_equal(mkdir(f.state, 0700), 0);
    listen_there(&f);
    open_loop_with(&f, options(&f));
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), 1);
    stop_listening(&f);
    (void)rmdir(f.state);
    end(&f);
}

static void refused_loop_hears_why(void **state)
{
    struct trainer_msg m = {.type = TRAINER_MSG_REFUSED,
                            .refused = {.n_text = 23}};
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin(&f);
    open_loop_with(&f, options(&f));
    accept_loop(&f);
    memcpy(m.refused.text, "another loop is at work", 23);
    say(&f, m);
    assert_int_equal(loco_ready(f.l, LONG_MS), LOCO_FAIL_REFUSED);
    assert_sentence(&f, "another loop is at work");
    assert_int_equal(loco_next(f.l, 0, &t), LOCO_FAIL_REFUSED);
    assert_sentence(&f, "another loop is at work");
    end(&f);
}

static void options_of_another_size_are_read_or_refused(void **state)
{
    struct {
        struct loco_options o;
        uint64_t newer;
    } o;
    struct fake f;

    (void)state;
    begin(&f);
    memset(&o, 0, sizeof o);
    o.o = options(&f);
    o.o.size = sizeof o;
    assert_int_equal(loco_open(&f.l, &o.o, f.why), 0);
    loco_close(f.l);
    o.newer = 1;
    assert_int_equal(loco_open(&f.l, &o.o, f.why), LOCO_FAIL_VALUE);
    assert_null(f.l);
    o.o.size = 4;
    assert_int_equal(loco_open(&f.l, &o.o, f.why), LOCO_FAIL_VALUE);
    o.o.size = sizeof o.o;
    o.o.join = o.o.run = "x";
    assert_int_equal(loco_open(&f.l, &o.o, f.why), LOCO_FAIL_VALUE);
    end(&f);
}

static void other_run_than_invited_to_is_refused(void **state)
{
    struct loco_options o;
    char uri[200] = "loco://host:7700/";
    struct fake f;

    (void)state;
    begin(&f);
    o = options(&f);
    memset(uri + 17, '0', 64);
    o.join = uri;
    open_loop_with(&f, o);
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), LOCO_FAIL_OTHER_RUN);
    loco_close(f.l);
    hang_up(&f);
    uri[18] = '7'; /* as make_memory() has it: 07 00 00 ... */
    open_loop_with(&f, o);
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), 1);
    end(&f);
}

/* ---- wrong WELCOMEs ----------------------------------------------------- */

/* Break one thing, see that the loop does not believe it. */
static void break_tensor_name(struct fake *f)
{
    uint8_t *name = (uint8_t *)(tensor_at(f, 0) + 1);

    name[3] = 0;
}

static void break_name_padding(struct fake *f)
{
    uint8_t *name = (uint8_t *)(tensor_at(f, 0) + 1);

    name[12] = 'x';
}

static void break_same_name(struct fake *f)
{
    size_t n = put_tensor(f->map + LAYOUT, 0, "b", 2, 3);

    n += put_tensor(f->map + LAYOUT + n, 6, "b", 4, 1);
    f->welcome.layout_bytes = n;
}

#define WRONG_WELCOMES(X)                                                      \
    X(f->welcome.version++)                                                    \
    X(f->welcome.bytes++)                                                      \
    X(f->welcome.bytes--)                                                      \
    X(f->welcome.n = 0)                                                        \
    X(f->welcome.n = UINT64_MAX)                                               \
    X(f->welcome.n = (UINT64_MAX / 4) + 3)                                     \
    X(f->welcome.n = N_THETA + 1)                                              \
    X(f->welcome.n = N_THETA - 1)                                              \
    X(f->welcome.theta_at = FILE_END - 8)                                      \
    X(f->welcome.theta_at = UINT64_MAX - 7)                                    \
    X(f->welcome.theta_at += 2)                                                \
    X(f->welcome.theta_at = TOKENS - 8)                                        \
    X(f->welcome.tokens_at = TARGETS)                                          \
    X(f->welcome.targets_at = FILE_END)                                        \
    X(f->welcome.targets_at = 0)                                               \
    X(f->welcome.tokens_at = 0)                                                \
    X(f->welcome.batch = UINT32_MAX; f->welcome.seq = UINT32_MAX)              \
    X(f->welcome.batch = 0)                                                    \
    X(f->welcome.vocab = 0)                                                    \
    X(f->welcome.layout_at = FILE_END - 8)                                     \
    X(f->welcome.layout_at++)                                                  \
    X(f->welcome.layout_bytes = UINT64_MAX)                                    \
    X(f->welcome.layout_bytes--)                                               \
    X(f->welcome.layout_bytes += 8)                                            \
    X(f->welcome.n_tensors = 0)                                                \
    X(f->welcome.n_tensors = 1)                                                \
    X(f->welcome.n_tensors = 3)                                                \
    X(f->welcome.n_tensors = UINT32_MAX)                                       \
    X(tensor_at(f, 0)->n_dims = 9)                                             \
    X(tensor_at(f, 0)->n_dims = UINT32_MAX)                                    \
    X(tensor_at(f, 0)->numel = 7)                                              \
    X(tensor_at(f, 0)->shape[0] = UINT64_MAX)                                  \
    X(tensor_at(f, 0)->shape[0] = (uint64_t)1 << 63)                           \
    X(tensor_at(f, 1)->offset = 5)                                             \
    X(tensor_at(f, 1)->offset = 7)                                             \
    X(tensor_at(f, 0)->name_bytes = 0)                                         \
    X(tensor_at(f, 0)->name_bytes = UINT32_MAX)                                \
    X(tensor_at(f, 0)->name_bytes = UINT32_MAX - 7)                            \
    X(tensor_at(f, 1)->name_bytes = 9)                                         \
    X(break_tensor_name(f))                                                    \
    X(break_name_padding(f))                                                   \
    X(break_same_name(f))

static void break_welcome(struct fake *f, unsigned i)
{
    unsigned at = 0;

#define X(change)                                                              \
    if (at++ == i) {                                                           \
        change;                                                                \
    }
    WRONG_WELCOMES(X)
#undef X
}

static void wrong_welcomes_are_not_believed(void **state)
{
#define X(change) #change,
    static const char *const names[] = {WRONG_WELCOMES(X)};
#undef X
    struct fake f;

    (void)state;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        begin(&f);
        break_welcome(&f, i);
        open_loop_with(&f, options(&f));
        welcome(&f);
        if (loco_ready(f.l, LONG_MS) != LOCO_FAIL_PROTOCOL) {
            fail_msg("%s: %s", names[i], loco_errmsg(f.l));
        }
        assert_sentence(&f, "locod");
        assert_null(loco_theta(f.l));
        end(&f);
    }
}

static void welcome_without_memory_is_not_believed(void **state)
{
    struct trainer_msg m = {.type = TRAINER_MSG_WELCOME};
    struct fake f;

    (void)state;
    begin(&f);
    open_loop_with(&f, options(&f));
    accept_loop(&f);
    m.welcome = f.welcome;
    say(&f, m);
    assert_int_equal(loco_ready(f.l, LONG_MS), LOCO_FAIL_PROTOCOL);
    end(&f);
}

static void file_shorter_than_said_is_not_believed(void **state)
{
    struct fake f;

    (void)state;
    begin(&f);
    assert_int_equal(ftruncate(f.memory, 4096), 0);
    open_loop_with(&f, options(&f));
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), LOCO_FAIL_PROTOCOL);
    end(&f);
}

static void packet_that_is_none_ends_it(void **state)
{
    static const char bytes[] = "\x04garbage";
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin_up(&f);
    assert_int_equal(send(f.conn, bytes, sizeof bytes, 0), sizeof bytes);
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_FAIL_PROTOCOL);
    assert_int_equal(loco_step(f.l, 1, 1), LOCO_FAIL_PROTOCOL);
    end(&f);
}

/* ---- the loop ----------------------------------------------------------- */

static void loop_makes_the_steps_of_a_go_and_is_held(void **state)
{
    struct loco_todo t;
    struct trainer_msg m;
    double loss;
    struct fake f;

    (void)state;
    begin_up(&f);
    assert_int_equal(loco_next(f.l, 0, &t), LOCO_WAIT);
    assert_int_equal(loco_step(f.l, 5, 1.0), LOCO_FAIL_VALUE);
    say_go(&f, 2, 40);
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_GO);
    assert_int_equal(t.steps, 2);
    assert_int_equal(t.inner_step, 40);
    assert_int_equal(loco_step(f.l, 1001, 1.0), LOCO_FAIL_VALUE);
    assert_sentence(&f, "1001");
    assert_int_equal(loco_step(f.l, 6, 2.5), 0);
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_GO);
    assert_int_equal(t.steps, 1);
    assert_int_equal(t.inner_step, 41);
    assert_int_equal(loco_step(f.l, 6, 2.25), 0);
    assert_int_equal(loco_next(f.l, 0, &t), LOCO_WAIT);
    assert_int_equal(loco_step(f.l, 6, 2.25), LOCO_FAIL_VALUE);
    m = hear(&f, TRAINER_MSG_STEP);
    memcpy(&loss, &m.step.loss, sizeof loss);
    assert_true(loss == 2.5);
    assert_int_equal(m.step.tokens, 6);
    (void)hear(&f, TRAINER_MSG_STEP);
    assert_true(silent(&f));
    end(&f);
}

static void give_in_the_middle_voids_the_rest(void **state)
{
    struct loco_todo t;
    float x;
    struct fake f;

    (void)state;
    begin_going(&f, 10);
    assert_int_equal(loco_step(f.l, 6, 2.5), 0);
    say_give(&f, 17);
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_GIVE);
    assert_int_equal(t.round, 17);
    (void)hear(&f, TRAINER_MSG_STEP);
    assert_true(silent(&f)); /* not before the parameters are written */
    loco_theta(f.l)[9] = 99.0F;
    assert_int_equal(loco_step(f.l, 6, 2.5), LOCO_FAIL_VALUE);
    assert_int_equal(loco_next(f.l, 0, &t), LOCO_WAIT);
    (void)hear(&f, TRAINER_MSG_GIVEN);
    memcpy(&x, f.map + THETA + 36, sizeof x);
    assert_true(x == 99.0F);
    say(&f, (struct trainer_msg){.type = TRAINER_MSG_TAKE,
                                 .take = {.round = 17,
                                          .reset = true,
                                          .clock = 500,
                                          .tokens = 12345}});
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_TAKE);
    assert_int_equal(t.round, 17);
    assert_int_equal(t.reset, 1);
    assert_int_equal(t.clock, 500);
    assert_int_equal(t.run_tokens, 12345);
    assert_true(silent(&f));
    assert_int_equal(loco_next(f.l, 0, &t), LOCO_WAIT);
    (void)hear(&f, TRAINER_MSG_TAKEN);
    end(&f);
}

static void permission_twice_breaks_the_protocol(void **state)
{
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin_going(&f, 10);
    say_go(&f, 3, 0);
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_FAIL_PROTOCOL);
    end(&f);
}

static void stop_is_told_with_its_sentence_and_again(void **state)
{
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin_going(&f, 10);
    say_stop(&f, 9, "the disk is full");
    hang_up(&f);
    assert_int_equal(loco_step(f.l, 6, 2.5), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_END);
        assert_int_equal(t.code, 9);
        assert_string_equal(t.text, "the disk is full");
    }
    assert_int_equal(loco_step(f.l, 6, 2.5), 0);
    end(&f);
}

static void what_the_daemon_said_before_it_left_counts(void **state)
{
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin_going(&f, 10);
    assert_int_equal(loco_step(f.l, 6, 2.5), 0); /* it will not be read */
    say_stop(&f, 0, "the run has ended");
    hang_up(&f);
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_END);
    assert_string_equal(t.text, "the run has ended");
    end(&f);
}

static void quiet_daemon_costs_no_more_than_the_timeout(void **state)
{
    struct loco_todo t;
    struct loco_text text;
    struct fake f;

    (void)state;
    begin_up(&f);
    assert_int_equal(loco_next(f.l, 30, &t), LOCO_WAIT);
    assert_int_equal(loco_read(f.l, 30, &text), 0);
    end(&f);
}

static void on_alarm(int signum)
{
    (void)signum;
}

/* The timeout is an hour: only the signal can end the call. */
static void signal_ends_a_wait(void **state)
{
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin_up(&f);
    assert_int_equal(sigaction(SIGALRM, &act, NULL), 0);
    (void)alarm(1);
    assert_int_equal(loco_next(f.l, 3600000, &t), LOCO_WAIT);
    end(&f);
}

/* ---- text --------------------------------------------------------------- */

static void put_text(struct fake *f, uint32_t first)
{
    for (uint32_t i = 0; i < BATCH * SEQ; i++) {
        uint32_t token = first + i, target = first + i + 1;

        memcpy(f->map + TOKENS + 4 * i, &token, sizeof token);
        memcpy(f->map + TARGETS + 4 * i, &target, sizeof target);
    }
}

static void say_text(struct fake *f, uint64_t position, uint32_t rows)
{
    say(f, (struct trainer_msg){.type = TRAINER_MSG_TEXT,
                                .text = {.position = position, .rows = rows}});
}

static void text_comes_when_asked_for_and_stays(void **state)
{
    struct loco_text text;
    struct fake f;

    (void)state;
    begin_going(&f, 10);
    assert_int_equal(loco_read(f.l, 0, &text), 0);
    assert_int_equal(loco_read(f.l, 0, &text), 0);
    (void)hear(&f, TRAINER_MSG_READ);
    assert_true(silent(&f)); /* asked once */
    put_text(&f, 10);
    say_text(&f, 77, 1);
    assert_int_equal(loco_read(f.l, LONG_MS, &text), 1);
    put_text(&f, 50); /* the daemon goes on, the loop keeps its own */
    assert_int_equal(text.rows, 1);
    assert_int_equal(text.seq, SEQ);
    assert_int_equal(text.position, 77);
    assert_int_equal(text.tokens[0], 10);
    assert_int_equal(text.targets[2], 13);
    end(&f);
}

static void give_while_the_loop_waits_for_text_is_not_lost(void **state)
{
    struct loco_text text;
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin_going(&f, 10);
    say_give(&f, 3);
    assert_int_equal(loco_read(f.l, 30, &text), 0);
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_GIVE);
    assert_int_equal(loco_next(f.l, 0, &t), LOCO_WAIT);
    (void)hear(&f, TRAINER_MSG_READ);
    (void)hear(&f, TRAINER_MSG_GIVEN);
    put_text(&f, 20);
    say_text(&f, 1, BATCH);
    say_go(&f, 4, 0);
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_GO);
    assert_int_equal(loco_read(f.l, 0, &text), 1);
    assert_int_equal(text.tokens[5], 25);
    assert_true(silent(&f));
    end(&f);
}

static void stop_while_the_loop_waits_for_text_is_not_lost(void **state)
{
    struct loco_text text;
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin_going(&f, 10);
    assert_int_equal(loco_read(f.l, 0, &text), 0);
    say_stop(&f, 0, "told to stop");
    hang_up(&f);
    assert_int_equal(loco_read(f.l, LONG_MS, &text), 0);
    assert_int_equal(loco_read(f.l, LONG_MS, &text), 0);
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_END);
    end(&f);
}

static void text_outside_of_the_vocabulary_is_not_believed(void **state)
{
    static const struct {
        uint32_t first, rows;
    } wrong[] = {{99, 1}, {10, 0}, {10, BATCH + 1}, {10, UINT32_MAX}};
    struct loco_text text;
    struct fake f;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        begin_going(&f, 10);
        put_text(&f, wrong[i].first);
        assert_int_equal(loco_read(f.l, 0, &text), 0);
        say_text(&f, 0, wrong[i].rows);
        assert_int_equal(loco_read(f.l, LONG_MS, &text), LOCO_FAIL_PROTOCOL);
        end(&f);
    }
}

static void run_without_text_says_so(void **state)
{
    struct loco_text text;
    struct loco_info info;
    struct fake f;

    (void)state;
    begin(&f);
    f.welcome.tokens_at = f.welcome.targets_at = 0;
    f.welcome.batch = f.welcome.seq = 0;
    open_loop_with(&f, options(&f));
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), 1);
    assert_int_equal(loco_info(f.l, &info), 0);
    assert_int_equal(info.vocab, 0);
    assert_int_equal(loco_read(f.l, 0, &text), LOCO_FAIL_VALUE);
    assert_sentence(&f, "no text");
    end(&f);
}

static void held_loop_scores_windows(void **state)
{
    uint32_t none = LOCO_NO_TARGET;
    struct loco_todo t;
    struct trainer_msg m;
    double nats;
    struct fake f;

    (void)state;
    begin_up(&f);
    assert_int_equal(loco_scored(f.l, 1.0), LOCO_FAIL_VALUE);
    put_text(&f, 30);
    memcpy(f.map + TARGETS, &none, sizeof none);
    say(&f, (struct trainer_msg){.type = TRAINER_MSG_WINDOWS,
                                 .windows = {.rows = BATCH}});
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_SCORE);
    assert_int_equal(t.rows, BATCH);
    assert_int_equal(t.seq, SEQ);
    assert_int_equal(t.tokens[5], 35);
    assert_true(t.targets[0] == LOCO_NO_TARGET);
    assert_int_equal(loco_next(f.l, 0, &t), LOCO_FAIL_VALUE);
    assert_int_equal(loco_scored(f.l, 12.5), 0);
    assert_int_equal(loco_next(f.l, 0, &t), LOCO_WAIT);
    m = hear(&f, TRAINER_MSG_SCORED);
    memcpy(&nats, &m.scored.nats, sizeof nats);
    assert_true(nats == 12.5);
    say(&f, (struct trainer_msg){.type = TRAINER_MSG_WINDOWS});
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_FAIL_PROTOCOL);
    end(&f);
}

/* ---- a daemon that vanishes --------------------------------------------- */

static void daemon_comes_back_with_another_file(void **state)
{
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin_going(&f, 10);
    hang_up(&f);
    stop_listening(&f);
    assert_int_equal(loco_step(f.l, 6, 1.0), 0);
    assert_int_equal(loco_next(f.l, 60, &t), LOCO_WAIT);
    assert_non_null(strstr(f.said, "went away"));
    assert_int_equal(loco_step(f.l, 6, 1.0), 0);
    drop_memory(&f);
    make_memory(&f, 200);
    listen_there(&f);
    assert_int_equal(loco_next(f.l, 60, &t), LOCO_WAIT);
    welcome(&f);
    say(&f, (struct trainer_msg){.type = TRAINER_MSG_TAKE,
                                 .take = {.round = 9, .reset = true}});
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_TAKE);
    assert_int_equal(t.round, 9);
    assert_true(loco_theta(f.l)[1] == 201.0F);
    end(&f);
}

static void daemon_that_comes_back_with_another_run_is_refused(void **state)
{
    struct loco_todo t;
    struct fake f;

    (void)state;
    for (int i = 0; i < 3; i++) {
        begin_up(&f);
        hang_up(&f);
        if (i == 0) {
            f.welcome.run_id.b[0] = 8;
        } else if (i == 1) {
            tensor_at(&f, 1)->shape[0] = 2;
            tensor_at(&f, 1)->shape[1] = 2;
        } else {
            f.welcome.seq = 2;
        }
        assert_int_equal(loco_next(f.l, 100, &t), LOCO_WAIT);
        welcome(&f);
        assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_FAIL_OTHER_RUN);
        assert_sentence(&f, "another run");
        end(&f);
    }
}

static void daemon_that_stays_away_is_one_clear_failure(void **state)
{
    struct loco_options o;
    struct loco_todo t;
    struct fake f;
    int rv;

    (void)state;
    begin(&f);
    o = options(&f);
    o.reconnect_ms = 100;
    open_loop_with(&f, o);
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), 1);
    hang_up(&f);
    stop_listening(&f);
    do {
        rv = loco_next(f.l, 20, &t);
    } while (rv == LOCO_WAIT);
    assert_int_equal(rv, LOCO_FAIL_TIMEOUT);
    assert_sentence(&f, "did not come back");
    end(&f);
}

static void nobody_there_and_nothing_to_start_is_said_at_once(void **state)
{
    struct loco_options o;
    struct fake f;

    (void)state;
    begin(&f);
    stop_listening(&f);
    o = options(&f);
    assert_int_equal(loco_open(&f.l, &o, f.why), LOCO_FAIL_NO_DAEMON);
    assert_null(f.l);
    assert_non_null(strstr(f.why, "no locod runs on"));
    end(&f);
}

/* ---- a daemon that the library starts ----------------------------------- */

/* A program that does as the shell script says. */
static const char *put_locod(struct fake *f, const char *script)
{
    const char *path;

    tmpdir_put(&f->dir, "fake-locod", script, strlen(script));
    path = tmpdir_file(&f->dir, "fake-locod");
    assert_int_equal(chmod(path, 0700), 0);
    return path;
}

static struct loco_options start_options(struct fake *f, const char *script)
{
    struct loco_options o = options(f);

    o.locod = put_locod(f, script);
    o.run = "run.yaml";
    return o;
}

static void locod_that_cannot_start_is_quoted(void **state)
{
    struct loco_options o;
    struct fake f;

    (void)state;
    begin(&f);
    stop_listening(&f);
    o = start_options(&f, "#!/bin/sh\necho first\necho 'locod: no such run' "
                          ">&2\nexit 3\n");
    open_loop_with(&f, o);
    assert_int_equal(loco_ready(f.l, LONG_MS), LOCO_FAIL_NO_DAEMON);
    assert_sentence(&f, "exit code 3: locod: no such run");
    assert_non_null(strstr(f.said, "no locod runs on"));
    end(&f);
}

static void locod_that_is_not_installed_is_named(void **state)
{
    struct loco_options o;
    struct fake f;

    (void)state;
    begin(&f);
    stop_listening(&f);
    o = options(&f);
    o.locod = "/nowhere/locod";
    o.run = "run.yaml";
    assert_int_equal(loco_open(&f.l, &o, f.why), LOCO_FAIL_NO_DAEMON);
    assert_non_null(strstr(f.why, "/nowhere/locod"));
    end(&f);
}

/* It writes its arguments, and that it was told to drain. */
#define GOOD_LOCOD                                                             \
    "#!/bin/sh\n"                                                              \
    "trap 'echo drained; exit 0' TERM\n"                                       \
    "echo \"$@\"\n"                                                            \
    "while :; do sleep 0.05; done\n"

static void wait_for_text(struct fake *f, const char *name, const char *text)
{
    bool there = false;

    for (int i = 0; i < LONG_MS / 20 && !there; i++) {
        if (access(tmpdir_file(&f->dir, name), R_OK) == 0) {
            size_t len;
            char *have = tmpdir_get(&f->dir, name, &len);

            there = strstr(have, text) != NULL;
            free(have);
        }
        (void)usleep(20000);
    }
    assert_true(there);
}

static void started_locod_drains_when_the_loop_closes(void **state)
{
    static const char *const more[] = {"--listen", "127.0.0.1:0", NULL};
    struct loco_options o;
    struct loco_info info;
    struct fake f;

    (void)state;
    begin(&f);
    stop_listening(&f);
    o = start_options(&f, GOOD_LOCOD);
    o.locod_args = more;
    open_loop_with(&f, o);
    wait_for_text(&f, "locod.log",
                  "--trainer socket --run run.yaml --loop-grace-s 600 "
                  "--listen 127.0.0.1:0");
    listen_there(&f);
    assert_int_equal(loco_ready(f.l, 200), 0);
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), 1);
    assert_int_equal(loco_info(f.l, &info), 0);
    assert_true(info.started_pid > 0);
    while (loco_stop(f.l, 1000) == 0) {
    }
    assert_int_equal(kill(info.started_pid, 0), -1);
    wait_for_text(&f, "locod.log", "drained");
    end(&f);
}

static void started_locod_may_take_its_time(void **state)
{
    struct loco_options o;
    struct fake f;

    (void)state;
    begin(&f);
    stop_listening(&f);
    o = start_options(&f, GOOD_LOCOD);
    o.start_ms = 100; /* of one that somebody else starts */
    open_loop_with(&f, o);
    for (int i = 0;
         i < LONG_MS / 10 && strstr(f.said, "--trainer socket --run") == NULL;
         i++) {
        assert_int_equal(loco_ready(f.l, 10), 0);
    }
    assert_non_null(strstr(f.said, "--trainer socket --run"));
    listen_there(&f);
    assert_int_equal(loco_ready(f.l, 200), 0);
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), 1);
    end(&f);
}

/* `late`: loco_keep() says it; the options else. The locod is told of a time
 * after which it drains only where it was not kept from the beginning. */
static void a_kept_locod_goes_on(bool late)
{
    struct loco_options o;
    struct loco_info info;
    struct fake f;

    begin(&f);
    stop_listening(&f);
    o = start_options(&f, GOOD_LOCOD);
    o.keep = late ? 0 : 1;
    open_loop_with(&f, o);
    wait_for_text(&f, "locod.log",
                  late ? "--loop-grace-s 600"
                       : "--trainer socket --run run.yaml\n");
    listen_there(&f);
    assert_int_equal(loco_ready(f.l, 200), 0);
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), 1);
    assert_int_equal(loco_info(f.l, &info), 0);
    if (late) {
        loco_keep(f.l);
    }
    loco_close(f.l);
    f.l = NULL;
    assert_int_equal(kill(info.started_pid, 0), 0);
    assert_int_equal(kill(info.started_pid, SIGKILL), 0);
    assert_int_equal(waitpid(info.started_pid, NULL, 0), info.started_pid);
    end(&f);
}

static void kept_locod_goes_on(void **state)
{
    (void)state;
    a_kept_locod_goes_on(false);
    a_kept_locod_goes_on(true);
}

static void killed_locod_is_started_again(void **state)
{
    struct loco_info info, then;
    struct loco_options o;
    struct loco_todo t;
    struct fake f;

    (void)state;
    begin(&f);
    stop_listening(&f);
    o = start_options(&f, GOOD_LOCOD);
    open_loop_with(&f, o);
    listen_there(&f);
    assert_int_equal(loco_ready(f.l, 200), 0);
    welcome(&f);
    assert_int_equal(loco_ready(f.l, LONG_MS), 1);
    assert_int_equal(loco_info(f.l, &info), 0);
    stop_listening(&f);
    hang_up(&f);
    assert_int_equal(kill(info.started_pid, SIGKILL), 0);
    do {
        assert_int_equal(loco_next(f.l, 20, &t), LOCO_WAIT);
        assert_int_equal(loco_info(f.l, &then), 0);
    } while (then.started_pid == info.started_pid || then.started_pid == 0);
    assert_non_null(strstr(f.said, "started again"));
    end(&f);
}

static void directory_of_another_locod_is_said_in_the_end(void **state)
{
    struct loco_options o;
    struct fake f;
    int rv;

    (void)state;
    begin(&f);
    stop_listening(&f);
    o = start_options(&f, "#!/bin/sh\nexit 4\n");
    o.start_ms = 300;
    open_loop_with(&f, o);
    do {
        rv = loco_ready(f.l, 50);
    } while (rv == 0);
    assert_int_equal(rv, LOCO_FAIL_NO_DAEMON);
    assert_true(strstr(loco_errmsg(f.l), "--trainer socket") != NULL);
    end(&f);
}

/* ---- a model of the caller ---------------------------------------------- */

static struct loco_tensor mine(const char *name, uint64_t a, uint64_t b)
{
    return (struct loco_tensor){.name = name, .n_dims = 2, .shape = {a, b}};
}

static void model_is_compared_by_names_and_shapes(void **state)
{
    struct loco_tensor t[3] = {mine("b", 4, 1), mine("wide.weight", 2, 3)};
    struct fake f;

    (void)state;
    begin_up(&f);
    assert_int_equal(loco_check(f.l, t, 2), 0);
    assert_int_equal(loco_check(f.l, t, 1), LOCO_FAIL_VALUE);
    assert_sentence(&f, "the run has a tensor wide.weight");
    t[2] = mine("c", 1, 1);
    assert_int_equal(loco_check(f.l, t, 3), LOCO_FAIL_VALUE);
    assert_sentence(&f, "your model has a tensor c");
    t[1].shape[1] = 4;
    assert_int_equal(loco_check(f.l, t, 2), LOCO_FAIL_VALUE);
    assert_sentence(&f, "wide.weight has the shape (2, 3), your model's "
                        "(2, 4)");
    t[1] = t[0];
    assert_int_equal(loco_check(f.l, t, 2), LOCO_FAIL_VALUE);
    assert_sentence(&f, "twice");
    t[1].n_dims = 9;
    assert_int_equal(loco_check(f.l, t, 2), LOCO_FAIL_VALUE);
    end(&f);
}

/* ---- fork --------------------------------------------------------------- */

/* In the child: no call speaks to the daemon; the code says which was wrong. */
static int child_calls(struct fake *f)
{
    struct loco_text text;
    struct loco_todo t;
    struct loco_info info;

    if (loco_next(f->l, 1000, &t) != LOCO_FAIL_FORK) {
        return 1;
    }
    if (loco_step(f->l, 1, 1) != LOCO_FAIL_FORK) {
        return 2;
    }
    if (loco_read(f->l, 1000, &text) != LOCO_FAIL_FORK) {
        return 3;
    }
    if (loco_info(f->l, &info) != LOCO_FAIL_FORK ||
        loco_stop(f->l, 1000) != LOCO_FAIL_FORK) {
        return 4;
    }
    if (strstr(loco_errmsg(f->l), "fork") == NULL) {
        return 5;
    }
    loco_close(f->l);
    return 0;
}

static void child_of_fork_is_told_and_harms_nothing(void **state)
{
    struct loco_todo t;
    struct fake f;
    int status;
    pid_t pid;

    (void)state;
    begin_going(&f, 10);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(child_calls(&f));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(silent(&f));
    assert_int_equal(loco_next(f.l, LONG_MS, &t), LOCO_GO);
    assert_int_equal(loco_step(f.l, 6, 1.0), 0);
    (void)hear(&f, TRAINER_MSG_STEP);
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loop_says_who_it_is_and_learns_the_run),
        cmocka_unit_test(state_directory_may_have_a_long_path),
        cmocka_unit_test(refused_loop_hears_why),
        cmocka_unit_test(options_of_another_size_are_read_or_refused),
        cmocka_unit_test(other_run_than_invited_to_is_refused),
        cmocka_unit_test(wrong_welcomes_are_not_believed),
        cmocka_unit_test(welcome_without_memory_is_not_believed),
        cmocka_unit_test(file_shorter_than_said_is_not_believed),
        cmocka_unit_test(packet_that_is_none_ends_it),
        cmocka_unit_test(loop_makes_the_steps_of_a_go_and_is_held),
        cmocka_unit_test(give_in_the_middle_voids_the_rest),
        cmocka_unit_test(permission_twice_breaks_the_protocol),
        cmocka_unit_test(stop_is_told_with_its_sentence_and_again),
        cmocka_unit_test(what_the_daemon_said_before_it_left_counts),
        cmocka_unit_test(quiet_daemon_costs_no_more_than_the_timeout),
        cmocka_unit_test(signal_ends_a_wait),
        cmocka_unit_test(text_comes_when_asked_for_and_stays),
        cmocka_unit_test(give_while_the_loop_waits_for_text_is_not_lost),
        cmocka_unit_test(stop_while_the_loop_waits_for_text_is_not_lost),
        cmocka_unit_test(text_outside_of_the_vocabulary_is_not_believed),
        cmocka_unit_test(run_without_text_says_so),
        cmocka_unit_test(held_loop_scores_windows),
        cmocka_unit_test(daemon_comes_back_with_another_file),
        cmocka_unit_test(daemon_that_comes_back_with_another_run_is_refused),
        cmocka_unit_test(daemon_that_stays_away_is_one_clear_failure),
        cmocka_unit_test(nobody_there_and_nothing_to_start_is_said_at_once),
        cmocka_unit_test(locod_that_cannot_start_is_quoted),
        cmocka_unit_test(locod_that_is_not_installed_is_named),
        cmocka_unit_test(started_locod_drains_when_the_loop_closes),
        cmocka_unit_test(started_locod_may_take_its_time),
        cmocka_unit_test(kept_locod_goes_on),
        cmocka_unit_test(killed_locod_is_started_again),
        cmocka_unit_test(directory_of_another_locod_is_said_in_the_end),
        cmocka_unit_test(model_is_compared_by_names_and_shapes),
        cmocka_unit_test(child_of_fork_is_told_and_harms_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
