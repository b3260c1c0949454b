/* state.c - the state directory and the run; see locod.h. */
#include "daemon/locod.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/settings/run_yaml.h"
#include "daemon/settings/state_dir.h"
#include "p2p/uv/addr.h"
#include "proto/base/err.h"
#include "proto/base/errmsg.h"
#include "proto/base/file.h"
#include "proto/base/log.h"

int state_path(const struct daemon *d, const char *name, char *out)
{
    char errmsg[ERRMSG_SIZE];

    return file_path_join(out, d->config.state, name, errmsg);
}

void write_lock(int fd, const char *word)
{
    char text[STATE_DIR_LOCK_HEAD + 1], head[STATE_DIR_LOCK_HEAD];

    (void)snprintf(head, sizeof head, "%ld %s", (long)getpid(), word);
    (void)snprintf(text, sizeof text, "%-*s\n", STATE_DIR_LOCK_HEAD - 1, head);
    if (pwrite(fd, text, STATE_DIR_LOCK_HEAD, 0) != STATE_DIR_LOCK_HEAD) {
        log_warn("main", "cannot write the lock file: %s", strerror(errno));
    }
}

/* A whole text with its NUL behind what is there: how much that is then; 0: not
 * written. */
static off_t add_text(int fd, off_t at, const char *text)
{
    ssize_t len = (ssize_t)strlen(text) + 1;

    return at > 0 && pwrite(fd, text, (size_t)len, at) == len ? at + len : 0;
}

/* What this process runs, then who it is: nobody reads a part of it as all. */
static void fill_lock(const struct daemon *d)
{
    off_t at = ftruncate(d->lock_fd, 0) == 0 ? STATE_DIR_LOCK_HEAD : 0;

    if (d->program[0] != '\0') {
        at = add_text(d->lock_fd, at, d->program);
        for (int i = 0; i < d->argc; i++) {
            at = add_text(d->lock_fd, at, d->argv[i]);
        }
    }
    if (at == 0 && ftruncate(d->lock_fd, 0) != 0) {
        log_warn("main", "cannot write the lock file: %s", strerror(errno));
    }
    write_lock(d->lock_fd, LOCO_VERSION);
}

int lock_state(struct daemon *d)
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];

    if (state_path(d, STATE_DIR_LOCK, path) != 0) {
        return complain(TROUBLE_STATE_DIR, "the state directory's path is "
                                           "long: choose another with --state");
    }
    if (file_make_folders(path, errmsg) != 0) {
        return complain(TROUBLE_STATE_DIR,
                        "no state directory: %s; choose another with --state",
                        errmsg);
    }
    d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->lock_fd < 0) {
        return complain(TROUBLE_STATE_DIR,
                        "cannot write in the state directory %s: %s; let user "
                        "%lu write there, or choose another with --state",
                        d->config.state, strerror(errno),
                        (unsigned long)geteuid());
    }
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return complain(TROUBLE_STATE_IN_USE,
                        "the state directory %s is in use by another locod: "
                        "stop that one, or give this one its own with --state",
                        d->config.state);
    }
    (void)fchmod(d->lock_fd, 0600); /* a word may hold an invitation */
    fill_lock(d);
    return 0;
}

/* A state directory that was copied has the same key and another lock. The
 * system forgets the name with the process; another account may have taken it,
 * which is not believed: then only peers can tell. */
static int lock_identity(struct daemon *d)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct ucred who = {0};
    socklen_t size = sizeof who, len;
    char hex[ID_HEX_MAX];
    int fd;

    id_hex(&d->identity.id, hex);
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                      (size_t)snprintf(at.sun_path + 1, sizeof at.sun_path - 1,
                                       "loco-identity-%s", hex));
    d->identity_fd =
        socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->identity_fd < 0 ||
        (bind(d->identity_fd, (struct sockaddr *)&at, len) == 0 &&
         listen(d->identity_fd, SOMAXCONN) == 0) ||
        errno != EADDRINUSE) {
        return 0;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, len) == 0) {
        (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (who.pid == 0 || who.uid != geteuid()) {
        log_warn("main", "another account of this machine holds the name of "
                         "this identity");
        return 0;
    }
    return complain(TROUBLE_IDENTITY_TWICE,
                    "process %ld runs with the same identity, %.16s: stop it, "
                    "or remove " STATE_DIR_KEY " in the copied directory %s",
                    (long)who.pid, hex, d->config.state);
}

int load_identity(struct daemon *d)
{
    char path[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    int rv = state_path(d, STATE_DIR_KEY, path);

    if (rv != 0) {
        return complain(TROUBLE_STATE_DIR,
                        "the state directory's path is long");
    }
    rv = identity_load(&d->identity, path, errmsg);
    if (rv == LOCO_ENOENT) {
        rv = identity_generate(&d->identity, NULL);
        rv = rv == 0 ? identity_save(&d->identity, path, errmsg) : rv;
    }
    if (rv != 0) {
        return complain(TROUBLE_IDENTITY, "%s", errmsg);
    }
    d->signer = signer_sodium(&d->identity);
    return lock_identity(d);
}

/* A whole small file into memory; NULL where there is none. */
static uint8_t *read_file(const struct daemon *d, const char *name, size_t *len)
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    struct file_map map;
    uint8_t *bytes = NULL;

    if (state_path(d, name, path) != 0 ||
        file_map_open(&map, path, errmsg) != 0) {
        return NULL;
    }
    if (map.size > 0) {
        bytes = malloc(map.size);
    }
    if (bytes != NULL) {
        memcpy(bytes, map.data, map.size);
        *len = map.size;
    }
    file_map_close(&map);
    return bytes;
}

/* ---- the run ---------------------------------------------------------- */

/* A small file beside run.yaml, or in the state directory; 0: none. */
static size_t
read_small(const char *dir, const char *name, uint8_t *out, size_t cap)
{
    char path[FILE_PATH_MAX], errmsg[ERRMSG_SIZE];
    size_t n = 0;
    FILE *f;

    if (file_path_join(path, dir, name, errmsg) != 0) {
        return 0;
    }
    f = fopen(path, "re");
    if (f != NULL) {
        n = fread(out, 1, cap, f);
        (void)fclose(f);
    }
    return n < cap ? n : 0;
}

/* Who starts a run for invited peers is one, too. */
static int own_invite(struct daemon *d, struct invite *invite)
{
    char text[INVITE_TEXT_MAX + 2];
    size_t n = read_small(d->data_dir, RUN_INVITATION, (uint8_t *)text,
                          sizeof text - 1);

    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (invite_parse(text, invite) != 0) {
        return complain(
            TROUBLE_NOT_INVITED,
            "the run is for invited peers, and %.200s" RUN_INVITATION
            " has no invitation: run create and run sign write it",
            d->data_dir);
    }
    return 0;
}

static int admit(struct daemon *d, const struct invite *invite)
{
    struct node_options *o = &d->node_options;

    o->has_admission = true;
    return invite_admission(invite, &d->run_id, &d->identity.id,
                            &o->admission) == 0
               ? 0
               : complain(TROUBLE_SYSTEM, "the invitation cannot be used");
}

void tell_revoked(struct daemon *d)
{
    const struct {
        const char *dir, *name;
    } places[] = {{d->config.state, STATE_DIR_REVOKED},
                  {d->data_dir, STATE_DIR_REVOKED}};

    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct local_event ev = {.type = LOCAL_REVOKED,
                                 .revoked.bytes = d->revoked[i]};

        if (places[i].dir[0] != '\0') {
            ev.revoked.n_bytes =
                (uint32_t)read_small(places[i].dir, places[i].name,
                                     d->revoked[i], sizeof d->revoked[i]);
        }
        if (ev.revoked.n_bytes > 0) {
            (void)shell_post(d->shell, &ev);
        }
    }
}

static int run_from_file(struct daemon *d)
{
    struct run_yaml *r = malloc(sizeof *r);
    char errmsg[LOCO_ERRMSG_MAX];
    struct invite invite;
    bool invited;
    int n, rv;

    d->manifest = malloc(MANIFEST_WIRE_MAX);
    if (r == NULL || d->manifest == NULL) {
        free(r);
        return complain(TROUBLE_RESOURCES, "out of memory");
    }
    if (run_yaml_load(d->config.run, RUN_YAML_SIGNED, r, errmsg) != 0) {
        free(r);
        return complain(TROUBLE_MANIFEST, "%s", errmsg);
    }
    d->run_id = r->run_id;
    file_folder(d->data_dir, d->config.run);
    n = manifest_pack(&r->manifest, r->signature, d->manifest,
                      MANIFEST_WIRE_MAX);
    invited = r->manifest.invited;
    free(r);
    if (n < 0) {
        return complain(TROUBLE_MANIFEST, "%s", loco_strerror(n));
    }
    d->node_options.manifest = d->manifest;
    d->node_options.manifest_len = (size_t)n;
    if (!invited) {
        return 0;
    }
    rv = own_invite(d, &invite);
    return rv == 0 ? admit(d, &invite) : rv;
}

static int resolve(const struct uri_host *h, struct address *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    char port[8];
    int rv;

    (void)snprintf(port, sizeof port, "%u", h->port);
    if (getaddrinfo(h->host, port, &hints, &list) != 0) {
        return LOCO_ENOENT;
    }
    rv = address_from_sockaddr(list->ai_addr, out);
    freeaddrinfo(list);
    return rv;
}

static int run_from_uri(struct daemon *d)
{
    struct node_options *o = &d->node_options;
    char errmsg[LOCO_ERRMSG_MAX];
    struct uri *u = malloc(sizeof *u);
    int rv;

    if (u == NULL || uri_parse(d->config.join, u, errmsg) != 0) {
        free(u);
        return complain(TROUBLE_URI, "%s", errmsg);
    }
    d->run_id = u->run;
    o->pin = u->peer;
    for (uint32_t i = 0; i < u->n_hosts; i++) {
        if (o->n_bootstrap == NODE_BOOTSTRAP_MAX) {
            break;
        }
        if (resolve(&u->hosts[i], &o->bootstrap[o->n_bootstrap]) == 0) {
            d->host_of[o->n_bootstrap++] = i;
        } else {
            (void)fprintf(stderr, "locod: cannot resolve the bootstrap %s\n",
                          u->hosts[i].host);
        }
    }
    rv = u->has_invite ? admit(d, &u->invite) : 0;
    free(u);
    if (rv != 0) {
        return rv;
    }
    if (o->n_bootstrap == 0) {
        return complain(TROUBLE_BOOTSTRAP_NAME,
                        "no bootstrap address can be resolved: check the name "
                        "in the URI and this machine's DNS");
    }
    d->manifest = read_file(d, STATE_DIR_MANIFEST, &o->manifest_len);
    o->manifest = d->manifest;
    return 0;
}
int load_run(struct daemon *d)
{
    return d->config.run[0] != '\0' ? run_from_file(d) : run_from_uri(d);
}

void load_past(struct daemon *d)
{
    struct node_options *o = &d->node_options;

    o->record = d->record = read_file(d, STATE_DIR_RECORD, &o->record_len);
    o->peers = d->peers = read_file(d, STATE_DIR_PEERS, &o->peers_len);
    o->chain = d->chain = read_file(d, STATE_DIR_CHAIN, &o->chain_len);
}
