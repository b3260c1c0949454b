/* cli.c - main of `loco`: finds the command that the first words name. */
#include "daemon/cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/err.h"
#include "proto/base/nearest.h"
#ifdef LOCO_NETWORK
#include "proto/sign.h"
#endif

#define EXIT_CODES                                                             \
    "exit codes: 0 ok, 1 failure, 2 usage, 3 configuration or manifest,\n"     \
    "  4 state directory, 5 identity, 6 network, 7 incompatible run,\n"        \
    "  8 device, 9 out of memory or disk\n"

static const struct cli_command commands[] = {
#define COMMAND(run, name, arguments, summary, example)                        \
    {name, arguments, summary, example, run},
#include "daemon/cli/commands.def"
};

#define N_COMMANDS (sizeof commands / sizeof commands[0])

const struct cli_command *cli_commands(size_t *n)
{
    *n = N_COMMANDS;
    return commands;
}

/* Words of the row's name that argv starts with; 0: not this command. */
static int words_match(const char *name, int argc, char **argv)
{
    const char *space = strchr(name, ' ');

    if (argc < 1) {
        return 0;
    }
    if (space == NULL) {
        return strcmp(name, argv[0]) == 0 ? 1 : 0;
    }
    return argc >= 2 && strlen(argv[0]) == (size_t)(space - name) &&
                   strncmp(name, argv[0], strlen(argv[0])) == 0 &&
                   strcmp(space + 1, argv[1]) == 0
               ? 2
               : 0;
}

/* Whether some command's first word of two is `word`. */
static int is_group(const char *word)
{
    size_t len = strlen(word);

    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strncmp(commands[i].name, word, len) == 0 &&
            commands[i].name[len] == ' ') {
            return 1;
        }
    }
    return 0;
}

static void print_overview(FILE *to, const char *group)
{
    size_t len = group == NULL ? 0 : strlen(group);

    (void)fprintf(to,
                  "loco %s - train one language model together\n\n"
                  "use: loco COMMAND [--help]\n\n",
                  LOCO_VERSION);
    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (group == NULL || (strncmp(commands[i].name, group, len) == 0 &&
                              commands[i].name[len] == ' ')) {
            (void)fprintf(to, "  %-16s %s\n", commands[i].name,
                          commands[i].summary);
        }
    }
    (void)fprintf(to, "\n" EXIT_CODES);
}

static int unknown(int argc, char **argv)
{
    const char *names[N_COMMANDS];
    const char *near;
    char word[2 * NEAREST_WORD_MAX];
    int n = argc >= 2 && (is_group(argv[0]) || argv[1][0] != '-') ? 2 : 1;

    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
    }
    (void)snprintf(word, sizeof word, "%s", argv[0]);
    near = nearest_word(word, names, N_COMMANDS);
    if (n == 2) {
        const char *two;
        char words[2 * NEAREST_WORD_MAX];

        (void)snprintf(words, sizeof words, "%.46s %.46s", argv[0], argv[1]);
        two = nearest_word(words, names, N_COMMANDS);
        if (two != NULL || near == NULL) {
            near = two;
            memcpy(word, words, sizeof word);
        }
    }
    if (near != NULL) {
        return cli_fail(TROUBLE_USAGE,
                        "unknown command '%s'; did you mean 'loco %s'?", word,
                        near);
    }
    return cli_fail(TROUBLE_USAGE,
                    "unknown command '%s'; loco --help lists them all", word);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr, NULL);
        return LOCO_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_overview(stdout, NULL);
        return LOCO_EXIT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)printf("loco %s\n", LOCO_VERSION);
        return LOCO_EXIT_OK;
    }
#ifdef LOCO_NETWORK
    if (sign_start() != 0) {
        return cli_fail(TROUBLE_FILE, "the system provides no random numbers");
    }
#endif
    for (size_t i = 0; i < N_COMMANDS; i++) {
        int n = words_match(commands[i].name, argc - 1, argv + 1);

        if (n > 0) {
            struct cli_call call = {&commands[i], argc - 1 - n, argv + 1 + n,
                                    NULL, NULL};

            return commands[i].run(&call);
        }
    }
    if (is_group(argv[1]) && (argc == 2 || strcmp(argv[2], "--help") == 0 ||
                              strcmp(argv[2], "-h") == 0)) {
        print_overview(argc == 2 ? stderr : stdout, argv[1]);
        return argc == 2 ? LOCO_EXIT_USAGE : LOCO_EXIT_OK;
    }
    return unknown(argc - 1, argv + 1);
}
