/* cli_invite.c - loco run invite, run revoke; see cli_invite.h. */
#include "daemon/cli_invite.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cli.h"
#include "daemon/cli_http.h"
#include "daemon/state_dir.h"
#include "proto/base/err.h"
#include "proto/invite.h"
#include "proto/messages.h"
#include "proto/uri.h"
#include "train/errmsg.h"
#include "train/file.h"

#define AUTHOR_KEY "author.key"
#define DAY_S      86400U
#define NOTE_MAX   80

/* A file beside run.yaml. */
static void beside(const char *run_yaml, const char *name, char *out)
{
    const char *slash = strrchr(run_yaml, '/');

    (void)snprintf(out, FILE_PATH_MAX, "%.*s%s",
                   slash == NULL ? 0 : (int)(slash - run_yaml) + 1, run_yaml,
                   name);
}

/* Secrets and who has them: for the author's eyes only. */
static int write_private(const char *path, const char *text, bool append)
{
    int fd = open(
        path, O_WRONLY | O_CREAT | O_CLOEXEC | (append ? O_APPEND : O_TRUNC),
        0600);
    size_t len = strlen(text);
    bool good =
        fd >= 0 && write(fd, text, len) == (ssize_t)len && fsync(fd) == 0;

    if (fd >= 0) {
        good = close(fd) == 0 && good;
    }
    return good ? 0
                : cli_fail(TROUBLE_FILE, "write %s: %s", path, strerror(errno));
}

/* One more than the highest number that was given out. */
static int next_number(const char *run_yaml, uint32_t *number)
{
    char path[FILE_PATH_MAX], line[512];
    unsigned long highest = 0, n;
    FILE *f;

    beside(run_yaml, RUN_INVITATIONS, path);
    f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        n = strtoul(line, NULL, 10);
        highest = n > highest ? n : highest;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    *number = (uint32_t)(highest + 1);
    return highest < UINT32_MAX
               ? 0
               : cli_fail(TROUBLE_INVITATIONS, "%s: no number is left", path);
}

static int give_out(const struct run_yaml *r,
                    const char *run_yaml,
                    const struct identity *author,
                    uint64_t expiry_s,
                    const char *note,
                    struct invite *out)
{
    char path[FILE_PATH_MAX], line[256], hex[ID_HEX_MAX];
    uint32_t number;
    int rv = next_number(run_yaml, &number);

    if (rv != 0) {
        return rv;
    }
    rv = invite_make(author, &r->run_id, number, expiry_s, out);
    if (rv != 0) {
        return cli_fail(cli_trouble_of(rv, TROUBLE_INVITATIONS), "sign: %s",
                        loco_strerror(rv));
    }
    hash32_hex(&r->run_id, hex);
    (void)snprintf(line, sizeof line, "%u %s %llu %s\n", number, hex,
                   (unsigned long long)expiry_s, note);
    beside(run_yaml, RUN_INVITATIONS, path);
    return write_private(path, line, true);
}

int cli_invite_own(const struct run_yaml *r,
                   const char *run_yaml,
                   const struct identity *author)
{
    char path[FILE_PATH_MAX], text[INVITE_TEXT_MAX + 1];
    struct invite invite;
    int rv;

    if (!r->manifest.invited) {
        return 0;
    }
    rv = give_out(r, run_yaml, author, 0, "who starts the run", &invite);
    if (rv != 0) {
        return rv;
    }
    invite_format(&invite, text);
    (void)snprintf(text + strlen(text), 2, "\n");
    beside(run_yaml, RUN_INVITATION, path);
    return write_private(path, text, false);
}

/* The run, whose author's key is there, and that it is one for invited peers.
 */
static int load(struct run_yaml *r,
                const char *run_yaml,
                const char *key,
                struct identity *author)
{
    char path[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];

    if (run_yaml_load(run_yaml, RUN_YAML_SIGNED, r, errmsg) != 0) {
        return cli_fail(TROUBLE_MANIFEST, "%s", errmsg);
    }
    if (!r->manifest.invited) {
        return cli_fail(TROUBLE_MANIFEST,
                        "%s: this run is open to all; one for invited peers "
                        "is made with: loco run create --set invited=true",
                        run_yaml);
    }
    beside(run_yaml, AUTHOR_KEY, path);
    if (identity_load(author, key == NULL ? path : key, errmsg) != 0) {
        return cli_fail(TROUBLE_AUTHOR_KEY, "%s", errmsg);
    }
    if (memcmp(author->public, r->manifest.author, sizeof author->public) !=
        0) {
        identity_wipe(author);
        return cli_fail(TROUBLE_AUTHOR_KEY,
                        "%s is not the key of this run's author",
                        key == NULL ? path : key);
    }
    return 0;
}

/* ---- invite ----------------------------------------------------------------
 */

struct request {
    const char *run_yaml, *key, *note, *hosts;
    uint64_t days;
};

static bool note_ok(const char *note)
{
    for (const char *c = note; *c != '\0'; c++) {
        if (iscntrl((unsigned char)*c)) {
            return false;
        }
    }
    return strlen(note) <= NOTE_MAX;
}

static int hosts_read(const char *text, struct uri *u)
{
    char one[URI_HOST_MAX + 16], errmsg[LOCO_ERRMSG_MAX];

    while (*text != '\0') {
        size_t n = strcspn(text, ",");

        if (u->n_hosts == URI_HOSTS_MAX || n >= sizeof one) {
            return cli_fail(TROUBLE_USAGE, "--host: at most %d of them",
                            URI_HOSTS_MAX);
        }
        (void)snprintf(one, sizeof one, "%.*s", (int)n, text);
        if (uri_host_parse(one, false, &u->hosts[u->n_hosts], errmsg) != 0) {
            return cli_fail(TROUBLE_USAGE, "--host %s", errmsg);
        }
        u->n_hosts++;
        text += n + (text[n] == ',');
    }
    return u->n_hosts > 0 ? 0
                          : cli_fail(TROUBLE_USAGE, "--host: names no host");
}

static int invite(struct run_yaml *r, const struct request *q)
{
    struct uri u = {0};
    struct identity author;
    char text[URI_TEXT_MAX];
    int rv = hosts_read(q->hosts, &u);
    struct timespec now = {0};
    uint64_t expiry_s;

    rv = rv != 0 ? rv : load(r, q->run_yaml, q->key, &author);
    if (rv != 0) {
        return rv;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    expiry_s = q->days == 0 ? 0 : (uint64_t)now.tv_sec + q->days * DAY_S;
    rv = give_out(r, q->run_yaml, &author, expiry_s, q->note, &u.invite);
    identity_wipe(&author);
    if (rv != 0) {
        return rv;
    }
    u.has_invite = true;
    u.run = r->run_id;
    if (uri_format(&u, text, sizeof text) < 0) {
        return cli_fail(TROUBLE_USAGE, "run invite: the address is too long");
    }
    (void)printf("%s\n", text);
    (void)fprintf(stderr,
                  "invitation %u: whoever has this line may take part until "
                  "loco run revoke %u\n",
                  u.invite.number, u.invite.number);
    return LOCO_EXIT_OK;
}

int cli_run_invite(const struct cli_call *call)
{
    struct request q = {.note = "", .days = 30};
    struct cli_list words = {0};
    const struct cli_option options[] = {
        {"--host", CLI_TEXT, &q.hosts, "HOST:PORT",
         "of peers to join by, with commas between"},
        {"--days", CLI_COUNT, &q.days, "N", "it holds so long; 0: always (30)"},
        {"--note", CLI_TEXT, &q.note, "TEXT", "for whom, for your list"},
        {"--key", CLI_TEXT, &q.key, "FILE", "the author's key"},
    };
    struct run_yaml *r;
    int rv = CLI_PARSE(call, options, &words, 1, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    if (q.hosts == NULL || !note_ok(q.note) || q.days > 36500) {
        return cli_fail(TROUBLE_USAGE,
                        "run invite: --host HOST:PORT is needed, --note has "
                        "at most %d characters, --days at most 36500",
                        NOTE_MAX);
    }
    q.run_yaml = words.item[0];
    r = calloc(1, sizeof *r);
    if (r == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    rv = invite(r, &q);
    free(r);
    return rv;
}

/* ---- revoke ----------------------------------------------------------------
 */

/* The list as it is; an empty one where there is none. */
static int
list_read(const char *path, const struct run_yaml *r, struct revocation *list)
{
    uint8_t bytes[4096];
    FILE *f = fopen(path, "re");
    size_t n = 0;

    memset(list, 0, sizeof *list);
    list->body.run = r->run_id;
    if (f == NULL && errno != ENOENT) { /* a list without it is another */
        return cli_fail(TROUBLE_INVITATIONS, "read %s: %s", path,
                        strerror(errno));
    }
    if (f == NULL) {
        return 0;
    }
    n = fread(bytes, 1, sizeof bytes, f);
    (void)fclose(f);
    if (msg_decode(&revocation_schema, bytes, n, list) != 0) {
        return cli_fail(TROUBLE_INVITATIONS, "%s is damaged", path);
    }
    if (!hash32_eq(&list->body.run, &r->run_id)) { /* signed anew since */
        memset(list, 0, sizeof *list);
        list->body.run = r->run_id;
    }
    return 0;
}

static int list_add(struct revocation_body *b, const char *word)
{
    char *end;
    unsigned long number = strtoul(word, &end, 10);

    if (!isdigit((unsigned char)word[0]) || *end != '\0' || number == 0 ||
        number > UINT32_MAX) {
        return cli_fail(TROUBLE_USAGE,
                        "run revoke %.40s: the number of an invitation, see "
                        "run.invitations beside run.yaml",
                        word);
    }
    for (uint32_t i = 0; i < b->n_numbers; i++) {
        if (b->numbers[i] == number) {
            return 0;
        }
    }
    if (b->n_numbers == MESSAGE_REVOKED_MAX) {
        return cli_fail(TROUBLE_INVITATIONS,
                        "run revoke: %d are revoked already, which is all "
                        "that fit: make a new run",
                        MESSAGE_REVOKED_MAX);
    }
    b->numbers[b->n_numbers++] = (uint32_t)number;
    return 0;
}

static int list_write(const char *path,
                      struct revocation *list,
                      const struct identity *author)
{
    struct signer signer = signer_sodium(author);
    char errmsg[ERRMSG_SIZE];
    uint8_t bytes[4096];
    int n =
        message_sign(&signer, &revocation_body_schema, &list->body, list->sig);

    n = n != 0 ? n : msg_encode(&revocation_schema, list, bytes, sizeof bytes);
    if (n < 0) {
        return cli_fail(cli_trouble_of(n, TROUBLE_INVITATIONS), "%s",
                        loco_strerror(n));
    }
    return file_write_whole(path, bytes, (size_t)n, errmsg) == 0
               ? 0
               : cli_fail(TROUBLE_FILE, "%s", errmsg);
}

static int end_them(struct run_yaml *r,
                    const char *run_yaml,
                    const char *key,
                    const char *state,
                    const struct cli_list *words)
{
    char path[FILE_PATH_MAX], there[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    struct http_daemon daemon;
    struct revocation list;
    struct identity author;
    int rv = load(r, run_yaml, key, &author);

    if (rv != 0) {
        return rv;
    }
    beside(run_yaml, STATE_DIR_REVOKED, path);
    rv = list_read(path, r, &list);
    for (size_t i = 1; rv == 0 && i < words->n; i++) {
        rv = list_add(&list.body, words->item[i]);
    }
    list.body.sequence++;
    rv = rv != 0 ? rv : list_write(path, &list, &author);
    if (rv == 0 && state != NULL &&
        file_path_join(there, state, STATE_DIR_REVOKED, errmsg) == 0) {
        rv = list_write(there, &list, &author);
    }
    identity_wipe(&author);
    if (rv != 0) {
        return rv;
    }
    if (state == NULL) {
        (void)fprintf(stderr,
                      "%s: written; a daemon of the run has to read it: name "
                      "one with --state\n",
                      path);
        return LOCO_EXIT_OK;
    }
    if (http_of_state(state, &daemon, errmsg) != 0 ||
        http_post(&daemon, "/api/v1/reload", errmsg) != 0) {
        return cli_fail(TROUBLE_NO_DAEMON,
                        "%s is written, and no daemon told: %s", path, errmsg);
    }
    return LOCO_EXIT_OK;
}

int cli_run_revoke(const struct cli_call *call)
{
    const char *key = NULL, *state = NULL;
    struct cli_list words = {0};
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &state, "DIR",
         "of a daemon of the run, which tells the others"},
        {"--key", CLI_TEXT, &key, "FILE", "the author's key"},
    };
    struct run_yaml *r;
    int rv = CLI_PARSE(call, options, &words, 2, CLI_LIST_MAX);

    if (rv != CLI_GO) {
        return rv;
    }
    r = calloc(1, sizeof *r);
    if (r == NULL) {
        return cli_fail(TROUBLE_RESOURCES, "out of memory");
    }
    rv = end_them(r, words.item[0], key, state, &words);
    free(r);
    return rv;
}
