/* machines.c - see machines.h. */
#include "daemon/cli/machines.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"

#define BLANKS " \t\r"

static int no_room(void)
{
    return cli_fail(TROUBLE_USAGE, "at most %d daemons can be watched",
                    MACHINES_MAX);
}

static int add_address(struct machines *m,
                       const char *address,
                       size_t len,
                       const char *token,
                       size_t token_len)
{
    struct watch_name *name = &m->item[m->n];

    if (m->n == MACHINES_MAX) {
        return no_room();
    }
    if (len >= HTTP_ADDRESS_MAX || token_len >= HTTP_TOKEN_MAX) {
        return cli_fail(TROUBLE_USAGE, "%.*s: address or token is too long",
                        (int)(len < 80 ? len : 80), address);
    }
    *name = (struct watch_name){.state_dir = NULL};
    memcpy(name->daemon.address, address, len);
    memcpy(name->daemon.token, token, token_len);
    m->n++;
    return CLI_GO;
}

int machines_add(struct machines *m, const char *word)
{
    struct http_daemon of_us = {.address = ""};
    struct stat st;

    if (m->n == MACHINES_MAX) {
        return no_room();
    }
    if (strchr(word, ':') != NULL &&
        (stat(word, &st) != 0 || !S_ISDIR(st.st_mode))) {
        http_token_of_environment(&of_us);
        return add_address(m, word, strlen(word), of_us.token,
                           strlen(of_us.token));
    }
    m->item[m->n++] = (struct watch_name){.state_dir = word};
    return CLI_GO;
}

/* One line, which ends at `len`. */
static int read_line(struct machines *m,
                     const char *line,
                     size_t len,
                     const char *path,
                     unsigned number,
                     bool *secret)
{
    const char *token, *rest;
    size_t n, n_token;

    n = strspn(line, BLANKS);
    line += n;
    len -= n;
    if (len == 0 || line[0] == '#') {
        return CLI_GO;
    }
    n = strcspn(line, BLANKS "\n");
    token = line + n + strspn(line + n, BLANKS);
    n_token = strcspn(token, BLANKS "\n");
    rest = token + n_token + strspn(token + n_token, BLANKS);
    if (rest < line + len || memchr(line, ':', n) == NULL ||
        memchr(line, '\0', len) != NULL) {
        return cli_fail(TROUBLE_USAGE,
                        "%s, line %u: write ADDRESS or ADDRESS TOKEN, as in "
                        "192.168.1.20:7710 5f0c..",
                        path, number);
    }
    *secret = *secret || n_token > 0;
    return add_address(m, line, n, token, n_token);
}

int machines_read(struct machines *m, const char *path)
{
    char errmsg[ERRMSG_SIZE], *text = NULL;
    bool secret = false;
    unsigned number = 1;
    struct stat st;
    size_t size = 0;
    int rv = CLI_GO;

    if (stat(path, &st) != 0 ||
        file_read_whole(path, MACHINES_BYTES_MAX, &text, &size, errmsg) != 0) {
        return cli_fail(TROUBLE_FILE,
                        "%s: cannot be read, or has more than "
                        "%zu bytes",
                        path, MACHINES_BYTES_MAX);
    }
    for (size_t at = 0; rv == CLI_GO && at < size; number++) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t len = end == NULL ? size - at : (size_t)(end - text) - at;

        rv = read_line(m, text + at, len, path, number, &secret);
        at += len + 1;
    }
    free(text);
    if (rv == CLI_GO && secret && (st.st_mode & 077) != 0) {
        rv = cli_fail(TROUBLE_FILE,
                      "%s has tokens and others can read it: chmod 600 %s",
                      path, path);
    }
    return rv;
}

int machines_of(struct machines *m,
                const struct cli_list *words,
                const char *file)
{
    const char *state = NULL;
    int rv = CLI_GO;

    for (size_t i = 0; rv == CLI_GO && i < words->n; i++) {
        rv = machines_add(m, words->item[i]);
    }
    rv = rv == CLI_GO && file != NULL ? machines_read(m, file) : rv;
    if (rv == CLI_GO && m->n == 0) {
        rv = cli_state(&state);
        rv = rv == CLI_GO ? machines_add(m, state) : rv;
    }
    return rv;
}
