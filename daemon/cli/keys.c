/* keys.c - loco keys backup, restore: an identity as a file or as words.
 *
 * Words are read from standard input, never from the command line, which other
 * users of a machine can see. An existing key is never overwritten.
 */
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include <sodium.h>

#include "daemon/cli/cli.h"
#include "daemon/cli/words.h"
#include "daemon/settings/state_dir.h"
#include "proto/base/err.h"
#include "proto/base/file.h"
#include "proto/sign.h"

#define INPUT_MAX 1024

/* The path of the key in `state`, or in the configured directory. */
static int key_path(const char *state, char path[FILE_PATH_MAX])
{
    char errmsg[LOCO_ERRMSG_MAX];
    int rv = cli_state(&state);

    if (rv != CLI_GO) {
        return rv;
    }
    if (file_path_join(path, state, STATE_DIR_KEY, errmsg) != 0) {
        return cli_fail(TROUBLE_STATE_DIR, "%s", errmsg);
    }
    return CLI_GO;
}

static void print_id(const struct identity *id)
{
    char hex[ID_HEX_MAX], brief[ID_SHORT_MAX];

    id_hex(&id->id, hex);
    id_short(&id->id, brief);
    (void)fprintf(stderr, "peer %s  %s\n", brief, hex);
}

static int write_backup(const struct identity *id, const char *out)
{
    char errmsg[LOCO_ERRMSG_MAX], text[WORDS_TEXT_MAX];

    if (out != NULL) {
        return identity_save(id, out, errmsg) == 0
                   ? LOCO_EXIT_OK
                   : cli_fail(TROUBLE_IDENTITY, "keys backup: %s", errmsg);
    }
    /* The first half of libsodium's secret key is the seed. */
    words_encode(id->secret, text);
    (void)printf("%s\n", text);
    sodium_memzero(text, sizeof text);
    (void)fprintf(stderr, "anybody with these words can act as this peer: "
                          "write them down and keep them off this machine\n");
    return LOCO_EXIT_OK;
}

int cli_keys_backup(const struct cli_call *call)
{
    const char *state = NULL, *out = NULL;
    bool words = false;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &state, "DIR", "the daemon's state directory"},
        {"--out", CLI_TEXT, &out, "FILE", "new file to write, mode 0600"},
        {"--words", CLI_FLAG, &words, NULL, "print 24 words instead"},
    };
    char path[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    struct identity id;
    int rv = CLI_PARSE(call, options, NULL, 0, 0);

    if (rv != CLI_GO) {
        return rv;
    }
    if ((out != NULL) == words) {
        return cli_fail(TROUBLE_USAGE,
                        "keys backup: give either --out FILE or --words");
    }
    rv = key_path(state, path);
    if (rv != CLI_GO) {
        return rv;
    }
    if (identity_load(&id, path, errmsg) != 0) {
        return cli_fail(TROUBLE_IDENTITY, "%s", errmsg);
    }
    rv = write_backup(&id, out);
    if (rv == LOCO_EXIT_OK) {
        print_id(&id);
    }
    identity_wipe(&id);
    return rv;
}

static int read_words(struct identity *id)
{
    char text[INPUT_MAX], errmsg[WORDS_ERRMSG_MAX];
    uint8_t seed[32];
    size_t n;
    int rv;

    if (isatty(0) == 1) {
        (void)fprintf(stderr, "type the 24 words, then Ctrl-D:\n");
    }
    n = fread(text, 1, sizeof text - 1, stdin);
    text[n] = '\0';
    rv = words_decode(text, seed, errmsg);
    sodium_memzero(text, sizeof text);
    if (rv != 0) {
        return cli_fail(TROUBLE_IDENTITY, "keys restore: %s", errmsg);
    }
    rv = identity_generate(id, seed);
    sodium_memzero(seed, sizeof seed);
    return rv == 0 ? CLI_GO
                   : cli_fail(TROUBLE_IDENTITY, "%s", loco_strerror(rv));
}

int cli_keys_restore(const struct cli_call *call)
{
    struct cli_list files = {0};
    const char *state = NULL;
    bool words = false;
    const struct cli_option options[] = {
        {"--state", CLI_TEXT, &state, "DIR", "the daemon's state directory"},
        {"--words", CLI_FLAG, &words, NULL,
         "read 24 words from standard input"},
    };
    char path[FILE_PATH_MAX], errmsg[LOCO_ERRMSG_MAX];
    struct identity id;
    int rv = CLI_PARSE(call, options, &files, 0, 1);

    if (rv != CLI_GO) {
        return rv;
    }
    if ((files.n == 1) == words) {
        return cli_fail(TROUBLE_USAGE,
                        "keys restore: give either FILE or --words");
    }
    rv = key_path(state, path);
    if (rv == CLI_GO && words) {
        rv = read_words(&id);
    } else if (rv == CLI_GO && identity_load(&id, files.item[0], errmsg) != 0) {
        rv = cli_fail(TROUBLE_IDENTITY, "%s", errmsg);
    }
    if (rv != CLI_GO) {
        return rv;
    }
    if (file_make_folders(path, errmsg) != 0) {
        rv = cli_fail(TROUBLE_STATE_DIR, "%s", errmsg);
    } else if (identity_save(&id, path, errmsg) != 0) {
        rv = cli_fail(TROUBLE_IDENTITY,
                      "keys restore: %s; a key is never overwritten: move it "
                      "away first",
                      errmsg);
    } else {
        rv = LOCO_EXIT_OK;
        print_id(&id);
    }
    identity_wipe(&id);
    return rv;
}
