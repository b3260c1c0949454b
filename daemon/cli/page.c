/* page.c - loco page: several daemons on one page for the browser.
 *
 * Prints the page's address, and its password where it has one, and serves it
 * until SIGINT or SIGTERM. A password is asked for wherever the page shows what
 * not every account of this machine may ask the daemons for: one with a token
 * or on a Unix socket. It is new with every start and in this process only.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/machines.h"
#include "daemon/settings/control_tokens.h"
#include "daemon/watch/page.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"

#define PERIOD_MS  1000 /* between two questions to one daemon */
#define STEP_MS    200  /* until a signal is seen */
#define PUBLISH_MS 200  /* between two states of the page */

static volatile sig_atomic_t ended;

static void on_signal(int number)
{
    (void)number;
    ended = 1;
}

static void serve(struct watch *w, struct page *page)
{
    uint64_t published_ms = 0;
    bool changed = true;

    while (!ended) {
        changed = watch_step(w, STEP_MS) || changed;
        if (changed && monotonic_ms() >= published_ms + PUBLISH_MS) {
            page_publish(page, watch_json(w));
            published_ms = monotonic_ms();
            changed = false;
        }
    }
}

static int
run(const struct machines *m, const char *address, const char *password)
{
    const struct sigaction act = {.sa_handler = on_signal};
    char errmsg[ERRMSG_SIZE];
    struct page *page;
    struct watch *w = watch_open(m->item, m->n, PERIOD_MS, password == NULL);
    int rv;

    if (w == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "page: out of memory");
    }
    rv = page_open(&page, address, password, errmsg);
    if (rv != 0) {
        watch_close(w);
        return cli_fail(rv == LOCO_EINVAL ? TROUBLE_USAGE
                                          : TROUBLE_CONTROL_IN_USE,
                        "page: %s", errmsg);
    }
    (void)sigaction(SIGINT, &act, NULL);
    (void)sigaction(SIGTERM, &act, NULL);
    (void)printf("http://%s/\n", page_address(page));
    if (password != NULL) {
        (void)printf("password %s\n", password);
    }
    (void)fflush(stdout);
    (void)fprintf(stderr, "loco: the page of %zu daemon%s, until Ctrl-C%s\n",
                  m->n, m->n == 1 ? "" : "s",
                  password == NULL
                      ? ""
                      : "; the browser asks for the password, and the name "
                        "does not matter");
    serve(w, page);
    page_close(page);
    watch_close(w);
    return LOCO_EXIT_OK;
}

static bool any_private(const struct machines *m)
{
    for (size_t i = 0; i < m->n; i++) {
        if (watch_is_private(&m->item[i])) {
            return true;
        }
    }
    return false;
}

/* Other machines reach every address but these; whether it is one of them is
 * web/listen.c's business: without a password it refuses the others. */
static bool is_local(const char *address)
{
    return strncmp(address, "127.", 4) == 0 ||
           strncmp(address, "[::1]:", 6) == 0 ||
           strncmp(address, "localhost:", 10) == 0;
}

int cli_page(const struct cli_call *call)
{
    static struct machines machines; /* 25 KB */
    const char *file = NULL, *address = "127.0.0.1:0";
    char password[CONTROL_TOKEN_RANDOM];
    struct cli_list words = {0};
    bool guarded = false;
    const struct cli_option options[] = {
        {"--machines", CLI_TEXT, &file, "FILE",
         "also the daemons of this file, a line each: ADDRESS [TOKEN [NAME]]"},
        {"--listen", CLI_TEXT, &address, "HOST:PORT",
         "where the page is served (127.0.0.1 and a free port)"},
        {"--password", CLI_FLAG, &guarded, NULL,
         "ask for a password also where the daemons ask for none"},
    };
    int rv = CLI_PARSE(call, options, &words, 0, CLI_LIST_MAX);

    rv = rv == CLI_GO ? machines_of(&machines, &words, file) : rv;
    if (rv != CLI_GO) {
        return rv;
    }
    if (strncmp(address, "unix:", 5) == 0) {
        return cli_fail(TROUBLE_USAGE,
                        "page: --listen: no browser opens a Unix socket");
    }
    guarded = guarded || !is_local(address) || any_private(&machines);
    if (guarded && sodium_init() < 0) {
        return cli_fail(TROUBLE_SYSTEM, "page: libsodium does not start");
    }
    if (guarded) {
        control_token_random(password);
    }
    return run(&machines, address, guarded ? password : NULL);
}
