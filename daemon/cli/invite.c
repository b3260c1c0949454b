/* invite.c - loco run invite, run revoke; see cli/invite.h. */
#include "daemon/cli/invite.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cli/cli.h"
#include "daemon/settings/state_dir.h"
#include "daemon/visit/http.h"
#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/invite.h"
#include "proto/messages.h"
#include "proto/uri.h"

#define AUTHOR_KEY     "author.key"
#define DAY_S          86400U
#define NOTE_MAX       80
#define LIST_BYTES_MAX 4096 /* of revoked invitations */

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

    file_beside(path, run_yaml, RUN_INVITATIONS);
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
               : cli_fail(TROUBLE_INVITATIONS,
                          "%s: every invitation number is used", path);
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
    file_beside(path, run_yaml, RUN_INVITATIONS);
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
    rv = give_out(r, run_yaml, author, 0, "the peer that starts the run",
                  &invite);
    if (rv != 0) {
        return rv;
    }
    invite_format(&invite, text);
    (void)snprintf(text + strlen(text), 2, "\n");
    file_beside(path, run_yaml, RUN_INVITATION);
    return write_private(path, text, false);
}

/* The run, which must be one for invited peers, and its author's key. */
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
        return cli_fail(
            TROUBLE_MANIFEST,
            "%s: this run is open to everybody; make one for invited peers "
            "with: loco run create --set invited=true",
            run_yaml);
    }
    file_beside(path, run_yaml, AUTHOR_KEY);
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

/* ---- invite ------------------------------------------------------------- */

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
            return cli_fail(TROUBLE_USAGE, "--host: at most %d addresses",
                            URI_HOSTS_MAX);
        }
        (void)snprintf(one, sizeof one, "%.*s", (int)n, text);
        if (uri_host_parse(one, false, &u->hosts[u->n_hosts], errmsg) != 0) {
            return cli_fail(TROUBLE_USAGE, "--host %s", errmsg);
        }
        u->n_hosts++;
        text += n + (text[n] == ',');
    }
    return u->n_hosts > 0
               ? 0
               : cli_fail(TROUBLE_USAGE, "--host: the address is missing");
}

static int invite(struct run_yaml *r, const struct request *q)
{
    struct uri u = {0};
    struct identity author;
    char text[URI_TEXT_MAX];
    int rv = hosts_read(q->hosts, &u);
    uint64_t expiry_s;

    rv = rv != 0 ? rv : load(r, q->run_yaml, q->key, &author);
    if (rv != 0) {
        return rv;
    }
    expiry_s = q->days == 0 ? 0 : (uint64_t)wall_ms() / 1000 + q->days * DAY_S;
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
                  "invitation %u: anybody with this line can join, until: loco "
                  "run revoke %u\n",
                  u.invite.number, u.invite.number);
    return LOCO_EXIT_OK;
}

int cli_run_invite(const struct cli_call *call)
{
    struct request q = {.note = "", .days = 30};
    struct cli_list words = {0};
    const struct cli_option options[] = {
        {"--host", CLI_TEXT, &q.hosts, "HOST:PORT",
         "addresses of members, comma-separated"},
        {"--days", CLI_COUNT, &q.days, "N",
         "days until it expires; 0: never (30)"},
        {"--note", CLI_TEXT, &q.note, "TEXT",
         "note for run.invitations, such as a name"},
        {"--key", CLI_TEXT, &q.key, "FILE", "the author's key"},
    };
    static struct run_yaml r;
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
    return invite(&r, &q);
}

/* ---- revoke ------------------------------------------------------------- */

/* The list as it is; an empty one where there is none. */
static int
list_read(const char *path, const struct run_yaml *r, struct revocation *list)
{
    char errmsg[ERRMSG_SIZE], *bytes;
    size_t n;
    int rv = file_read_whole(path, LIST_BYTES_MAX, &bytes, &n, errmsg);

    memset(list, 0, sizeof *list);
    if (rv != 0 && rv != LOCO_ENOENT) { /* a list without it is another */
        return cli_fail(TROUBLE_INVITATIONS, "%s", errmsg);
    }
    if (rv == 0) {
        rv = msg_decode(&revocation_schema, (const uint8_t *)bytes, n, list);
        free(bytes);
        if (rv != 0) {
            return cli_fail(TROUBLE_INVITATIONS, "%s is damaged", path);
        }
    }
    if (!hash32_eq(&list->body.run, &r->run_id)) { /* none, or signed anew */
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
        return cli_fail(
            TROUBLE_USAGE,
            "run revoke: '%.40s' is not the number of an invitation; "
            "run.invitations beside run.yaml lists them",
            word);
    }
    for (uint32_t i = 0; i < b->n_numbers; i++) {
        if (b->numbers[i] == number) {
            return 0;
        }
    }
    if (b->n_numbers == MESSAGE_REVOKED_MAX) {
        return cli_fail(TROUBLE_INVITATIONS,
                        "run revoke: the list of %d revoked invitations is "
                        "full: make a new run",
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
    uint8_t bytes[LIST_BYTES_MAX];
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
    file_beside(path, run_yaml, STATE_DIR_REVOKED);
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
                      "wrote %s; a daemon of the run must read it: name its "
                      "directory with --state\n",
                      path);
        return LOCO_EXIT_OK;
    }
    if (http_of_state(state, &daemon, errmsg) != 0 ||
        http_post(&daemon, "/api/v1/reload", errmsg) != 0) {
        return cli_fail(TROUBLE_NO_DAEMON,
                        "wrote %s, but cannot tell the daemon: %s", path,
                        errmsg);
    }
    return LOCO_EXIT_OK;
}

int cli_run_revoke(const struct cli_call *call)
{
    const char *key = NULL, *state = NULL;
    struct cli_list words = {0};
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &state, "DIR",
         "state directory of a member, which tells the others"},
        {"--key", CLI_TEXT, &key, "FILE", "the author's key"},
    };
    static struct run_yaml r;
    int rv = CLI_PARSE(call, options, &words, 2, CLI_LIST_MAX);

    if (rv != CLI_GO) {
        return rv;
    }
    return end_them(&r, words.item[0], key, state, &words);
}
