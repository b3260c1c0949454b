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

/* A word of a line, which is not NUL-ended. */
struct word {
    const char *text;
    size_t len;
};

/* False: it is too long. */
static bool take_word(char *out, size_t size, struct word w)
{
    if (w.len >= size) {
        return false;
    }
    memcpy(out, w.text, w.len);
    out[w.len] = '\0';
    return true;
}

static int add_address(struct machines *m,
                       struct word address,
                       struct word token,
                       struct word name)
{
    struct watch_name *to = &m->item[m->n];

    if (m->n == MACHINES_MAX) {
        return no_room();
    }
    *to = (struct watch_name){.state_dir = NULL};
    if (!take_word(to->daemon.address, sizeof to->daemon.address, address) ||
        !take_word(to->daemon.token, sizeof to->daemon.token, token) ||
        !take_word(to->name, sizeof to->name, name)) {
        return cli_fail(
            TROUBLE_USAGE, "%.*s: address, token or name is too long",
            (int)(address.len < 80 ? address.len : 80), address.text);
    }
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
        return add_address(m, (struct word){word, strlen(word)},
                           (struct word){of_us.token, strlen(of_us.token)},
                           (struct word){"", 0});
    }
    m->item[m->n++] = (struct watch_name){.state_dir = word};
    return CLI_GO;
}

/* The next word of a line that ends at `end`; *at moves behind it. */
static struct word next_word(const char **at, const char *end)
{
    struct word w;

    while (*at < end && strchr(BLANKS, **at) != NULL) {
        (*at)++;
    }
    w.text = *at;
    while (*at < end && strchr(BLANKS, **at) == NULL) {
        (*at)++;
    }
    w.len = (size_t)(*at - w.text);
    return w;
}

/* One line, which ends at `len`. */
static int read_line(struct machines *m,
                     const char *line,
                     size_t len,
                     const char *path,
                     unsigned number,
                     bool *secret)
{
    const char *at = line, *end = line + len;
    struct word address = next_word(&at, end), token = next_word(&at, end),
                name = next_word(&at, end), more = next_word(&at, end);

    if (address.len == 0 || address.text[0] == '#') {
        return CLI_GO;
    }
    if (more.len > 0 || memchr(address.text, ':', address.len) == NULL ||
        memchr(line, '\0', len) != NULL) {
        return cli_fail(TROUBLE_USAGE,
                        "%s, line %u: write ADDRESS, ADDRESS TOKEN or ADDRESS "
                        "TOKEN NAME, as in 192.168.1.20:7710 5f0c.. attic",
                        path, number);
    }
    if (token.len == 1 && token.text[0] == '-') {
        token.len = 0; /* none, before a name */
    }
    *secret = *secret || token.len > 0;
    return add_address(m, address, token, name);
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
